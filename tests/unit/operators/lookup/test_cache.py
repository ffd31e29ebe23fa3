"""Remembered answers: how long they are believed, how many are kept, which leave first."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.operators.lookup.cache import Remembered, cache

SCHEMA = {"id": pl.Int64(), "name": pl.String()}
MINUTE = 60_000_000


def keys(*ids: int) -> pl.DataFrame:
    return pl.DataFrame({"id": ids}, schema={"id": pl.Int64})


def answers(**names: str | None) -> pl.DataFrame:
    return pl.DataFrame([(int(id[1:]), name) for id, name in names.items()], schema=SCHEMA, orient="row")


def known(remembered: Remembered, *ids: int, clock: int = 0) -> dict[int, str | None]:
    return dict(remembered.known(keys(*ids), clock).rows())


def test_an_answer_is_believed_until_exactly_its_time_and_so_is_that_there_is_none() -> None:
    remembered = Remembered(cache(ttl="1 minute"), ("id",), SCHEMA)
    remembered.remember(answers(_1="Ann", _2=None), clock=0)
    assert known(remembered, 1, 2, 3, clock=MINUTE - 1) == {1: "Ann", 2: None}
    assert known(remembered, 1, 2, 3, clock=MINUTE) == {}
    assert remembered.size == 0


def test_a_read_does_not_make_an_answer_live_longer() -> None:
    remembered = Remembered(cache(ttl="1 minute"), ("id",), SCHEMA)
    remembered.remember(answers(_1="Ann"), clock=0)
    assert known(remembered, 1, clock=MINUTE // 2) == {1: "Ann"}
    assert known(remembered, 1, clock=MINUTE) == {}


def test_an_answer_of_the_future_is_not_believed() -> None:
    remembered = Remembered(cache(ttl="1 minute"), ("id",), SCHEMA)
    remembered.remember(answers(_1="Ann"), clock=MINUTE)
    assert known(remembered, 1, clock=0) == {}


def test_answers_that_were_used_longest_ago_leave_first() -> None:
    remembered = Remembered(cache(ttl="1 hour", size=3), ("id",), SCHEMA)
    known(remembered, 1, 2, 3)
    remembered.remember(answers(_1="Ann", _2="Bob", _3="Cem"), clock=0)
    known(remembered, 1)
    known(remembered, 4, 3)
    remembered.remember(answers(_4="Dan"), clock=0)
    assert remembered.size == 3
    assert known(remembered, 1, 2, 3, 4) == {1: "Ann", 3: "Cem", 4: "Dan"}


def test_no_more_than_its_size_is_kept_even_of_one_batch() -> None:
    remembered = Remembered(cache(ttl="1 hour", size=10), ("id",), SCHEMA)
    many = pl.DataFrame({"id": range(1000), "name": ["x"] * 1000}, schema=SCHEMA)
    remembered.remember(many, clock=0)
    assert remembered.size == 10


def test_a_cache_that_remembers_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match="CACHE_INVALID"):
        cache(ttl="1 minute", size=0)
    with pytest.raises(DefinitionError, match="DURATION_NOT_POSITIVE"):
        cache(ttl="0 minutes")
