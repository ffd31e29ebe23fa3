"""Sessions with a greatest length: where they are cut, and that batches do not matter."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, row, timeline, watermark
from headrace.testing.elements import At, Element

visits = hr.session("visits", gap="30 minutes", key="visitor", max_length="1 hour").agg(
    clicks="count(*)", spent="sum(amount)"
)
kept = visits.late(hr.side_output())


def click(time: str, amount: int = 1, **more: Any) -> At:
    return at(time, visitor="a", amount=amount, **more)


def test_a_row_exactly_the_greatest_length_after_the_first_begins_another_session() -> None:
    timeline(
        kept,
        *(click(f"10:{minute:02d}") for minute in (0, 20, 40)),
        click("10:59:59.999999", 2),
        click("11:00", 4),
        click("11:10", 8),
        watermark("11:40"),
        expect(
            row(visitor="a", window="10:00/11:00", session_id="10:00", clicks=4, spent=5, pane="on_time", revision=0),
            row(visitor="a", window="11:00/11:40", session_id="11:00", clicks=2, spent=12, pane="on_time", revision=0),
        ),
    )


def test_a_session_ends_a_gap_behind_its_last_row_but_not_behind_its_greatest_length() -> None:
    timeline(
        kept,
        click("10:00"),
        click("10:20"),
        click("10:45"),
        at("10:00", visitor="b", amount=1),
        at("10:29", visitor="b", amount=1),
        watermark("12:00"),
        expect(
            row(visitor="a", window="10:00/11:00", clicks=3),
            row(visitor="b", window="10:00/10:59", clicks=2),
        ),
    )


def test_a_key_that_never_rests_is_emitted_at_every_greatest_length() -> None:
    minutes = [f"{10 + minute // 60}:{minute % 60:02d}" for minute in range(0, 180, 10)]
    timeline(
        kept,
        *(element for minute in minutes for element in (click(minute), batch())),
        watermark("10:59:59.999999"),
        expect(),
        watermark("11:00"),
        expect(visitor="a", window="10:00/11:00", clicks=6),
        watermark("13:00"),
        expect(
            row(visitor="a", window="11:00/12:00", clicks=6),
            row(visitor="a", window="12:00/13:00", clicks=6),
        ),
    )


def test_rows_that_come_before_others_move_the_cuts_behind_them() -> None:
    timeline(
        kept,
        *(click(f"{11 + minute // 60}:{minute % 60:02d}") for minute in range(0, 120, 20)),
        batch(),
        click("10:50", 8),
        crash(),
        batch(),
        watermark("14:00"),
        expect(
            row(visitor="a", window="10:50/11:50", clicks=4, spent=11),
            row(visitor="a", window="12:00/13:00", clicks=3, spent=3),
        ),
    )


def test_a_cut_begins_with_the_first_row_behind_it_not_with_its_own_moment() -> None:
    timeline(
        kept,
        *(click(time) for time in ("10:00", "10:25", "10:50", "11:07", "11:30", "11:55", "12:06", "12:07")),
        watermark("15:00"),
        expect(
            row(visitor="a", window="10:00/11:00", clicks=3),
            row(visitor="a", window="11:07/12:07", clicks=4),
            row(visitor="a", window="12:07/12:37", clicks=1),
        ),
    )


def test_one_watermark_may_pass_many_cuts() -> None:
    hours = range(2, 22)
    timeline(
        kept,
        *(click(f"{hour:02d}:{minute}") for hour in hours for minute in ("00", "15", "30", "45")),
        watermark("23:00"),
        expect(*(row(visitor="a", window=f"{hour:02d}:00/{hour + 1:02d}:00", clicks=4) for hour in hours)),
    )


def test_a_row_of_a_session_that_was_cut_and_is_over_is_late() -> None:
    timeline(
        kept,
        *(click(f"10:{minute:02d}") for minute in (0, 20, 25)),
        watermark("10:56"),
        expect(visitor="a", window="10:00/10:55", clicks=3),
        click("10:20", 2),
        click("10:27", 2),
        at("10:26", visitor="b", amount=2),
        batch(),
        expect(visitor="b", amount=2, late_by=late_by("30 minutes"), output="late"),
        watermark("12:00"),
        expect(visitor="a", window="10:20/10:57", clicks=2, spent=4),
    )


OPEN_FROM_10_40: tuple[Element, ...] = (
    *(at(f"{time}", visitor=visitor, amount=1) for visitor in "ab" for time in ("10:40", "11:05", "11:25")),
    watermark("11:29"),
)


def test_a_row_behind_the_watermark_joins_an_open_session_unless_that_becomes_too_long() -> None:
    timeline(
        kept,
        *OPEN_FROM_10_40,
        at("10:30", visitor="a", amount=2),
        # From here to 11:25 is more than an hour, and a session of this row alone is over.
        at("10:20", visitor="b", amount=2),
        batch(),
        expect(visitor="b", amount=2, late_by=late_by("1 hour 9 minutes"), output="late"),
        watermark("11:30"),
        expect(visitor="a", window="10:30/11:30", clicks=4, spent=5),
        watermark("12:00"),
        expect(visitor="b", window="10:40/11:40", clicks=3, spent=3),
    )


@pytest.mark.spark
def test_a_session_that_begins_where_one_began_that_is_over_has_an_id_of_its_own() -> None:
    together = (click("10:08", 2), click("10:30", 4))
    timeline(
        kept,
        click("10:00", note="long over"),
        watermark("10:40"),
        expect(visitor="a", window="10:00/10:30", session_id="10:00"),
        # By itself the first of the two is over, so what begins with it has the first moment that is not.
        *together,
        batch(),
        crash(),
        watermark("11:00"),
        expect(visitor="a", window="10:08/11:00", session_id="10:10:00.000001", clicks=2),
        *together,
        click("10:35", 8),
        batch(),
        expect(output="late"),
        watermark("11:05"),
        expect(visitor="a", window="10:08/11:05", session_id="10:30:00.000001", clicks=3, spent=14),
    )


def test_a_row_with_which_an_open_session_would_be_over_already_is_late_for_it() -> None:
    timeline(
        kept,
        *OPEN_FROM_10_40,
        at("10:29", visitor="a", amount=2),
        at("10:29:00.000001", visitor="b", amount=2),
        batch(),
        expect(visitor="a", amount=2, late_by=late_by("1 hour"), output="late"),
        watermark("12:00"),
        expect(
            row(visitor="a", window="10:40/11:40", clicks=3, spent=3),
            row(visitor="b", window="10:29:00.000001/11:29:00.000001", clicks=4, spent=5),
        ),
    )


@pytest.mark.spark
def test_sessions_with_a_greatest_length_survive_crashes() -> None:
    timeline(
        kept,
        click("10:00"),
        crash(),
        batch(),
        click("10:20"),
        click("10:50"),
        click("11:10"),
        crash(),
        batch(),
        watermark("10:30"),
        crash(),
        click("10:40", 4),
        crash(),
        batch(),
        watermark("11:05"),
        expect(visitor="a", window="10:00/11:00", clicks=4, spent=7),
        crash(),
        click("11:06", 8),
        crash(),
        batch(),
        watermark("11:40"),
        expect(visitor="a", window="11:06/11:40", clicks=2, spent=9),
        expect(output="late"),
    )


def test_sessions_with_a_greatest_length_before_1970_and_without_a_key() -> None:
    timeline(
        hr.session("s", gap="30 minutes", key=None, max_length="1 hour").agg(n="count(*)").late(hr.side_output()),
        *(at(f"1969-12-31T23:{minute:02d}", visitor="a") for minute in (0, 20, 40)),
        at("1970-01-01T00:00", visitor="b"),
        watermark("1970-01-01T01:00"),
        expect(
            row(window="1969-12-31T23:00/1970-01-01T00:00", n=3),
            row(window="1970-01-01T00:00/1970-01-01T00:30", n=1),
        ),
    )


@pytest.mark.parametrize(
    "step",
    [
        visits.late(hr.update_for("1 hour")),
        visits.emit(hr.on_update()).late(hr.drop()),
        visits.emit(hr.on_close(early=hr.every("1 minute"))).late(hr.drop()),
        visits.panes(hr.retracting()).late(hr.drop()),
        visits.panes(hr.discarding()).late(hr.drop()),
    ],
)
def test_sessions_with_a_greatest_length_are_emitted_once(step: object) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[SESSION_LENGTH_EMITTED_ONCE\] window 'visits'"):
        timeline(step, click("10:00"))


def test_a_greatest_length_that_is_not_longer_than_the_gap_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[SESSION_LENGTH_WITHIN_GAP\] window 's': max_length='1 minute'"):
        hr.session("s", gap="1 minute", key="a", max_length="1 minute")
    with pytest.raises(hr.DefinitionError, match=r"\[DURATION_NOT_POSITIVE\] max_length"):
        hr.session("s", gap="1 minute", key="a", max_length="-1 minute")
