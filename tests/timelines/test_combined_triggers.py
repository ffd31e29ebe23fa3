"""Triggers made of others: transcripts of Beam's definitions, and any of them in any split against its machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import DefinitionError
from headrace.operators.windows.emission import AccumulationMode
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark
from tests.models import beam_triggers as beam
from tests.models.examples import examples
from tests.models.global_window import Trigger, global_window
from tests.models.rows import PARTITIONS
from tests.timelines.test_counting_any_split import MINUTE, keys, lengths, ordered_input, places, played, seeds

two, three = hr.after_rows(2), hr.after_rows(3)
sold, returned = hr.when("kind = 's'"), hr.when("kind = 'r'")
once_sold: Any = hr.once(sold)
at_close: Any = hr.on_close()
tenth, hour = hr.every("10 minutes", time="event"), hr.every("1 hour", time="event")

# Rows by their minutes after ten, with an s where something is sold and an r where it is returned; and the firings: the
# row with which each ends (and fires), or the time at which it fires, and how many rows are new.
TRANSCRIPTS: list[tuple[str, Any, str, str]] = [
    ("all: the count comes first", hr.all_of(two, sold), "1 2 3 4s", "4+:4"),
    ("all: the condition comes first and is remembered", hr.all_of(two, sold), "1s 2", "2+:2"),
    ("all: both at once", hr.all_of(two, sold), "1 2s", "2+:2"),
    ("all: never, without one of them", hr.all_of(two, sold), "1 2 3 4", ""),
    ("all: begins anew after it fired", hr.all_of(two, sold), "1s 2 3 4 5s 6s 7s", "2+:2 5+:3 7+:2"),
    ("all: rows and time, the rows are last", hr.all_of(three, tenth), "1 2 13 14", "13+:3"),
    ("all: rows and time, the time is last", hr.all_of(two, tenth), "1 2 3", "10:3"),
    ("all: rows and time, which passed long ago", hr.all_of(three, tenth), "1 12 13", "13+:3"),
    ("all: time alone does not do", hr.all_of(two, tenth), "1", ""),
    ("all: two times, the later counts", hr.all_of(tenth, hr.every("15 minutes", time="event")), "1 12", "15:2"),
    ("all: two conditions in any order", hr.all_of(sold, returned), "1r 2 3s 4s 5r", "3+:3 5+:2"),
    ("any: the count", hr.any_of(three, sold), "1 2 3 4", "3+:3"),
    ("any: the condition", hr.any_of(three, sold), "1 2s 3", "2+:2"),
    ("any: the condition lets the count begin anew", hr.any_of(three, sold), "1 2s 3 4 5 6", "2+:2 5+:3"),
    ("any: both at once fire once", hr.any_of(two, sold), "1 2s 3 4", "2+:2 4+:2"),
    ("any: time, when rows are few", hr.any_of(three, tenth), "1 2 11 12 13", "10:2 13+:3"),
    ("any: after the rows, time has nothing new", hr.any_of(two, tenth), "1 2", "2+:2"),
    ("any of times: the earlier", hr.any_of(tenth, hour), "1 2", "10:2"),
    ("any within all", hr.all_of(hr.any_of(sold, returned), two), "1r 2 3 4s", "2+:2 4+:2"),
    ("all within any", hr.any_of(hr.all_of(sold, returned), three), "1s 2r 3 4 5 6s", "2+:2 5+:3"),
    ("once: the first time only", hr.once(two), "1 2 3 4 5", "2+:2"),
    ("once: all of them, once", hr.once(hr.all_of(two, sold)), "1 2 3s 4 5s", "3+:3"),
    ("once: any of them, once", hr.once(hr.any_of(two, sold)), "1s 2 3 4", "1+:1"),
    ("then: one row, then threes", hr.then(hr.once(hr.after_rows(1)), three), "1 2 3 4 5 6 7", "1+:1 4+:3 7+:3"),
    ("then: each begins where the one before fired", hr.then(hr.once(two), sold), "1s 2 3 4s 5s", "2+:2 4+:2 5+:1"),
    ("then: ends with the last, if that is once", hr.then(hr.once(sold), hr.once(two)), "1s 2 3 4 5", "1+:1 3+:2"),
    ("then: three stages", hr.then(hr.once(sold), hr.once(returned), two), "1r 2s 3s 4r 5 6", "2+:2 4+:2 6+:2"),
    ("then: time after rows", hr.then(hr.once(three), tenth), "1 2 3 4 12", "3+:3 10:1 20:1"),
    ("then: waits for its first stage", hr.then(hr.once(sold), two), "1 2 3 4", ""),
]  # fmt: skip


@pytest.mark.parametrize("at_a_time", [1, 100], ids=["row by row", "together"])
@pytest.mark.parametrize(("title", "trigger", "rows", "fired"), TRANSCRIPTS, ids=[each[0] for each in TRANSCRIPTS])
def test_a_trigger_fires_as_beam_defines_it(title: str, trigger: Any, rows: str, fired: str, at_a_time: int) -> None:
    step = hr.global_window("w", key=None, ttl="1 day").agg(n="count(*)").emit(trigger).panes(hr.discarding())
    elements: list[Any] = []
    for number, text in enumerate(rows.split(), start=1):
        elements.append(at(f"10:{int(text.rstrip('sr')):02}", kind=text[-1] if text[-1] in "sr" else "-"))
        if number % at_a_time == 0:
            elements += [watermark(f"10:{int(text.rstrip('sr')):02}:00.000001"), crash()]
    found = play(step.late(hr.side_output()), *elements, watermark("10:59"))
    said = [(each["window"]["end"], each["n"]) for each in found.main]
    assert " ".join(f"{end.minute}{'+' if end.microsecond else ''}:{n}" for end, n in said) == fired, title
    assert {each["pane"] for each in found.main} <= {"early"}


Both = tuple[Any, Callable[[], beam.Machine]]


def _large(event: Any) -> bool:
    return event.amount is not None and event.amount > 50


def _small(event: Any) -> bool:
    return event.amount is not None and event.amount < -30


LEAVES: list[Both] = [
    (hr.after_rows(1), lambda: beam.AfterCount(1)),
    (hr.after_rows(4), lambda: beam.AfterCount(4)),
    (hr.when("amount > 50"), lambda: beam.Matches(_large)),
    (hr.when("amount < -30"), lambda: beam.Matches(_small)),
    (hr.every("3 minutes", time="event"), lambda: beam.AfterBoundary(3 * MINUTE)),
    (hr.every("5 minutes", time="event"), lambda: beam.AfterBoundary(5 * MINUTE)),
]


def _composed(parts: list[Both], public: Any, machine: type[beam.Composite]) -> Both:
    return public(*(each for each, _ in parts)), lambda: machine(*(make() for _, make in parts))


def _several(parts: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    some = st.lists(parts, min_size=2, max_size=3)
    return st.one_of(
        some.map(lambda found: _composed(found, hr.all_of, beam.AfterAll)),
        some.map(lambda found: _composed(found, hr.any_of, beam.AfterFirst)),
    )


repeating = st.recursive(st.sampled_from(LEAVES), _several, max_leaves=4)
again = repeating.map(lambda each: (each[0], lambda: beam.Repeatedly(each[1]())))
combined = _several(repeating).map(lambda each: (each[0], lambda: beam.Repeatedly(each[1]())))
only_once = repeating.map(lambda each: (hr.once(each[0]), each[1]))
in_order = st.tuples(st.lists(only_once, min_size=1, max_size=2), st.one_of(again, only_once)).map(
    lambda found: _composed([*found[0], found[1]], hr.then, beam.AfterEach)
)


@keys
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
@examples(15)
@given(
    both=st.one_of(combined, only_once, in_order),
    seed=seeds,
    batches=places,
    crashes=places,
    partitions=st.integers(1, PARTITIONS),
    ties=st.booleans(),
    ttl=lengths,
)
def test_any_trigger_fires_as_its_machine_whatever_the_batches(
    keyed: bool, panes: AccumulationMode, both: Both, seed: int, batches: set[int], crashes: set[int], partitions: int,
    ties: bool, ttl: int,
) -> None:  # fmt: skip
    trigger, machine = both
    given_rows = ordered_input(seed, partitions, ties=ties, keyed=keyed)
    step = hr.global_window("w", key="account" if keyed else None, ttl=f"{ttl} minutes").emit(trigger).panes(panes)
    more = ("pane", "revision", *(("change",) if panes.kind == "retracting" else ()))
    found = played(step, given_rows, batches, crashes, *more)
    in_words = Trigger(machine=machine)
    wanted = global_window(given_rows.events, trigger=in_words, ttl=ttl * MINUTE, panes=panes.kind, keyed=keyed)
    assert found == {account: rows for account, rows in wanted.items() if rows}


@pytest.mark.spark
def test_time_alone_fires_what_waits_for_it_after_a_crash() -> None:
    step = hr.global_window("w", key="id", ttl="1 day").agg(n="count(*)").emit(hr.all_of(two, hour))
    timeline(
        step.late(hr.side_output()),
        at("10:01", id="a"),
        at("10:02", id="b"),
        watermark("10:05"),
        crash(),
        at("10:06", id="a"),
        watermark("10:30"),
        expect(),
        crash(),
        watermark("11:00"),
        expect(row(id="a", window="10:01/11:00", n=2, pane="early", revision=0)),
        at("11:30", id="b"),  # an hour has passed for it already
        batch(),
        watermark("11:31"),
        expect(row(id="b", window="10:02/11:30:00.000001", n=2, pane="early", revision=0)),
    )


@pytest.mark.spark
def test_only_at_the_end_a_global_window_is_emitted_when_its_key_expires() -> None:
    visits = hr.global_window("visits", key="id", ttl="1 hour").agg(n="count(*)").emit(hr.on_close())
    days = hr.tumbling("days", size="1 day", key=None).agg(visits="count(*)", longest="max(n)")
    step, per_day = visits.late(hr.side_output()), days.late(hr.side_output())
    rows = at("10:00", id="a"), batch(), at("10:59", id="a"), at("10:30", id="b"), crash(), watermark("11:30")
    timeline(
        step,
        *rows,
        expect(row(id="b", window="10:30/11:30", n=1, pane="on_time", revision=0)),
        watermark("11:59"),
        expect(row(id="a", window="10:00/11:59", n=2, pane="on_time", revision=0)),
    )
    timeline((step, per_day), *rows, watermark("2026-01-02T01:00"), batch(), expect(visits=2, longest=2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hr.all_of(two), "needs at least two"),
        (lambda: hr.any_of(), "needs at least two"),
        (lambda: hr.any_of(two, once_sold), "not a trigger that fires again and again"),
        (lambda: hr.once(once_sold), "not a trigger"),
        (lambda: hr.all_of(two, at_close), "not a trigger"),
        (lambda: hr.then(two, sold), "never ends"),
        (lambda: hr.then(hr.once(two)), "needs at least two"),
        (lambda: hr.then(hr.once(two), at_close), "not a trigger"),
    ],
)
def test_what_makes_no_trigger_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[TRIGGERS_INVALID\].*{said}"):
        make()


def test_no_part_of_a_trigger_fires_by_the_clock() -> None:
    with pytest.raises(DefinitionError, match=r"\[TRIGGER_BY_CLOCK\]"):
        hr.global_window("w", key="id", ttl="1 day").emit(hr.then(hr.once(two), hr.every("1 hour")))


def test_a_combined_trigger_is_printed_as_it_is_written() -> None:
    trigger = hr.then(hr.once(hr.any_of(two, sold)), hr.all_of(three, hour))
    step = hr.global_window("w", key="id", ttl="1 day").agg(n="count(*)").emit(trigger)
    assert ".emit(hr.then(hr.once(hr.any_of(hr.after_rows(2), hr.when(\"kind = 's'\"))), hr.all_of(" in repr(step)
    assert repr(hr.global_window("w", key="id", ttl="1 day").emit(hr.on_close())).endswith(".emit(hr.on_close())")
