"""Hopping windows: rows in several windows, shared panes, rows late for some windows and on time for others."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

busy = hr.hopping("busy", size="1 hour", every="20 minutes", key="shop").agg(n="count(*)", spent="sum(amount)")


def result(window: str, n: int, spent: float, **more: Any) -> Any:
    return row(shop="s", window=window, n=n, spent=spent, **more)


@pytest.mark.spark
def test_a_row_is_in_every_window_that_covers_it() -> None:
    timeline(
        busy.late(hr.side_output()),
        at("10:25", shop="s", amount=1.0),
        watermark("11:20"),
        expect(
            result("09:40/10:40", 1, 1.0, pane="on_time", revision=0),
            result("10:00/11:00", 1, 1.0, pane="on_time", revision=0),
            result("10:20/11:20", 1, 1.0, pane="on_time", revision=0),
        ),
        watermark("13:00"),
        expect(),
    )


def test_a_row_on_a_boundary_is_in_the_window_that_begins_there_and_not_in_the_one_that_ends() -> None:
    timeline(
        busy.late(hr.side_output()),
        at("10:20", shop="s", amount=1.0),
        at("10:19:59.999999", shop="s", amount=2.0),
        watermark("12:00"),
        expect(
            result("09:20/10:20", 1, 2.0),
            result("09:40/10:40", 2, 3.0),
            result("10:00/11:00", 2, 3.0),
            result("10:20/11:20", 1, 1.0),
        ),
    )


@pytest.mark.spark
def test_windows_close_one_after_the_other_across_batches_and_a_crash() -> None:
    timeline(
        busy.late(hr.side_output()),
        at("10:25", shop="s", amount=1.0),
        watermark("10:40"),
        expect(result("09:40/10:40", 1, 1.0)),
        at("10:45", shop="s", amount=2.0),
        crash(),
        watermark("11:00"),
        expect(result("10:00/11:00", 2, 3.0)),
        crash(),
        watermark("12:00"),
        expect(result("10:20/11:20", 2, 3.0), result("10:40/11:40", 1, 2.0)),
    )


@pytest.mark.spark
def test_a_row_late_for_some_windows_counts_in_the_others() -> None:
    timeline(
        busy.late(hr.side_output()),
        at("10:35", shop="s", amount=1.0),
        watermark("10:45"),
        expect(result("09:40/10:40", 1, 1.0)),
        at("10:25", shop="s", amount=2.0),
        batch(),
        expect(output="late"),
        watermark("11:20"),
        expect(result("10:00/11:00", 2, 3.0), result("10:20/11:20", 2, 3.0)),
        at("10:26", shop="s", amount=4.0),
        batch(),
        expect(),
        expect(row(shop="s", amount=4.0, late_by=late_by("54 minutes")), output="late"),
    )


def test_the_account_says_how_many_rows_were_late_for_some_of_their_windows() -> None:
    from headrace.event_time.record import TimeBounds

    step = busy.late(hr.side_output())
    schema: dict[str, Any] = {"shop": _type("s"), "amount": _type(1.0), "at": _type("moment")}
    operator = step.bind(schema, "at")
    frame = _rows(schema, ("s", 1.0, 65), ("s", 1.0, 85), ("s", 1.0, 5))
    combined = operator.combine(frame, TimeBounds(late=80 * 60_000_000, fire=80 * 60_000_000))
    assert (combined.accepted, combined.partly_late, combined.late.height) == (2, 1, 1)


def _type(value: Any) -> Any:
    import polars as pl

    return {"s": pl.String(), 1.0: pl.Float64(), "moment": pl.Datetime("us", "UTC")}[value]


def _rows(schema: Any, *rows: tuple[str, float, int]) -> Any:
    import polars as pl

    frame = pl.DataFrame([(s, a, m * 60_000_000) for s, a, m in rows], schema=["shop", "amount", "at"], orient="row")
    return frame.cast(schema)


@pytest.mark.spark
def test_a_late_row_corrects_every_closed_window_that_covers_it() -> None:
    timeline(
        busy.late(hr.update_for("1 hour")),
        at("10:35", shop="s", amount=1.0),
        watermark("11:00"),
        expect(result("09:40/10:40", 1, 1.0), result("10:00/11:00", 1, 1.0)),
        at("10:25", shop="s", amount=2.0),
        crash(),
        batch(),
        expect(
            result("09:40/10:40", 2, 3.0, pane="late", revision=1),
            result("10:00/11:00", 2, 3.0, pane="late", revision=1),
        ),
        watermark("11:20"),
        expect(result("10:20/11:20", 2, 3.0, pane="on_time", revision=0)),
        at("10:26", shop="s", amount=4.0),
        batch(),
        expect(
            result("09:40/10:40", 3, 7.0, pane="late", revision=2),
            result("10:00/11:00", 3, 7.0, pane="late", revision=2),
            result("10:20/11:20", 3, 7.0, pane="late", revision=1),
        ),
        watermark("11:40"),
        at("10:27", shop="s", amount=8.0),
        batch(),
        expect(result("10:00/11:00", 4, 15.0, revision=3), result("10:20/11:20", 4, 15.0, revision=2)),
        watermark("12:20"),
        at("10:28", shop="s", amount=8.0),
        batch(),
        expect(),
        expect(shop="s", amount=8.0, output="late"),
    )


def test_a_late_row_creates_windows_that_never_had_one() -> None:
    timeline(
        busy.late(hr.update_for("1 hour")),
        at("10:35", shop="other", amount=1.0),
        watermark("11:00"),
        expect(row(shop="other", window="09:40/10:40"), row(shop="other", window="10:00/11:00")),
        at("10:25", shop="s", amount=2.0),
        batch(),
        expect(
            result("09:40/10:40", 1, 2.0, pane="late", revision=0),
            result("10:00/11:00", 1, 2.0, pane="late", revision=0),
        ),
    )


@pytest.mark.spark
def test_previews_of_hopping_windows() -> None:
    timeline(
        busy.emit(hr.on_update()).late(hr.side_output()),
        at("10:25", shop="s", amount=1.0),
        batch(),
        expect(
            result("09:40/10:40", 1, 1.0, pane="early", revision=0),
            result("10:00/11:00", 1, 1.0, pane="early", revision=0),
            result("10:20/11:20", 1, 1.0, pane="early", revision=0),
        ),
        watermark("10:40"),
        expect(result("09:40/10:40", 1, 1.0, pane="on_time", revision=1)),
        at("10:30", shop="s", amount=2.0),
        batch(),
        expect(
            result("10:00/11:00", 2, 3.0, pane="early", revision=1),
            result("10:20/11:20", 2, 3.0, pane="early", revision=1),
        ),
    )


def test_before_1970_windows_are_counted_backwards() -> None:
    timeline(
        hr.hopping("w", size="10 minutes", every="5 minutes", key="shop").agg(n="count(*)").late(hr.drop()),
        at("1969-12-31T23:56", shop="s"),
        at("1969-12-31T23:55", shop="s"),
        watermark("1970-01-01T00:05"),
        expect(
            row(shop="s", window="1969-12-31T23:50/1970-01-01T00:00", n=2),
            row(shop="s", window="1969-12-31T23:55/1970-01-01T00:05", n=2),
        ),
    )


def test_windows_without_a_key_hold_all_rows() -> None:
    timeline(
        hr.hopping("all", size="1 hour", every="30 minutes", key=None).agg(n="count(*)").late(hr.drop()),
        at("10:05", shop="s", partition=0),
        at("10:06", shop="t", partition=1),
        batch(),
        at("10:40", shop="u", partition=2),
        watermark("11:00"),
        expect(row(window="09:30/10:30", n=2), row(window="10:00/11:00", n=3)),
    )


@pytest.mark.spark
def test_hours_of_hopping_windows_make_days() -> None:
    daily = hr.tumbling("daily", size="1 day", key="shop").agg(most="max(n)", windows="count(*)")
    timeline(
        (busy.late(hr.side_output()), daily.late(hr.side_output())),
        at("2026-01-01T10:25", shop="s", amount=1.0),
        at("2026-01-01T10:26", shop="s", amount=1.0),
        crash(),
        watermark("2026-01-01T11:20"),
        watermark("2026-01-02T00:00"),
        expect(shop="s", window="2026-01-01T00:00/2026-01-02T00:00", most=2, windows=3),
    )


def test_an_hour_every_minute_is_kept_in_minutes_and_not_in_hours() -> None:
    """Sixty windows share each pane: the state of one key grows with minutes, not with windows."""
    import polars as pl

    from headrace.event_time.record import TimeBounds
    from headrace.event_time.strategy import BEGINNING

    schema: dict[str, Any] = {"shop": _type("s"), "amount": _type(1.0), "at": _type("moment")}
    operator = hr.hopping("h", size="1 hour", every="1 minute", key="shop").agg(n="count(*)").late(hr.drop())
    bound = operator.bind(schema, "at")
    rows = _rows(schema, *(("s", 1.0, minute) for minute in range(60)))
    bounds = TimeBounds(BEGINNING, BEGINNING)
    applied = bound.apply(pl.DataFrame(schema=dict(bound.state_schema)), bound.combine(rows, bounds).partials, bounds)
    assert applied.upserts.height == 60


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"size": "1 minute", "every": "2 minutes"}, r"\[HOP_LONGER_THAN_WINDOW\] window 'w': every='2 minutes'"),
        ({"size": "1 minute", "every": "0 seconds"}, r"\[DURATION_NOT_POSITIVE\] every='0 seconds'"),
        (
            {"size": "2 minutes", "every": "1 minute", "offset": "1 minute"},
            r"\[WINDOW_OFFSET_TOO_LONG\] window 'w': offset='1 minute' is not shorter than every='1 minute'",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(given: dict[str, str], error: str) -> None:
    with pytest.raises(hr.DefinitionError, match=error):
        hr.hopping("w", key="shop", **given)


def test_unique_users_of_the_last_hour_every_minute_are_right_for_rows_five_minutes_late() -> None:
    """The exercise of the seeds: five minutes of corrections, and the last revision is the truth."""
    users = hr.hopping("users", size="60 minutes", every="1 minute", key=None).agg(users="count(DISTINCT user)")
    played = play(
        users.late(hr.update_for("5 minutes")),
        at("10:00", user="ada"),
        at("10:00:30", user="bob"),
        watermark("10:02"),
        at("10:00:59", user="eve"),
        watermark("10:30"),
    )
    last = {each["window"]["end"].minute: each["users"] for each in played.main}
    assert last[1] == 3
    assert last[2] == 3
    assert {last[minute] for minute in range(1, 31)} == {3}
