"""Joins with a small table: any batches at any time, a table that changes or is gone, a crash anywhere."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.operators.joins.broadcast_join import broadcast_join
from headrace.testing import at, batch, clock, crash, play
from tests.models import broadcast_join as model
from tests.models.examples import examples

REFRESH = 60
BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = {"currency": pl.String(), "rate": pl.Float64()}
currencies = st.sampled_from(["EUR", "GBP", "JPY", None])
contents = st.lists(st.tuples(currencies, st.sampled_from([1.0, 1.5, 2.0])), max_size=4)
runs = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 30, 59, 60, 61, 200]),
        st.lists(currencies, min_size=1, max_size=5),
        st.booleans(),
        st.sampled_from([0, 59, 60]),
    ),
    min_size=1,
    max_size=10,
)


class Readings:
    """A table that is another one each time it is read, and the last one for ever."""

    def __init__(self, readings: Sequence[model.Content | None]) -> None:
        self._readings = readings
        self._done = 0

    def columns(self) -> dict[str, pl.DataType]:
        return COLUMNS

    def read(self) -> pl.DataFrame:
        reading = self._readings[min(self._done, len(self._readings) - 1)]
        self._done += 1
        if reading is None:
            raise HeadraceError("TABLE_UNREADABLE", "the table is gone.")
        return pl.DataFrame(list(reading), COLUMNS, orient="row")


@pytest.mark.parametrize("how", ["inner", "left"])
@examples(25)
@given(
    first=contents,
    then=st.lists(st.none() | contents, max_size=8),
    runs=runs,
    partitions=st.integers(1, 3),
)
def test_all_rows_of_a_batch_meet_one_version_and_the_same_one_when_it_runs_again(
    how: Any,
    first: list[Any],
    then: list[Any],
    runs: list[tuple[int, list[str | None], bool, int]],
    partitions: int,
) -> None:
    readings: list[model.Content | None] = [first, *then]
    elements: list[Any] = []
    batches: list[model.Batch] = []
    now, number = 0, 0
    for waited, keys, dies, down in runs:
        now += waited
        rows = list(enumerate(keys, start=number))
        number += len(rows)
        batches.append(model.Batch(now, rows, dies))
        elements.append(clock(BEGIN + timedelta(seconds=now)))
        elements += [at("10:00", currency=key, n=n, partition=n % partitions) for n, key in rows]
        if dies:
            now += down
            elements += [crash(), clock(BEGIN + timedelta(seconds=now))]
        elements.append(batch())
    step = broadcast_join("rates", Readings(readings), on="currency", refresh=f"{REFRESH} seconds", how=how)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="step 'rates' goes on with version", category=RuntimeWarning)
        played = play(step, *elements)
    found = [(row["n"], row["rate"], row["rates_version"]) for row in played.main]
    truth = model.answer(batches, readings, how=how, refresh=REFRESH)
    assert sorted(found, key=lambda row: row[0]) == truth
    if partitions == 1:
        assert found == truth
