from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.connectors.kafka.positions import Subscription, capped, slices, start_text
from headrace.secrets import Secret

BACKLOG = st.dictionaries(
    st.integers(0, 20).map(lambda number: f"t/{number}"), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
)


@given(BACKLOG, st.integers(1, 10**6))
def test_a_capped_batch_takes_something_of_every_partition_that_has_rows_and_little_more_than_the_cap(
    backlog: dict[str, tuple[int, int]], cap: int
) -> None:
    start = {name: first for name, (first, _) in backlog.items()}
    latest = {name: first + rows for name, (first, rows) in backlog.items()}
    end = capped(start, latest, cap)
    taken = {name: end[name] - start[name] for name in start}
    assert all((taken[name] > 0) == (latest[name] > start[name]) for name in start)
    assert all(end[name] <= latest[name] for name in start)
    assert sum(taken.values()) <= cap + len(start)


@given(BACKLOG, st.integers(1, 10**6))
def test_batch_after_batch_reaches_the_end(backlog: dict[str, tuple[int, int]], cap: int) -> None:
    position = {name: first for name, (first, _) in backlog.items()}
    latest = {name: first + rows % 1000 for name, (first, rows) in backlog.items()}
    for _ in range(20_000):
        if position == latest:
            break
        position = capped(position, latest, max(cap, 20))
    assert position == latest


def test_without_a_cap_everything_is_taken() -> None:
    assert capped({"t/0": 5}, {"t/0": 50, "t/1": 7}, None) == {"t/0": 50, "t/1": 7}


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    pieces = slices({"t/0": 5}, {"t/0": 5, "t/1": 2}, largest=100)
    assert [(piece.partition, piece.first, piece.until) for piece in pieces] == [(1, 0, 2)]


def test_each_partition_gets_a_share_of_the_cap_in_proportion_to_its_lag() -> None:
    assert capped({"t/0": 0, "t/1": 0}, {"t/0": 900, "t/1": 100}, 100) == {"t/0": 90, "t/1": 10}


def test_a_slice_has_no_more_offsets_than_a_task_may_read() -> None:
    pieces = slices({"shop.t/3": 0}, {"shop.t/3": 5}, largest=3)
    assert [(piece.topic, piece.partition) for piece in pieces] == [("shop.t", 3)] * 2
    assert [(piece.first, piece.until) for piece in pieces] == [(0, 3), (3, 5)]


def test_a_partition_that_was_made_anew_is_read_from_its_beginning() -> None:
    pieces = slices({"t/0": 500}, {"t/0": 3}, largest=100)
    assert [(piece.first, piece.until) for piece in pieces] == [(0, 3)]


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "at 1000000"),
        ("1970-01-01T00:00:01Z", "at 1000000"),
        ({"t": {0: 3, 1: 4}}, '{"t/0": 3, "t/1": 4}'),
    ],
)
def test_a_start_is_a_word_a_moment_or_offsets(start: object, text: str) -> None:
    assert start_text(start) == text  # type: ignore[arg-type]


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[START_UNKNOWN\]"):
        start_text(17)  # type: ignore[arg-type]


def test_a_subscription_travels_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2")
    options: dict[str, str | Secret] = {"sasl.username": "ann", "sasl.password": hr.secret(env="BROKER_PASSWORD")}
    subscription = Subscription("b:9092", ("t",), False, "earliest", "fail", tuple(options.items()))
    assert "hunter2" not in repr(subscription)
    sent = pickle.dumps(subscription)
    assert b"hunter2" not in sent
    again = pickle.loads(sent)
    assert again == subscription
    assert dict(again.options)["sasl.password"] == Secret(env="BROKER_PASSWORD")
    assert again.client_options()["sasl.password"] == "hunter2"
