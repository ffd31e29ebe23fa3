"""What a mark says about a part that is to be written."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.connectors.base.sink import Mark, TaskSink, WriterBatch, already_written, check_epoch
from headrace.errors import HeadraceError
from headrace.event_time.record import MarkedBatch
from tests.writers import Writer

PART = Writer("spend-1f0c", epoch=3).batch(generation=2, batch=7, last=5)


@pytest.mark.parametrize(
    ("part", "stored", "there"),
    [
        (PART, Mark(3, 2, 5), False),
        (PART, Mark(2, 2, 5), False),
        (PART, Mark(3, 2, 7), True),
        (PART, Mark(1, 2, 7), True),
        (replace(PART, last=None), None, False),
        (replace(PART, last=None), Mark(3), False),
        (replace(PART, last=None), Mark(3, 2, 7), True),
        (replace(PART, last=None), Mark(3, 1, 90), False),
        (replace(PART, last=MarkedBatch(7)), Mark(3, 2, 7), True),
    ],
)
def test_a_part_is_there_when_its_own_batch_is_marked(part: WriterBatch, stored: Mark | None, there: bool) -> None:
    assert already_written(part, stored, place="table spend") is there


@pytest.mark.parametrize(
    ("part", "stored", "said"),
    [
        (PART, None, "should be batch 5 or 7, found none"),
        (PART, Mark(3, 2, 4), "should be batch 5 or 7, found batch 4"),
        (PART, Mark(3, 1, 5), "found none"),
    ],
)
def test_a_mark_that_is_older_than_the_log_expects_stops_the_flow(
    part: WriterBatch, stored: Mark | None, said: str
) -> None:
    with pytest.raises(HeadraceError, match=said) as problem:
        already_written(part, stored, place="table spend")
    assert problem.value.id == "MARK_LOST"
    assert "table spend" in str(problem.value)
    assert "headrace.spend-1f0c.main.0" in str(problem.value)


@pytest.mark.parametrize(
    ("part", "stored"),
    [
        (PART, Mark(3, 2, 6)),
        (PART, Mark(3, 2, 8)),
        (PART, Mark(3, 2, 7, token="another")),
        (PART, Mark(3, 2, 5, token="another")),
        (replace(PART, last=None), Mark(3, 2, 5)),
    ],
)
def test_a_mark_of_another_copy_of_the_checkpoint_stops_the_flow(part: WriterBatch, stored: Mark) -> None:
    with pytest.raises(
        HeadraceError, match=rf"table spend.* has written batch {stored.batch}, which the log"
    ) as problem:
        already_written(part, stored, place="table spend")
    assert problem.value.id == "CHECKPOINT_FORKED"
    assert "Nothing was written" in str(problem.value)


def test_a_driver_whose_lease_another_took_over_is_fenced_even_when_its_batch_is_marked() -> None:
    with pytest.raises(HeadraceError, match=r"newer driver \(epoch 4\)") as problem:
        already_written(PART, Mark(4, 2, 7), place="table spend")
    assert problem.value.id == "FENCED"


def test_a_checkpoint_that_was_restored_elsewhere_since_writes_no_more() -> None:
    with pytest.raises(HeadraceError, match="generation 3, this flow at 2") as problem:
        already_written(PART, Mark(3, 3, 0), place="table spend")
    assert problem.value.id == "GENERATION_OLD"


@pytest.mark.parametrize(
    "sink",
    [
        hr.to_postgres("spend", dsn="host=127.0.0.1 port=1"),
        hr.to_redis("redis://127.0.0.1:1", key="{account}"),
        hr.to_opensearch("http://127.0.0.1:1", "spend", id="{account}"),
    ],
    ids=["postgres", "redis", "opensearch"],
)
def test_a_struct_beside_a_column_named_as_its_field_is_an_error_before_the_server_is_asked(sink: TaskSink) -> None:
    window = pl.Struct({"start": pl.Datetime("us", "UTC")})
    with pytest.raises(HeadraceError, match=r"^\[COLUMN_EXISTS\] column 'window_start' is there twice"):
        sink.prepare({"account": pl.String(), "window_start": pl.Date(), "window": window}, [], 1)


@given(st.integers(0, 5), st.integers(0, 5))
def test_only_an_older_epoch_is_refused(ours: int, stored: int) -> None:
    try:
        check_epoch(ours, stored, place="table spend", writer="w")
        refused = False
    except HeadraceError:
        refused = True
    assert refused is (ours < stored)


@given(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 3), st.none() | st.integers(0, 3))
def test_every_mark_of_the_same_generation_is_a_yes_a_no_or_an_error(
    batch: int, generation: int, last: int | None, stored: int | None
) -> None:
    part = Writer("f", epoch=1).batch(generation, batch, last)
    mark = None if stored is None else Mark(1, generation, stored)
    if stored in (batch, last):
        assert already_written(part, mark, place="p") is (stored == batch)
    else:
        is_ahead = stored is not None and (last is None or stored > last)
        with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED" if is_ahead else "MARK_LOST"):
            already_written(part, mark, place="p")
