"""Days, weeks and months across both changes of daylight saving: any split, any partitions, a crash anywhere."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.durations import microseconds
from headrace.testing import clock, play
from tests.models import fixed_windows as fixed
from tests.models.calendar_windows import calendar
from tests.models.examples import examples
from tests.models.fixed_windows import AGGREGATES
from tests.models.moves import Move, moves, played
from tests.models.rows import end_of_rows, make_input, micros, split
from tests.models.watched_windows import Place, Watched

ROWS = 40
HOUR = 3600
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
CHANGES = {
    (BERLIN, "spring"): datetime(2026, 3, 29, 1, tzinfo=UTC),
    (BERLIN, "autumn"): datetime(2026, 10, 25, 1, tzinfo=UTC),
    (NEW_YORK, "spring"): datetime(2026, 3, 8, 7, tzinfo=UTC),
    (NEW_YORK, "autumn"): datetime(2026, 11, 1, 6, tzinfo=UTC),
}
"""When clocks change."""
KINDS = [
    ("1 day", BERLIN, "spring", "0 hours"),
    # Two o'clock is the hour that is left out in spring and comes twice in autumn.
    ("1 day", BERLIN, "autumn", "2 hours"),
    ("1 day", NEW_YORK, "spring", "2 hours"),
    ("1 day", BERLIN, "spring", "150 minutes"),
    ("1 day", NEW_YORK, "autumn", "-90 minutes"),
    ("1 week", BERLIN, "spring", "-1 day"),
    ("1 month", BERLIN, "autumn", "6 hours"),
    ("1 month", NEW_YORK, "spring", "0 hours"),
]
PACE = {"1 day": HOUR, "1 week": 10 * HOUR, "1 month": 30 * HOUR}
places = st.sets(st.integers(1, ROWS - 1), max_size=3)


def windows(size: str, zone: str, offset: str) -> Any:
    return hr.tumbling("w", size=size, key="account", time_zone=zone, offset=offset).agg(**AGGREGATES)


def model(size: str, zone: str, offset: str) -> fixed.Covering:
    return calendar(size, zone, timedelta(microseconds=microseconds(offset, argument="offset")))


def place(row: dict[str, Any]) -> Place:
    return row["account"], micros(row["window"]["start"]), micros(row["window"]["end"])


@pytest.mark.parametrize(("size", "zone", "season", "offset"), KINDS)
@examples(1)
@given(seed=st.integers(0, 2**32), batches=places, crashes=places, partitions=st.integers(1, 4))
def test_rows_within_the_bound_give_each_window_once(
    size: str, zone: str, season: str, offset: str, seed: int, batches: set[int], crashes: set[int], partitions: int
) -> None:
    change, pace = CHANGES[zone, season], PACE[size]
    begins = change - timedelta(seconds=pace * ROWS // 2)
    given_rows = make_input(
        seed, rows=ROWS, pace=pace, disorder=5 * pace, accounts="abc", partitions=partitions, start=begins
    )
    time = hr.event_time("at", out_of_order=f"{5 * pace} seconds", partition="partition")
    later = begins + timedelta(days=200)
    elements = [clock(later), *split(given_rows.rows, batches, crashes), *end_of_rows(later)]
    found = play(windows(size, zone, offset).late(hr.side_output()), *elements, event_time=time)
    truth = fixed.answer(given_rows.events, model(size, zone, offset))
    assert {place(row): tuple(row[name] for name in AGGREGATES) for row in found.main} == truth
    assert len(found.main) == len(truth)
    assert {(row["pane"], row["revision"]) for row in found.main} == {("on_time", 0)}
    assert found.late == []


@pytest.mark.parametrize(("zone", "season", "offset"), [(BERLIN, "spring", "2 hours"), (NEW_YORK, "autumn", "0 hours")])
@examples(2)
@given(
    given_moves=moves(ahead=14, behind=14, further=9),
    panes=st.sampled_from([hr.accumulating(), hr.discarding(), hr.retracting()]),
    late=st.sampled_from([hr.drop(), hr.side_output(), hr.update_for("4 hours")]),
)
def test_previews_corrections_and_late_rows_of_days_are_what_the_model_says(
    zone: str, season: str, offset: str, given_moves: list[Move], panes: Any, late: Any
) -> None:
    """Rows whole hours apart around the change of the clocks."""
    watched = Watched(model("1 day", zone, offset), late.correctable, 10_000_000, panes.kind)
    hours = timedelta(hours=1)
    elements = played(given_moves, watched.batch, unit=hours, start=CHANGES[zone, season] - 8 * hours)
    step = windows("1 day", zone, offset).emit(hr.on_close(early=hr.every("10 seconds"))).panes(panes).late(late)
    found = play(step, *elements)
    by_window: defaultdict[Place, list[tuple[Any, ...]]] = defaultdict(list)
    for row in found.main:
        names = [*AGGREGATES, "pane", "revision", *(["change"] if "change" in row else [])]
        by_window[place(row)].append(tuple(row[name] for name in names))
    assert by_window == watched.results
    too_late = sorted((row.amount or 0, behind) for row, behind in watched.late)
    assert sorted((row["amount"] or 0, row["late_by"] // timedelta(microseconds=1)) for row in found.late) == (
        too_late if late.keeps_rows else []
    )
