"""Sessions: any split, any partitions, a crash anywhere, the model's answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import at, batch, play, watermark
from headrace.testing.elements import At
from tests.models import session as model
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES
from tests.models.rows import START, Event, end_of_rows, make_input, micros, split

ROWS = 200
MINUTE = 60_000_000
END = START + timedelta(days=1)
OWN_GAPS = hr.session("s", gap="4 minutes", gap_column="pause", key="account")


def own_gap(event: Event) -> int:
    """Up to four minutes, and that where the amount is missing, beyond it or not positive: a microsecond."""
    if event.amount is None:
        return 4 * MINUTE
    return max(1, min(4 * MINUTE, event.amount * 3_000_000))


def with_pauses(rows: list[At]) -> list[At]:
    """The rows with a gap of their own, which may be too long, not positive, or missing."""
    return [replace(each, columns={**each.columns, "pause": pause(each.columns["amount"])}) for each in rows]


def pause(amount: int | None) -> timedelta | None:
    return None if amount is None else timedelta(seconds=3 * amount)


KINDS: dict[str, tuple[Any, model.Gap, int | None]] = {
    "session": (hr.session("s", gap="2 minutes", key="account"), 2 * MINUTE, None),
    "keyless": (hr.session("s", gap="15 seconds", key=None), MINUTE // 4, None),
    "max_length": (hr.session("s", gap="2 minutes", key="account", max_length="5 minutes"), 2 * MINUTE, 5 * MINUTE),
    "keyless max_length": (
        hr.session("s", gap="30 seconds", key=None, max_length="1 minute"),
        MINUTE // 2,
        MINUTE,
    ),
    "own gaps": (OWN_GAPS, own_gap, None),
}
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in AGGREGATES)


def place(row: dict[str, Any]) -> model.Place:
    return row.get("account"), micros(row["window"]["start"]), micros(row["window"]["end"])


def without_the_end(found: model.Answer) -> model.Answer:
    """Without the session of the rows that close all others."""
    return {session: each for session, each in found.items() if session[1] < micros(END)}


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(seed=seeds, batches=places, crashes=places, partitions=st.integers(1, 4))
def test_rows_within_the_bound_give_each_session_once(
    kind: str, seed: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    step, gap, max_length = KINDS[kind]
    given_rows = make_input(seed, rows=ROWS, disorder=900, partitions=partitions)
    time = hr.event_time("at", out_of_order="15 minutes", partition="partition")
    elements = [*split(with_pauses(given_rows.rows), batches, crashes), *end_of_rows(pause=None)]
    played = play(step.agg(**AGGREGATES).late(hr.side_output()), *elements, event_time=time)
    truth = model.answer(given_rows.events, gap, max_length, keyed=bool(step.key))
    assert without_the_end({place(row): values(row) for row in played.main}) == truth
    assert {(row["pane"], row["revision"]) for row in played.main} == {("on_time", 0)}
    assert all(row["session_id"] == row["window"]["start"] for row in played.main)
    assert played.late == []


EMISSIONS = [
    hr.on_close(),
    hr.on_update(),
    hr.on_close(early=hr.after_rows(3)),
    hr.on_close(early=hr.every("2 minutes", time="event")),
    hr.on_close(early=hr.every("10 seconds")),
]


@pytest.mark.parametrize("kind", ["session", "keyless", "own gaps"])
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.discarding(), hr.retracting()], ids=repr)
@examples(6)
@given(
    seed=seeds,
    batches=places,
    crashes=places,
    emission=st.sampled_from(EMISSIONS),
    late=st.sampled_from([hr.side_output(), hr.update_for("3 days")]),
)
def test_previews_corrections_and_merges_come_to_the_answer(
    kind: str, panes: Any, seed: int, batches: set[int], crashes: set[int], emission: Any, late: Any
) -> None:
    step, gap, _ = KINDS[kind]
    late_rows = late.correctable > 0
    given_rows = make_input(seed, rows=ROWS, disorder=3600 if late_rows else 900, partitions=2)
    elements = [*split(with_pauses(given_rows.rows), batches, crashes), *end_of_rows(pause=None)]
    time = hr.event_time("at", out_of_order="0 seconds" if late_rows else "15 minutes")
    chosen = step.agg(**AGGREGATES).emit(emission).panes(panes).late(late)
    played = play(chosen, *elements, event_time=time)
    assert played.late == []
    truth = model.answer(given_rows.events, gap, keyed=bool(step.key))
    found = last_of_each(played.main) if not chosen.retracts else table(played.main, panes.kind)
    assert without_the_end(found) == truth


def last_of_each(rows: list[dict[str, Any]]) -> model.Answer:
    return {place(row): values(row) for row in rows}


def table(rows: list[dict[str, Any]], panes: str) -> model.Answer:
    """What a reader knows at the end who follows every change of every session."""
    stories: defaultdict[tuple[Any, datetime], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["session_id"] < END:
            stories[row.get("account"), row["session_id"]].append(row)
    found: model.Answer = {}
    for story in stories.values():
        final = followed(story, panes)
        if final is not None:
            assert final[0] not in found
            found[final[0]] = final[1]
    return found


def followed(story: list[dict[str, Any]], panes: str) -> tuple[model.Place, tuple[Any, ...]] | None:
    """One session: where it is at last and what is known of it, or that it has been deleted."""
    current: list[dict[str, Any]] = []
    revision = -1
    for row in story:
        change = row["change"]
        if change == "update_before":
            assert panes == "retracting"
            assert row == {**current[-1], "change": "update_before"}
            continue
        if change == "delete":
            assert row is story[-1]
            assert {**row, **given_of(current[-1])} == {**current[-1], "change": "delete"}
            assert values(row) == together(current, panes)
            return None
        assert row["revision"] == revision + 1
        assert (change == "insert") == (row["revision"] == 0 or not current)
        revision = row["revision"]
        current.append(row)
    assert story[-1]["pane"] != "early"
    return place(current[-1]), together(current, panes)


def given_of(row: dict[str, Any]) -> dict[str, Any]:
    """What the row says of its session's rows: of discarding panes a deletion takes back all together."""
    return {name: row[name] for name in AGGREGATES}


def together(rows: list[dict[str, Any]], panes: str) -> tuple[Any, ...]:
    """What the panes of a session say together."""
    if panes != "discarding":
        return values(rows[-1])

    def known(name: str) -> list[int]:
        return [row[name] for row in rows if row[name] is not None]

    return (
        sum(known("n")),
        sum(known("known")),
        sum(known("spent")) if known("spent") else None,
        min(known("least"), default=None),
        max(known("most"), default=None),
    )


@pytest.mark.parametrize("own", [False, True], ids=["one gap", "own gaps"])
@examples(12)
@given(
    batches=st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 100), max_size=6)), min_size=1, max_size=8),
    late=st.sampled_from([hr.side_output(), hr.drop(), hr.update_for("20 seconds")]),
)
def test_which_rows_are_late_is_what_the_model_says(own: bool, batches: list[tuple[int, list[int]]], late: Any) -> None:
    """Watermarks by hand, each a few seconds further; rows at any second of a hundred, so most are late."""
    session = hr.session("s", gap="10 seconds", key="account", gap_column="pause" if own else None)
    step = session.agg(n="count(*)", spent="sum(amount)").late(late)
    second, base = 1_000_000, micros(START)

    def gap(row: Event) -> int:
        return (1 + (row.amount or 0) * 7 % 10) * second if own else 10 * second

    watched = model.Watched(gap, late.correctable)
    elements: list[Any] = [at(START, account="other", amount=0, pause=timedelta(0))]
    passed, number = 0, 0
    for further, times in batches:
        passed += further
        elements.append(watermark(moment(passed)))
        watched.batch(base + passed * second, [])
        rows = []
        for time in times:
            number += 1
            rows.append(Event("a", base + time * second, number))
            lasting = timedelta(microseconds=gap(rows[-1]))
            elements.append(at(moment(time), account="a", amount=number, pause=lasting))
        elements.append(batch())
        watched.batch(base + passed * second, rows)
    played = play(step, *elements, watermark(moment(10_000)))
    watched.batch(base + 10_000 * second, [])
    wanted = sorted((rows_of(session), model.end_of(session, gap)) for session in watched.over)
    mine = [row for row in played.main if row["account"] == "a"]
    last = {row["session_id"]: row for row in mine}
    assert late.correctable or len(last) == len(mine)
    over = [row for row in last.values() if row.get("change") != "delete"]
    assert sorted(((row["n"], row["spent"]), micros(row["window"]["end"])) for row in over) == wanted
    too_late = sorted(row.amount for row in watched.late if row.amount is not None)
    assert sorted(row["amount"] for row in played.late) == (too_late if late.keeps_rows else [])


def rows_of(session: list[Event]) -> tuple[int, int]:
    return len(session), sum(row.amount or 0 for row in session)


def moment(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


@examples(12)
@given(
    batches=st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 100), max_size=6)), min_size=1, max_size=8)
)
def test_with_a_greatest_length_every_row_is_in_one_session_or_late(batches: list[tuple[int, list[int]]]) -> None:
    step = (
        hr.session("s", gap="10 seconds", key="account", max_length="15 seconds")
        .agg(n="count(*)", first="min(at)", last="max(at)", all=hr.collect_list("amount", at_most=100))
        .late(hr.side_output())
    )
    elements: list[Any] = [at(START, account="other", amount=0)]
    passed, number = 0, 0
    for further, times in batches:
        passed += further
        elements.append(watermark(moment(passed)))
        for time in times:
            number += 1
            elements.append(at(moment(time), account="a", amount=number))
        elements.append(batch())
    played = play(step, *elements, watermark(moment(10_000)))
    mine = [row for row in played.main if row["account"] == "a"]
    assert sorted([*(each for row in mine for each in row["all"]), *(row["amount"] for row in played.late)]) == list(
        range(1, number + 1)
    )
    for row in mine:
        assert row["window"]["start"] == row["first"]
        assert (row["last"] - row["first"]).total_seconds() < 15
        assert (row["window"]["end"] - row["first"]).total_seconds() <= 15
    assert len({row["session_id"] for row in mine}) == len(mine)
