"""Counting and global windows: any split, any partitions, a crash anywhere, the model's answer in the model's order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.windows.emission import AccumulationMode
from headrace.testing import play
from tests.models.counting import Results, counting
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES
from tests.models.global_window import Trigger, global_window
from tests.models.rows import PARTITIONS, Input, end_of_rows, make_input, micros, split

ROWS = 120
MINUTE = 60_000_000
TRIGGERS: dict[str, tuple[Any, Trigger]] = {
    "after rows": (hr.after_rows(4), Trigger(rows=4)),
    "after each row": (hr.after_rows(1), Trigger(rows=1)),
    "when": (
        hr.when("amount > 50"),
        Trigger(condition=lambda event: event.amount is not None and event.amount > 50),
    ),
    "every": (hr.every("3 minutes", time="event"), Trigger(every=3 * MINUTE)),
}
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)
lengths = st.sampled_from([1, 2, 3, 7, 60])
keys = pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])


def ordered_input(seed: int, partitions: int, *, ties: bool, keyed: bool) -> Input:
    """Rows of one time are in one partition, in which they keep their order; or no two rows have the same time."""
    made = make_input(seed, rows=ROWS, disorder=900, partitions=partitions)
    events, rows = [], []
    for number, (event, row) in enumerate(zip(made.events, made.rows, strict=True)):
        time = event.time // MINUTE * MINUTE if ties else event.time + number
        partition = row.partition if not ties else ord(event.account) % partitions if keyed else 0
        events.append(replace(event, time=time))
        rows.append(replace(row, time=time, partition=partition))
    return Input(events, rows)


def played(step: Any, given_rows: Input, batches: set[int], crashes: set[int], *beside: str) -> Results:
    """What left for each account, in order."""
    # The bound is a minute longer than the disorder, because tied rows are moved to the beginning of their minute.
    time = hr.event_time("at", out_of_order="16 minutes", partition="partition")
    elements = [*split(given_rows.rows, batches, crashes), *end_of_rows()]
    found = play(step.agg(**AGGREGATES).late(hr.side_output()), *elements, event_time=time)
    assert found.late == []
    results: Results = defaultdict(list)
    for row in found.main:
        window = (micros(row["window"]["start"]), micros(row["window"]["end"]))
        results[row.get("account")].append((*window, *(row[name] for name in (*AGGREGATES, *beside))))
    return dict(results)


@keys
@examples(10)
@given(
    seed=seeds,
    batches=places,
    crashes=places,
    partitions=st.integers(1, PARTITIONS),
    ties=st.booleans(),
    rows=st.integers(1, 9),
    ttl=lengths,
)
def test_every_so_many_rows_are_a_window_whatever_the_batches(
    keyed: bool, seed: int, batches: set[int], crashes: set[int], partitions: int, ties: bool, rows: int, ttl: int
) -> None:
    given_rows = ordered_input(seed, partitions, ties=ties, keyed=keyed)
    step = hr.counting("w", rows=rows, key="account" if keyed else None, ttl=f"{ttl} minutes")
    found = played(step, given_rows, batches, crashes)
    assert found == counting(given_rows.events, rows=rows, ttl=ttl * MINUTE, keyed=keyed)


@examples(5)
@given(seed=seeds, batches=places, crashes=places, rows=st.integers(1, 9))
def test_keys_that_are_kept_for_ever_fill_their_windows_whatever_the_batches(
    seed: int, batches: set[int], crashes: set[int], rows: int
) -> None:
    given_rows = ordered_input(seed, 2, ties=True, keyed=True)
    found = played(hr.counting("w", rows=rows, key="account", keep_forever=True), given_rows, batches, crashes)
    assert found == counting(given_rows.events, rows=rows, ttl=None)


@keys
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
@examples(6)
@given(
    seed=seeds,
    batches=places,
    crashes=places,
    partitions=st.integers(1, PARTITIONS),
    ties=st.booleans(),
    ttl=lengths,
)
def test_a_trigger_fires_at_the_same_rows_with_the_same_results_whatever_the_batches(
    keyed: bool,
    trigger: str,
    panes: AccumulationMode,
    seed: int,
    batches: set[int],
    crashes: set[int],
    partitions: int,
    ties: bool,
    ttl: int,
) -> None:
    given_rows = ordered_input(seed, partitions, ties=ties, keyed=keyed)
    rule, in_words = TRIGGERS[trigger]
    step = hr.global_window("w", key="account" if keyed else None, ttl=f"{ttl} minutes").emit(rule).panes(panes)
    more = ("pane", "revision", *(("change",) if panes.kind == "retracting" else ()))
    found = played(step, given_rows, batches, crashes, *more)
    wanted = global_window(given_rows.events, trigger=in_words, ttl=ttl * MINUTE, panes=panes.kind, keyed=keyed)
    assert found == {account: rows for account, rows in wanted.items() if rows}
