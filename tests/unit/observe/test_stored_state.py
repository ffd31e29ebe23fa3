"""The state of a flow, read from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog, BatchOutcome
from headrace.plan.identity import FILE


def test_a_flow_that_has_only_logged_where_it_begins_to_read_has_no_state_yet(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "spend")
    storage.replace(FILE, json.dumps({"steps": [{"name": "hourly"}], "key_groups": 128}).encode())
    log = BatchLog(storage)
    log.take_over()
    log.write_outcome(BatchOutcome(-1))
    with pytest.raises(hr.DefinitionError, match=r"\[STATE_NOT_FOUND\].*has run a batch"):
        hr.read_state(tmp_path, "spend", "hourly")
