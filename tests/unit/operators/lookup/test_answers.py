"""The answers of a batch: of all who ask for the same keys, whoever answers first decides, and later runs use that."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from headrace.checkpoint.storage import MemoryStorage
from headrace.event_time.record import BatchRecord
from headrace.operators.lookup.answers import ANSWERS, BatchAnswers, forget_answers
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

NOTHING = pl.DataFrame(schema={"id": pl.Float64, "name": pl.String})


@pytest.fixture
def storage() -> MemoryStorage:
    """The flow's files."""
    return MemoryStorage()


def task(storage: MemoryStorage, *, batch: int = 3, epoch: int = 1, runs_again: bool = False) -> Task:
    state = replace(state_in_memory(storage=storage), epoch=epoch)
    return Task(BatchRecord(batch, 0, {}, {}, {}, False), "flow", 0, lambda *_: None, state, runs_again=runs_again)


def answers_for(ids: list[float], task: Task) -> BatchAnswers:
    return BatchAnswers("names", pl.DataFrame({"id": ids}, schema={"id": pl.Float64}), NOTHING, task)


def answers(**named: str) -> pl.DataFrame:
    rows = {"id": [float(id[1:]) for id in named], "name": list(named.values())}
    return pl.DataFrame(rows, schema=NOTHING.schema)


def known(found: pl.DataFrame) -> dict[float, str]:
    return dict(found.rows())


def test_two_copies_of_a_task_have_the_answers_of_the_one_that_was_faster_with_each_key(storage: MemoryStorage) -> None:
    one, other = (answers_for([1, 2, 3], task(storage)) for _ in range(2))
    assert known(one.settle(answers(k1="Ann"))) == {1: "Ann"}
    assert known(other.settle(answers(k1="not Ann", k2="Bob"))) == {1: "Ann", 2: "Bob"}
    assert known(one.settle(answers(k2="not Bob", k3="Cem"))) == {2: "Bob", 3: "Cem"}
    assert known(other.settle(answers(k3="not Cem"))) == {3: "Cem"}
    assert known(one.known) == known(other.known) == {1: "Ann", 2: "Bob", 3: "Cem"}


def test_a_task_that_is_tried_again_knows_what_was_answered(storage: MemoryStorage) -> None:
    answers_for([1, 2], task(storage)).settle(answers(k1="Ann"))
    assert known(answers_for([2, 1], task(storage)).known) == {1: "Ann"}
    assert known(answers_for([1, 2, 3], task(storage)).known) == {}


def test_a_batch_that_runs_again_knows_what_was_answered_however_its_keys_are_divided(storage: MemoryStorage) -> None:
    answers_for([1, 2], task(storage)).settle(answers(k1="Ann", k2="Bob"))
    answers_for([3, 4], task(storage)).settle(answers(k3="Cem", k4="Dan"))
    assert known(answers_for([1, 3, 5], task(storage, epoch=2, runs_again=True)).known) == {1: "Ann", 3: "Cem"}
    assert known(answers_for([1, 3, 5], task(storage, epoch=2, batch=4, runs_again=True)).known) == {}


def test_the_answers_of_a_driver_that_woke_up_late_do_not_count_against_those_of_its_successor(
    storage: MemoryStorage,
) -> None:
    answers_for([1], task(storage, epoch=2, runs_again=True)).settle(answers(k1="Ann"))
    answers_for([1], task(storage, epoch=1)).settle(answers(k1="too late"))
    assert known(answers_for([1, 2], task(storage, epoch=3, runs_again=True)).known) == {1: "Ann"}


def test_nan_is_settled_once(storage: MemoryStorage) -> None:
    nan = pl.DataFrame({"id": [math.nan], "name": ["nobody"]}, schema=NOTHING.schema)
    for again in (False, True):
        found = answers_for([math.nan], task(storage, epoch=1 + again, runs_again=again))
        found.settle(nan)
        assert found.known["name"].to_list() == ["nobody"]
    assert len(list(storage.list(ANSWERS))) == 1


def test_without_new_answers_nothing_is_written(storage: MemoryStorage) -> None:
    found = answers_for([1], task(storage))
    found.settle(answers())
    assert list(storage.list(ANSWERS)) == []


def test_answers_are_forgotten_when_their_batch_is_done(storage: MemoryStorage) -> None:
    for batch in (1, 2, 3):
        answers_for([1], task(storage, batch=batch)).settle(answers(k1="Ann"))
    forget_answers(storage, before=3)
    left: list[Any] = [name.split("-")[1] for name in storage.list(ANSWERS)]
    assert left == ["3"]
