"""The state of a flow, read from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog, BatchOutcome


def test_a_flow_that_has_only_logged_where_it_begins_to_read_has_no_state_yet(tmp_path: Path) -> None:
    log = BatchLog(LocalStorage(tmp_path / "spend"))
    log.take_over(lambda _: {"steps": [{"name": "hourly"}], "key_groups": 128})
    log.write_outcome(BatchOutcome(-1))
    with pytest.raises(hr.DefinitionError, match=r"\[STATE_NOT_FOUND\].*has run a batch"):
        hr.read_state(tmp_path, "spend", "hourly")
