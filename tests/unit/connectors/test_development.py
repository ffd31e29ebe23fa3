"""The sinks of notebooks and tests."""

from __future__ import annotations

import time
from datetime import datetime

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

import headrace as hr

pytestmark = pytest.mark.spark


class Frame:
    """What these sinks ask of a frame, without Spark."""

    def __init__(self, *rows: Row) -> None:
        self.rows = list(rows)
        self.columns = list(rows[0].asDict())

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pl.DataFrame([row.asDict(recursive=True) for row in self.rows]).to_arrow()

    def collect(self) -> list[Row]:
        return self.rows


def test_memory_gives_rows_back_batch_after_batch(spark: SparkSession) -> None:
    sink = hr.to_memory("batch after batch")
    sink.write(spark.range(10, 12, 1, 1), hr.BatchIdentity("spend", 0, 10, "main"))
    sink.write(spark.range(0, 2, 1, 1), hr.BatchIdentity("spend", 0, 9, "main"))
    assert [row["id"] for row in hr.memory("batch after batch")] == [0, 1, 10, 11]


def test_a_batch_that_runs_again_replaces_itself_in_memory(spark: SparkSession) -> None:
    sink, batch = hr.to_memory("again"), hr.BatchIdentity("spend", 0, 0, "main")
    for _ in range(2):
        assert sink.write(spark.range(3), batch) == hr.Written(3, 3)
    assert [row["id"] for row in hr.memory("again")] == [0, 1, 2]


def test_memory_keeps_nested_rows_as_plain_dictionaries(spark: SparkSession) -> None:
    frame = spark.sql("SELECT named_struct('start', 1, 'end', 2) AS window")
    hr.to_memory("nested").write(frame, hr.BatchIdentity("spend", 0, 0, "main"))
    assert hr.memory("nested") == [{"window": {"start": 1, "end": 2}}]


def test_the_console_prints_the_first_rows_and_how_many_there_are(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    written = hr.to_console(rows=2).write(spark.range(7, 12), hr.BatchIdentity("spend", 0, 4, "main"))
    assert written == hr.Written(5, 5)
    printed = capsys.readouterr().out
    assert "spend main, batch 4, 5 rows" in " ".join(printed.split())
    assert [number for number in ("7", "8", "9", "10", "11") if f" {number} " in printed] == ["7", "8"]


def test_the_console_is_silent_about_a_batch_without_rows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hr.to_console().write(spark.range(0), hr.BatchIdentity("spend", 0, 4, "main")) == hr.Written(0, 0)
    assert capsys.readouterr().out == ""


def test_only_what_has_a_guarantee_and_write_is_a_sink() -> None:
    assert isinstance(hr.to_console(), hr.Sink)
    assert not isinstance(object(), hr.Sink)


def test_a_batch_that_runs_again_after_a_restart_replaces_itself_in_memory() -> None:
    sink, frame = hr.to_memory("again after a restart"), Frame(Row(id=1), Row(id=2))
    for epoch in (1, 2):
        sink.write(frame, hr.BatchIdentity("spend", 0, 0, "main", "spend-1f0c", epoch))  # type: ignore[arg-type]
    assert hr.memory("again after a restart") == [{"id": 1}, {"id": 2}]


def test_the_console_prints_what_looks_like_markup_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    frame = Frame(Row(**{"[/name]": "[/x]", "mood": ":smile:", "style": "[bold]b"}))
    batch = hr.BatchIdentity("[/spend]", 0, 4, "main")
    assert hr.to_console().write(frame, batch) == hr.Written(1, 1)  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    for text in ("[/name]", "[/x]", ":smile:", "[bold]b", "[/spend]"):
        assert text in printed


@pytest.mark.parametrize(
    ("start", "end", "shown"),
    [
        ("2026-01-01T10:00", "2026-01-01T11:00", "2026-01-01 10:00 to 11:00"),
        ("2026-01-01T10:00", "2026-01-01T10:00:30", "2026-01-01 10:00:00 to 10:00:30"),
        ("2026-01-01T10:00", "2026-01-01T10:00:00.25", "2026-01-01 10:00:00.000000 to 10:00:00.250000"),
        ("2026-01-01T23:30", "2026-01-02T00:30", "2026-01-01 23:30 to 2026-01-02 00:30"),
        ("2026-01-01T00:00", "2026-01-02T00:00", "2026-01-01 00:00 to 2026-01-02 00:00"),
    ],
)
def test_the_console_prints_a_window_as_people_write_it(
    start: str, end: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    window = Row(start=datetime.fromisoformat(start), end=datetime.fromisoformat(end))
    frame = Frame(Row(window=window, other=Row(start=1, end=2)))
    hr.to_console().write(frame, hr.BatchIdentity("spend", 0, 4, "main"))  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert f" {shown} " in printed
    assert "{start: 1, end: 2}" in printed


def test_the_console_shows_times_in_utc_wherever_it_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        frame = spark.sql("SELECT timestamp '2026-01-05 10:00:00Z' AS at")
        hr.to_console().write(frame, hr.BatchIdentity("spend", 0, 4, "main"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert " 2026-01-05 10:00 " in capsys.readouterr().out
