"""How the rows of a hot key are dealt out."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.operators.windows.sliding_totals import PANE, SHARE, SUMS, KeySpread
from headrace.operators.windows.sliding_windows import SlidingOperator

MOMENT = pl.Datetime("us", "UTC")
SCHEMA = {"key": pl.String(), "n": pl.Int64(), "at": MOMENT}
CENTURY = 100 * 366 * 86_400_000_000


def shares_of(size: int, count: int) -> KeySpread:
    step = hr.sliding("w", size=f"{size} microseconds", key="key", spread=count).agg(total="sum(n)").late(hr.drop())
    operator = step.bind(SCHEMA, "at")
    assert isinstance(operator, SlidingOperator)
    assert operator.shares is not None
    return operator.shares


@given(
    size=st.one_of(st.integers(1, 50), st.integers(1, CENTURY // 20)),
    count=st.integers(2, 16),
    time=st.integers(-CENTURY, CENTURY),
    later=st.integers(0, CENTURY),
)
def test_panes_rise_with_time_and_a_window_later_it_is_the_same_share(
    size: int, count: int, time: int, later: int
) -> None:
    shares = shares_of(size, count)
    times = pl.DataFrame({"time": [time, time + size, time + later]})
    first, window_later, some_time_later = times.select(shares.pane(pl.col("time"))).to_series().to_list()
    assert window_later == first + shares.panes
    assert shares.panes % count == 0
    assert some_time_later >= first


def test_a_pane_is_a_quarter_of_a_second_unless_that_makes_too_many() -> None:
    assert shares_of(10_000_000, 4).panes == 40
    assert shares_of(3_600_000_000, 4).panes == 4 * 1024
    assert shares_of(5, 4).panes == 4


def test_every_row_goes_to_one_share_and_the_sums_of_its_pane_to_the_others() -> None:
    shares = shares_of(10_000_000, 3)
    times = [0, 100_000, 300_000]
    rows = pl.DataFrame({"key": "a", "n": [1, 2, 4], "at": times}).cast({"at": MOMENT})
    dealt = shares.spread(rows)
    whole = dealt.filter(pl.col(SUMS).is_null())
    assert whole.select("n", SHARE).rows() == [(1, 0), (2, 0), (4, 1)]
    sums = dealt.filter(pl.col(SUMS).is_not_null()).unnest(SUMS)
    assert sorted(sums.select(SHARE, PANE, pl.col("total.sum").cast(pl.Int64)).rows()) == [
        (0, 1, 4),
        (1, 0, 3),
        (2, 0, 3),
        (2, 1, 4),
    ]


def test_the_account_counts_rows_and_not_sums() -> None:
    step = hr.sliding("w", size="10 seconds", key="key", spread=3).agg(total="sum(n)").late(hr.drop())
    rows = pl.DataFrame({"key": "a", "n": [1, 2, 4], "at": [0, 1, 2]}).cast({"at": MOMENT})
    assert step.bind(SCHEMA, "at").combine(rows, TimeBounds(BEGINNING, BEGINNING)).accepted == 3


def test_the_shares_of_a_batch_of_a_few_seconds_are_about_equal() -> None:
    shares = shares_of(3_600_000_000, 4)
    rows = pl.DataFrame({"key": "a", "n": 1, "at": range(0, 10_000_000, 1_000)}).cast({"at": MOMENT})
    counts = shares.spread(rows).filter(pl.col(SUMS).is_null())[SHARE].value_counts()["count"]
    assert (counts.min(), counts.max()) == (2090, 2637)
