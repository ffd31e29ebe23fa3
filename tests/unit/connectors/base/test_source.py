"""Rows whose time is not to be believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

import headrace as hr
from headrace.connectors.base.decoding import POSITION, Decoded
from headrace.connectors.base.source import Gate
from headrace.event_time.record import BatchRecord
from headrace.schemas import MOMENT
from headrace.wheel.side_rows import read_rows
from headrace.wheel.task import Task
from tests.tasks import state_in_memory


@pytest.mark.parametrize(
    ("micros", "reason", "written"),
    [
        (253_402_300_800_000_000, "EVENT_TIME_IN_FUTURE", "+10000-01-01 00:00:00.000000+00:00"),
        (2**63 - 1, "EVENT_TIME_IN_FUTURE", "9223372036854775807"),
        (-(2**63) + 1, "EVENT_TIME_TOO_OLD", "-9223372036854775807"),
        (-10_000_000, "EVENT_TIME_TOO_OLD", "1969-12-31 23:59:50.000000+00:00"),
    ],
)
def test_a_time_of_any_year_is_refused_row_by_row(tmp_path: Path, micros: int, reason: str, written: str) -> None:
    reports: list[Any] = []
    record = BatchRecord(0, 0, {}, {}, {}, drain=False)
    task = Task(record, "flow", str(tmp_path), 0, lambda *report: reports.append(report), state_in_memory())
    accepted = hr.valid_times(not_before="1970-01-01T00:00:00Z", max_future="1 hour")
    gate = Gate("rows", cast(Any, None), hr.event_time("at", out_of_order="1 second", accept=accepted))
    rows = pl.DataFrame({"at": [5, micros], POSITION: [0, 1]}).with_columns(pl.col("at").cast(MOMENT))
    (kept,) = gate.admit([Decoded(rows, origin="file")], task)
    assert kept["at"].to_physical().to_list() == [5]
    [(_, report)] = reports
    [(file, _)] = report.side["dead_letters"]
    letter = read_rows(task.state.storage, file).row(0, named=True)
    assert (letter["position"], letter["reason"], letter["detail"]) == (1, reason, f"at = {written}")
    assert json.loads(letter["raw"]) == {"at": written}
