"""A step may be started again with another lateness; the due times in its state then follow the new definition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.checkpoint.storage import MemoryStorage
from headrace.operators.step import Step
from headrace.testing import at, inline
from headrace.testing.elements import At, moment
from headrace.testing.engine import AFTER_EVERYTHING, BY_HAND, Setting, schema_of
from headrace.wheel.turn import turn

ROWS = [at("10:05", account=f"a{number}", amount=float(number)) for number in range(20)]
SCHEMA = schema_of(ROWS, partition=False)
HOURLY = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
MINUTE = 60_000_000


class Flow:
    """Starts of one flow over one log and one state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = MemoryStorage()
        monkeypatch.setattr(inline, "MemoryStorage", lambda: storage)
        self.clock = AFTER_EVERYTHING

    def run(self, step: Step, *batches: tuple[Sequence[At], str]) -> list[dict[str, Any]]:
        """Start with a definition and run batches, each of some rows under a watermark."""
        setting = Setting((step,), BY_HAND, {"left": SCHEMA}, clock=self.clock)
        engine = inline.InlineEngine(setting)
        try:
            for rows, watermark in batches:
                setting.watermarks["left"] = moment(watermark)
                engine.run(rows)
                setting.clock = self.clock = self.clock + 10 * MINUTE
        finally:
            engine.close()
        return setting.rows_of("main")


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Flow:
    return Flow(monkeypatch)


def test_windows_are_kept_for_corrections_as_long_as_a_longer_lateness_says(flow: Flow) -> None:
    short, long = HOURLY.late(hr.update_for("5 minutes")), HOURLY.late(hr.update_for("2 hours"))
    closed = flow.run(short, (ROWS, "10:30"), ((), "11:00"))
    assert sorted(row["spent"] for row in closed) == [float(number) for number in range(20)]
    late = at("10:10", account="a7", amount=100.0)
    corrected = flow.run(long, ((), "12:00"), ((), "12:10"), ([late], "12:20"))
    assert [(row["account"], row["spent"], row["revision"]) for row in corrected] == [("a7", 107.0, 1)]


def test_the_state_is_written_anew_once(flow: Flow) -> None:
    short, long = HOURLY.late(hr.update_for("5 minutes")), HOURLY.late(hr.update_for("2 hours"))
    flow.run(short, (ROWS, "10:30"))
    written: list[int] = []

    def noting(operator: Any, task: Any, slot: int, blobs: Any) -> Any:
        written.append(len(task.record.rewritten))
        return turn(operator, task, slot, blobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "turn", noting)
        flow.run(long, ((), "10:31"), ([ROWS[0]], "10:32"))
        first = written.count(1)
        flow.run(long, ([ROWS[0]], "10:33"))
    assert first >= 1
    assert written.count(1) == first
    assert written[-1] == 0


class ByRow(hr.KeyedProcess):
    """Counts the rows of an account and tells the count when it falls silent."""

    seen = hr.value_state("BIGINT", ttl="1 day")

    def on_row(self, row: Any, context: Any) -> None:
        self.seen.set((self.seen.get() or 0) + 1)
        context.set_timer("silent", after="20 minutes")

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {"account": context.key, "seen": self.seen.get()}


class ByFrame(hr.FrameProcess):
    """The same over frames."""

    seen = hr.value_state("BIGINT", ttl="1 day")
    silent = hr.timer()

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        seen = pl.col("seen").fill_null(0) + pl.int_range(1, pl.len() + 1).over("account")
        return frame.with_columns(seen=seen, silent=pl.col("at") + timedelta(minutes=20), emit=False)

    def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        return frame


@pytest.mark.parametrize(("first", "then"), [(ByRow, ByFrame), (ByFrame, ByRow), (ByFrame, ByFrame)])
def test_a_process_goes_on_over_frames_where_it_was_row_by_row_and_back(flow: Flow, first: Any, then: Any) -> None:
    before, after = (
        hr.process("counts", each, key="account", output="account STRING, seen BIGINT").late(hr.drop())
        for each in (first, then)
    )
    assert before.fingerprint == after.fingerprint
    again = [at("10:12", account="a7", amount=1.0)]
    assert flow.run(before, (ROWS, "10:00"), (again, "10:10"), ((), "10:15")) == []
    told = flow.run(after, ([at("10:20", account="a9", amount=1.0)], "10:16"), ((), "10:26"), ((), "11:00"))
    counts = {(row["account"], row["seen"], row["at"].minute) for row in told}
    others = {(f"a{number}", 1, 25) for number in range(20) if number not in (7, 9)}
    assert counts == {*others, ("a7", 2, 32), ("a9", 2, 40)}
