"""What runs for sessions: parts that travel, what the state holds, and what it says has changed."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import BEGINNING
from headrace.event_time.strategy import END as END_OF_TIME
from headrace.operators.windows.session_operator import CHAIN, END, FIRST, WHOLE, chained, cut
from headrace.operators.windows.session_windows import FinalSessionOperator, RevisedSessionOperator
from headrace.wheel.codec import decode, encode
from tests.models import session as model
from tests.models.rows import Event
from tests.unit.operators.stored import next_due, stored

SCHEMA = {"user": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us", "UTC")}
plain = hr.session("s", gap="10 microseconds", key="user").agg(n="count(*)", total="sum(amount)")
bounded = hr.session("s", gap="10 microseconds", key="user", max_length="25 microseconds").agg(n="count(*)")
STEPS = {
    "once": plain.late(hr.side_output()),
    "dropping": plain.late(hr.drop()),
    "bounded": bounded.late(hr.side_output()),
    "corrected": plain.late(hr.update_for("30 microseconds")),
    "previewed": plain.emit(hr.on_close(early=hr.after_rows(2))).late(hr.side_output()),
    "discarding": plain.emit(hr.on_update()).panes(hr.discarding()).late(hr.update_for("30 microseconds")),
    "retracting": plain.panes(hr.retracting()).late(hr.update_for("30 microseconds")),
    "keyless": hr.session("s", gap="10 microseconds", key=None).agg(n="count(*)").late(hr.side_output()),
}


def bound(step: Any) -> Any:
    return step.bind(SCHEMA, "at")


def frame(*rows: tuple[str, int]) -> pl.DataFrame:
    users, times = [row[0] for row in rows], [row[1] for row in rows]
    return pl.DataFrame({"user": users, "amount": times, "at": times}, schema={**SCHEMA, "at": pl.Int64()}).cast(
        {"at": SCHEMA["at"]}
    )


def time_bounds(late: int, fire: int | None = None, before: int = BEGINNING) -> TimeBounds:
    return TimeBounds(late, late if fire is None else fire, before)


def nothing(operator: Any) -> pl.DataFrame:
    return pl.DataFrame(schema=operator.state_schema)


def parts(found: pl.DataFrame) -> list[tuple[Any, ...]]:
    return found.select("user", FIRST, pl.col(END) - 10, "n.count").sort("user", FIRST).rows()


def test_rows_closer_than_the_gap_travel_as_one_part() -> None:
    combined = bound(STEPS["once"]).combine(
        frame(("a", 1), ("b", 3), ("a", 10), ("a", 20), ("a", 29)), time_bounds(BEGINNING)
    )
    assert parts(combined.partials) == [("a", 1, 10, 2), ("a", 20, 29, 2), ("b", 3, 3, 1)]
    assert (combined.accepted, combined.late.height, combined.partials[WHOLE].null_count()) == (5, 0, 3)


def test_rows_that_all_lie_within_the_gap_give_the_same_parts_without_being_sorted() -> None:
    operator = bound(STEPS["once"])
    rows = frame(("a", 9), ("b", 3), ("a", 1), ("b", 8))
    wide = pl.concat([rows, frame(("z", 1000))])
    near = operator.combine(rows, time_bounds(BEGINNING)).partials
    far = operator.combine(wide, time_bounds(BEGINNING)).partials
    assert parts(near) == [("a", 1, 9, 2), ("b", 3, 8, 2)] == parts(far)[:2]


def test_with_a_greatest_length_only_rows_of_one_time_travel_as_one_part() -> None:
    combined = bound(STEPS["bounded"]).combine(frame(("a", 1), ("a", 2), ("a", 1), ("b", 1)), time_bounds(BEGINNING))
    assert parts(combined.partials) == [("a", 1, 1, 2), ("a", 2, 2, 1), ("b", 1, 1, 1)]


def test_rows_behind_the_watermark_travel_whole_and_alone() -> None:
    operator = bound(STEPS["once"])
    combined = operator.combine(frame(("a", 4), ("a", 4), ("a", 5), ("a", 6)), time_bounds(5))
    assert parts(combined.partials) == [("a", 4, 4, 1), ("a", 4, 4, 1), ("a", 5, 6, 2)]
    whole = combined.partials.filter(pl.col(WHOLE).is_not_null())[WHOLE].to_list()
    assert [[(row["user"], row["amount"]) for row in each] for each in whole] == [[("a", 4)], [("a", 4)]]
    merged = operator.merge(pl.concat([combined.partials, combined.partials]))
    assert parts(merged) == [("a", 4, 4, 1)] * 4 + [("a", 5, 6, 4)]


def test_of_rows_that_are_only_counted_when_late_just_the_time_travels() -> None:
    operator = bound(STEPS["dropping"])
    assert operator.partial_schema[WHOLE] == pl.List(pl.Struct({"at": SCHEMA["at"]}))
    partials = operator.combine(frame(("a", 4), ("a", 70)), time_bounds(50)).partials
    applied = operator.apply(nothing(operator), partials, time_bounds(50))
    assert applied.late is not None
    assert applied.late.height == 1
    assert operator.side_schemas == {}


@pytest.mark.parametrize("kind", STEPS)
def test_frames_have_the_schemas_that_are_promised_also_after_a_journey(kind: str) -> None:
    operator = bound(STEPS[kind])
    rows = frame(("a", 4), ("a", 60), ("b", 61), ("a", 95))
    for given_rows, bounds in (
        (rows, time_bounds(50)),
        (rows.clear(), time_bounds(50)),
        (rows, time_bounds(BEGINNING)),
    ):
        partials = operator.combine(given_rows, bounds).partials
        assert dict(partials.schema) == dict(operator.partial_schema)
        partials = decode([encode(partials)])
        assert dict(operator.merge(partials).schema) == dict(operator.partial_schema)
        applied = operator.apply(nothing(operator), partials, time_bounds(50, 80, 50))
        state = decode([encode(stored(operator, nothing(operator), applied, time_bounds(50, 80, 50)))])
        assert dict(state.schema) == dict(operator.state_schema) == dict(applied.upserts.schema)
        assert dict(applied.output.schema) == dict(operator.output_schema)
        assert applied.removed.columns == list(operator.identity)
        assert state_after(operator, state, partials.clear(), time_bounds(END_OF_TIME, END_OF_TIME, 80)).is_empty()


def test_the_state_holds_one_row_for_each_open_session() -> None:
    operator = bound(STEPS["once"])
    chance = random.Random(1)
    state = nothing(operator)
    for start in range(0, 1000, 100):
        rows = frame(*((chance.choice("abc"), start + chance.randrange(100)) for _ in range(500)))
        partials = operator.combine(rows, time_bounds(start)).partials
        state = state_after(operator, state, partials, time_bounds(start, start, start - 100))
        assert state.height == 3


def test_with_a_greatest_length_rows_that_time_has_passed_are_one_row_of_the_state() -> None:
    operator = bound(STEPS["bounded"])
    partials = operator.combine(frame(*(("a", time) for time in range(60))), time_bounds(BEGINNING)).partials
    applied = operator.apply(nothing(operator), partials, time_bounds(BEGINNING, 30))
    # [0, 25) is over, [25, 30) is one row, and each time from 30 on is one.
    assert applied.output["n"].to_list() == [25]
    state = stored(operator, nothing(operator), applied, time_bounds(BEGINNING, 30))
    assert state.sort(FIRST).select(FIRST, pl.col(END) - 10).rows()[:2] == [(25, 29), (30, 30)]
    assert state.height == 1 + 30


def test_due_is_the_next_end_and_a_session_is_forgotten_when_its_corrections_end() -> None:
    operator = bound(STEPS["corrected"])
    assert next_due(operator, nothing(operator), time_bounds(0)) == (None, None)
    partials = operator.combine(frame(("a", 5), ("b", 20)), time_bounds(0)).partials
    state = state_after(operator, nothing(operator), partials, time_bounds(0))
    assert next_due(operator, state, time_bounds(0)) == (15, None)
    state = state_after(operator, state, nothing_came(operator), time_bounds(15, 15, 0))
    assert next_due(operator, state, time_bounds(15)) == (30, None)
    for time, before, users in ((30, 15, ["a", "b"]), (45, 30, ["b"]), (60, 45, [])):
        state = state_after(operator, state, nothing_came(operator), time_bounds(time, time, before))
        assert sorted(state["user"]) == users
        assert next_due(operator, state, time_bounds(time)) == (None, None)


def test_previews_by_the_clock_are_due_by_the_clock() -> None:
    operator = bound(plain.emit(hr.on_close(early=hr.every("10 microseconds"))).late(hr.drop()))
    at_23 = TimeBounds(0, 0, 0, 23)
    state = state_after(operator, nothing(operator), operator.combine(frame(("a", 5)), at_23).partials, at_23)
    assert next_due(operator, state, at_23) == (15, 30)


def nothing_came(operator: Any) -> pl.DataFrame:
    return pl.DataFrame(schema=operator.partial_schema)


def state_after(operator: Any, state: pl.DataFrame, partials: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
    return stored(operator, state, operator.apply(state, partials, bounds), bounds)


batches_of_rows = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 15),
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 150)), max_size=12),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("kind", STEPS)
@settings(deadline=None, max_examples=25)
@given(batches=batches_of_rows)
def test_every_row_is_in_one_session_whatever_is_left_to_the_end(
    kind: str, batches: list[tuple[int, int, list[tuple[str, int]]]]
) -> None:
    operator = bound(STEPS[kind])
    state = nothing(operator)
    late, fire, counted, taken = 0, 0, 0, 0
    for further, ahead, rows in batches:
        before, late = fire, max(fire, late + further)
        fire = late + ahead
        bounds = TimeBounds(late, fire, before)
        combined = operator.combine(frame(*rows), bounds)
        applied = operator.apply(state, combined.partials, bounds)
        state = stored(operator, state, applied, bounds)
        assert state.select(operator.identity).is_unique().all()
        # On time for a following step, or known as a correction, or what was said earlier and is taken back.
        fresh = applied.output.filter(pl.col("pane") != "late")
        if "change" in fresh.columns:
            fresh = fresh.filter(~pl.col("change").is_in(["update_before", "delete"]))
        ends = fresh["window"].struct.field("end").cast(pl.Int64)
        assert (ends - 1 >= before).all()
        counted += combined.accepted - (0 if applied.late is None else applied.late.height)
        taken += applied.output["n"].sum() if operator.__class__ is FinalSessionOperator else 0
    at_end = TimeBounds(END_OF_TIME, END_OF_TIME, fire)
    closing = operator.apply(state, nothing_came(operator), at_end)
    assert stored(operator, state, closing, at_end).is_empty()
    if operator.__class__ is FinalSessionOperator:
        assert taken + closing.output["n"].sum() == counted
    else:
        assert isinstance(operator, RevisedSessionOperator)


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-100, 100)), min_size=1, max_size=40),
    gap=st.integers(1, 30),
    longer=st.integers(1, 40),
)
def test_chains_and_cuts_are_the_models_sessions(rows: list[tuple[str | None, int]], gap: int, longer: int) -> None:
    given_parts = pl.DataFrame(
        {"user": [key for key, _ in rows], FIRST: [time for _, time in rows], END: [time + gap for _, time in rows]},
        schema={"user": pl.String(), FIRST: pl.Int64(), END: pl.Int64()},
    )
    chains = chained(given_parts, ["user"])
    for found, length in ((chains, None), (cut(chains, gap + longer, gap), gap + longer)):
        groups = found.group_by("user", CHAIN).agg(pl.col(FIRST).sort()).rows()
        wanted = [
            (key, [event.time for event in session])
            for key in {key for key, _ in rows}
            for session in model.sessions((Event("", time, 0) for each, time in rows if each == key), gap, length)
        ]
        assert sorted(((key, times) for key, _, times in groups), key=str) == sorted(wanted, key=str)


def test_a_part_within_another_does_not_end_a_chain_early() -> None:
    long_and_short = pl.DataFrame({FIRST: [0, 5, 60], END: [65, 16, 70]})
    assert chained(long_and_short, [])[CHAIN].to_list() == [0, 0, 0]


def test_a_chain_may_have_thousands_of_cuts() -> None:
    times = pl.int_range(0, 1_000_000, 10, eager=True)
    found = cut(chained(pl.DataFrame({FIRST: times, END: times + 20}), []), 100, 20)
    assert found.group_by(CHAIN).len()["len"].unique().to_list() == [10]
    assert found[CHAIN].n_unique() == 10_000


def test_the_definition_in_words_and_what_must_stay_the_same() -> None:
    step = hr.session("s", gap="30 minutes", key=["a", "b"], max_length="4 hours").agg(n="count(*)").late(hr.drop())
    said = "hr.session('s', gap='30 minutes', key=['a', 'b'], max_length='4 hours').agg(n='count(*)')"
    assert repr(step) == f"{said}.emit(hr.on_close()).late(hr.drop())"
    assert step.fingerprint == {
        "kind": "session",
        "gap": "30 minutes",
        "max_length": "4 hours",
        "state": "once",
        "key": ["a", "b"],
        "panes": "accumulating",
        "aggregates": {"n": "count(*)"},
    }
    assert STEPS["corrected"].fingerprint["state"] == "revised"
    assert STEPS["once"].state_description == "a row for each key and open session, until the session closes"
    assert STEPS["corrected"].state_description.endswith("until the session closes and 30 microseconds longer")
    assert step.state_description.endswith(
        "until the session closes, and one for each key and time that the watermark has not passed"
    )
