"""Joins with a small table: each batch by one version of it, the same one when the batch runs again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.connectors.files.small_table import file_table
from headrace.errors import HeadraceError
from headrace.operators.joins.broadcast_join import broadcast_join
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

RATES = {"currency": pl.String(), "rate": pl.Float64()}


class Scripted:
    """A table that is another one each time it is read; None stands for one that cannot be read."""

    def __init__(self, *contents: Sequence[tuple[str | None, float]] | None) -> None:
        self._contents = list(contents)
        self.reads = 0

    def columns(self) -> dict[str, pl.DataType]:
        return RATES

    def read(self) -> pl.DataFrame:
        content = self._contents[min(self.reads, len(self._contents) - 1)]
        self.reads += 1
        if content is None:
            raise HeadraceError("TABLE_UNREADABLE", "the table is gone.")
        return pl.DataFrame(content, RATES, orient="row")


def rated(table: Any, **more: Any) -> Any:
    return broadcast_join("rates", table, **{"on": "currency", "refresh": "1 minute", **more})


@pytest.mark.spark
def test_rows_get_the_columns_of_the_table_and_its_version() -> None:
    timeline(
        rated(Scripted([("EUR", 1.1), ("GBP", 1.3)]), how="left"),
        at("10:00", currency="EUR", n=1),
        at("10:01", currency="JPY", n=2),
        at("10:02", currency=None, n=3),
        batch(),
        expect(
            row(currency="EUR", n=1, at="10:00", rate=1.1, rates_version=1),
            row(currency="JPY", n=2, at="10:01", rate=None, rates_version=1),
            row(currency=None, n=3, at="10:02", rate=None, rates_version=1),
        ),
    )


@pytest.mark.parametrize("levels", [[float("nan")], [float("nan"), 0.0]])
def test_nan_is_a_key_like_any_other_also_alone_in_its_batch(levels: list[float]) -> None:
    class Levels:
        def columns(self) -> dict[str, pl.DataType]:
            return {"level": pl.Float64(), "name": pl.String()}

        def read(self) -> pl.DataFrame:
            return pl.DataFrame({"level": levels, "name": ["none", "zero"][: len(levels)]})

    timeline(
        broadcast_join("levels", Levels(), on="level", how="left"),
        at("10:00", level=float("nan"), n=1),
        batch(),
        at("10:01", level=-0.0, n=2),
        batch(),
        expect(row(n=1, name="none"), row(n=2, name="zero" if 0.0 in levels else None)),
    )


def test_an_inner_join_leaves_out_what_the_table_does_not_know_and_null_equals_nothing() -> None:
    timeline(
        rated(Scripted([("EUR", 1.1), (None, 9.0)])),
        at("10:00", currency="EUR", n=1),
        at("10:01", currency="JPY", n=2),
        at("10:02", currency=None, n=3),
        batch(),
        expect(currency="EUR", n=1, rate=1.1),
    )


@pytest.mark.spark
def test_a_row_leaves_once_for_each_row_of_the_table_with_its_key() -> None:
    timeline(
        rated(Scripted([("EUR", 1.1), ("EUR", 1.2)])),
        at("10:00", currency="EUR", n=1),
        at("10:01", currency="EUR", n=2),
        batch(),
        expect(*(row(currency="EUR", n=n, rate=rate) for n in (1, 2) for rate in (1.1, 1.2))),
    )


@pytest.mark.spark
@pytest.mark.streamed
def test_the_table_is_read_again_when_the_time_has_come_and_gets_a_version_when_it_has_changed() -> None:
    table = Scripted([("EUR", 1.1)], [("EUR", 1.1)], [("EUR", 1.2)])
    timeline(
        rated(table),
        at("10:00", currency="EUR", n=1),
        batch(),
        expect(n=1, rate=1.1, rates_version=1),
        clock("2026-01-02T00:00:59"),
        at("10:01", currency="EUR", n=2),
        batch(),
        expect(n=2, rate=1.1, rates_version=1),
        clock("2026-01-02T00:01:00"),
        at("10:02", currency="EUR", n=3),
        batch(),
        expect(n=3, rate=1.1, rates_version=1),
        clock("2026-01-02T00:02:00"),
        at("10:03", currency="EUR", n=4),
        batch(),
        expect(n=4, rate=1.2, rates_version=2),
    )
    assert table.reads == 3


@pytest.mark.spark
@pytest.mark.streamed
def test_a_batch_that_runs_again_after_a_crash_reads_the_version_it_had() -> None:
    timeline(
        rated(Scripted([("EUR", 1.1)], [("EUR", 1.2)], [("EUR", 1.3)])),
        at("10:00", currency="EUR", n=1),
        crash(),
        clock("2026-01-02T00:05:00"),
        batch(),
        expect(n=1, rate=1.1, rates_version=1),
        at("10:01", currency="EUR", n=2),
        batch(),
        expect(n=2, rate=1.2, rates_version=2),
    )


@pytest.mark.streamed
def test_a_table_that_cannot_be_read_again_stays_as_it_was_and_a_warning_says_so_once() -> None:
    table = Scripted([("EUR", 1.1)], None, None, [("EUR", 1.2)])
    elements: list[Any] = []
    for minute in range(4):
        elements += [clock(f"2026-01-02T00:0{minute}:00"), at(f"10:0{minute}", currency="EUR", n=minute), batch()]
    with pytest.warns(RuntimeWarning, match="goes on with version 1 of its table.*the table is gone") as warned:
        played = play(rated(table), *elements)
    assert len(warned) == 1
    assert [(row["rate"], row["rates_version"]) for row in played.main] == [(1.1, 1), (1.1, 1), (1.1, 1), (1.2, 2)]


def test_a_table_that_was_never_read_is_an_error() -> None:
    with pytest.raises(HeadraceError, match=r"\[TABLE_UNREADABLE\] the table is gone"):
        play(rated(Scripted(None)), at("10:00", currency="EUR", n=1), batch())


def test_whatever_an_authors_table_raises_is_told_with_the_step() -> None:
    class Broken(Scripted):
        def read(self) -> pl.DataFrame:
            raise ZeroDivisionError("oh")

    with pytest.raises(HeadraceError, match=r"\[TABLE_UNREADABLE\] step 'rates': .*ZeroDivisionError: oh"):
        play(rated(Broken()), at("10:00", currency="EUR", n=1), batch())


@pytest.mark.spark
def test_windows_behind_it_have_the_time_of_the_rows() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="currency").agg(best="max(rate)").late(hr.side_output())
    timeline(
        (rated(Scripted([("EUR", 1.1)])), hourly),
        at("10:00", currency="EUR"),
        watermark("11:00"),
        expect(currency="EUR", window="10:00/11:00", best=1.1),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_that_is_late_for_the_step_behind_has_its_columns_of_the_table(how: str) -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="currency").agg(best="max(rate)").late(hr.side_output())
    unknown = [row(currency="JPY", rate=None, rates_version=1)] if how == "left" else []
    timeline(
        (rated(Scripted([("EUR", 1.1)]), how=how), hourly),
        at("10:00", currency="EUR"),
        watermark("11:00"),
        expect(currency="EUR", window="10:00/11:00", best=1.1),
        at("10:59", currency="EUR"),
        at("10:59", currency="JPY"),
        crash(),
        batch(),
        expect(),
        expect(row(currency="EUR", rate=1.1, rates_version=1), *unknown, output="late"),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.streamed
def test_rows_of_a_source_that_was_silent_meet_the_table_as_it_is_when_they_come(how: str) -> None:
    """While nothing comes the table is read with the batches that run; how far time has gone is of no importance."""
    table = Scripted([("EUR", 1.1)], [("EUR", 1.2)], [("EUR", 1.3)], [("EUR", 1.4)])
    gone = [row(currency="JPY", n=4, rate=None, rates_version=3)] if how == "left" else []
    timeline(
        rated(table, how=how),
        at("10:00", currency="EUR", n=1),
        batch(),
        expect(n=1, rate=1.1, rates_version=1),
        clock("2026-01-02T00:01:00"),
        batch(),
        expect(),
        clock("2026-01-02T00:30:00"),
        at("09:00", currency="EUR", n=3),
        at("12:00", currency="JPY", n=4),
        batch(),
        expect(row(currency="EUR", n=3, rate=1.3, rates_version=3), *gone),
        event_time=hr.event_time("at", idle="1 minute"),
    )
    assert table.reads == 3


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.streamed
def test_a_new_process_reads_the_table_at_once_but_not_for_the_batch_that_was_begun(how: str) -> None:
    gone = [row(currency="EUR", n=3, rate=None, rates_version=2)] if how == "left" else []
    timeline(
        rated(Scripted([("EUR", 1.1)], [("JPY", 9.0)]), how=how),
        at("10:00", currency="EUR", n=1),
        batch(),
        at("10:01", currency="EUR", n=2),
        crash(),
        batch(),
        expect(row(n=1, rate=1.1, rates_version=1), row(n=2, rate=1.1, rates_version=1)),
        at("10:02", currency="EUR", n=3),
        crash(),
        batch(),
        expect(*gone),
    )


def test_names_that_are_taken_get_a_suffix_and_keys_may_have_other_names(tmp_path: Path) -> None:
    levels = pl.DataFrame({"id": [1, 2], "n": [10, 20], "level": ["gold", "tin"]})
    levels.write_parquet(tmp_path / "levels.parquet")
    step = broadcast_join("levels", file_table(tmp_path / "levels.parquet"), on={"user": "id"})
    played = play(step, at("10:00", user=2, n=5), batch())
    assert [list(row) for row in played.main] == [["user", "n", "at", "n_right", "level", "levels_version"]]
    assert [(row["user"], row["n"], row["n_right"], row["level"]) for row in played.main] == [(2, 5, 20, "tin")]


@pytest.mark.spark
@pytest.mark.streamed
def test_two_tables_in_a_row_each_have_their_version() -> None:
    other = broadcast_join("more", Scripted([("EUR", 2.0)], [("EUR", 3.0)]), on="currency", refresh="1 second")
    timeline(
        (rated(Scripted([("EUR", 1.1)], [("EUR", 9.0)])), other),
        at("10:00", currency="EUR"),
        batch(),
        clock("2026-01-02T00:00:01"),
        at("10:01", currency="EUR"),
        batch(),
        expect(
            row(currency="EUR", rate=1.1, rate_right=2.0, rates_version=1, more_version=1),
            row(currency="EUR", rate=1.1, rate_right=3.0, rates_version=1, more_version=2),
        ),
    )


def test_negative_zero_and_nan_are_keys_like_any_other(tmp_path: Path) -> None:
    pl.DataFrame({"x": [0.0, float("nan")], "v": [1, 2]}).write_parquet(tmp_path / "t.parquet")
    timeline(
        broadcast_join("t", file_table(tmp_path / "t.parquet"), on="x"),
        at("10:00", x=-0.0, n=1),
        at("10:00", x=-float("nan"), n=2),
        batch(),
        expect(row(n=1, v=1), row(n=2, v=2)),
    )
