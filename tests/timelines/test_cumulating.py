"""Cumulating windows: growing prefixes of a tumbling window."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, row, timeline, watermark

so_far = hr.cumulating("so_far", step="20 minutes", size="1 hour", key="shop").agg(n="count(*)", spent="sum(amount)")


def result(window: str, n: int, spent: float, **more: Any) -> Any:
    return row(shop="s", window=window, n=n, spent=spent, **more)


@pytest.mark.spark
def test_each_step_shows_the_window_so_far() -> None:
    timeline(
        so_far.late(hr.side_output()),
        at("10:05", shop="s", amount=1.0),
        at("10:25", shop="s", amount=2.0),
        at("10:45", shop="s", amount=4.0),
        at("11:05", shop="s", amount=8.0),
        watermark("10:20"),
        expect(result("10:00/10:20", 1, 1.0, pane="on_time", revision=0)),
        watermark("10:40"),
        expect(result("10:00/10:40", 2, 3.0)),
        watermark("11:00"),
        expect(result("10:00/11:00", 3, 7.0)),
        watermark("11:20"),
        expect(result("11:00/11:20", 1, 8.0)),
    )


@pytest.mark.spark
def test_a_step_without_new_rows_shows_the_same_again() -> None:
    timeline(
        so_far.late(hr.side_output()),
        at("10:05", shop="s", amount=1.0),
        crash(),
        watermark("11:00"),
        expect(
            result("10:00/10:20", 1, 1.0),
            result("10:00/10:40", 1, 1.0),
            result("10:00/11:00", 1, 1.0),
        ),
    )


@pytest.mark.spark
def test_a_row_on_a_boundary_belongs_to_the_next_step() -> None:
    timeline(
        so_far.late(hr.side_output()),
        at("10:20", shop="s", amount=1.0),
        at("11:00", shop="s", amount=2.0),
        watermark("11:20"),
        expect(result("10:00/10:40", 1, 1.0), result("10:00/11:00", 1, 1.0), result("11:00/11:20", 1, 2.0)),
    )


@pytest.mark.spark
def test_a_row_too_late_for_its_step_counts_in_the_following_ones() -> None:
    timeline(
        so_far.late(hr.side_output()),
        at("10:05", shop="s", amount=1.0),
        watermark("10:30"),
        expect(result("10:00/10:20", 1, 1.0)),
        at("10:06", shop="s", amount=2.0),
        crash(),
        watermark("11:00"),
        expect(result("10:00/10:40", 2, 3.0), result("10:00/11:00", 2, 3.0)),
        at("10:59", shop="s", amount=4.0),
        batch(),
        expect(row(shop="s", amount=4.0, late_by=late_by("1 minute")), output="late"),
    )


@pytest.mark.spark
def test_a_late_row_corrects_every_step_from_its_own_on() -> None:
    timeline(
        so_far.late(hr.update_for("1 hour")),
        at("10:05", shop="s", amount=1.0),
        watermark("10:40"),
        expect(result("10:00/10:20", 1, 1.0), result("10:00/10:40", 1, 1.0)),
        at("10:25", shop="s", amount=2.0),
        batch(),
        expect(result("10:00/10:40", 2, 3.0, pane="late", revision=1)),
        at("10:06", shop="s", amount=4.0),
        batch(),
        expect(
            result("10:00/10:20", 2, 5.0, pane="late", revision=1),
            result("10:00/10:40", 3, 7.0, pane="late", revision=2),
        ),
        watermark("11:00"),
        expect(result("10:00/11:00", 3, 7.0, pane="on_time", revision=0)),
    )


@pytest.mark.spark
def test_previews_between_the_steps() -> None:
    timeline(
        so_far.emit(hr.on_close(early=hr.after_rows(2))).late(hr.side_output()),
        at("10:25", shop="s", amount=1.0),
        at("10:26", shop="s", amount=2.0),
        batch(),
        expect(
            result("10:00/10:40", 2, 3.0, pane="early", revision=0),
            result("10:00/11:00", 2, 3.0, pane="early", revision=0),
        ),
        watermark("10:40"),
        expect(result("10:00/10:40", 2, 3.0, pane="on_time", revision=1)),
    )


def test_before_1970_and_with_an_offset() -> None:
    step = hr.cumulating("w", step="12 hours", size="1 day", key="shop", offset="6 hours").agg(n="count(*)")
    timeline(
        step.late(hr.drop()),
        at("1969-12-31T05:00", shop="s"),
        at("1969-12-31T06:00", shop="s"),
        watermark("1970-01-01T06:00"),
        expect(
            row(shop="s", window="1969-12-30T06:00/1969-12-31T06:00", n=1),
            row(shop="s", window="1969-12-31T06:00/1969-12-31T18:00", n=1),
            row(shop="s", window="1969-12-31T06:00/1970-01-01T06:00", n=1),
        ),
    )


def test_a_step_must_divide_the_size() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[STEP_NOT_IN_SIZE\] window 'w': size='1 hour'"):
        hr.cumulating("w", step="25 minutes", size="1 hour", key="shop")


def test_the_step_prints_itself() -> None:
    assert repr(so_far.late(hr.drop())) == (
        "hr.cumulating('so_far', step='20 minutes', size='1 hour', key='shop').agg(n='count(*)', spent='sum(amount)')"
        ".emit(hr.on_close()).late(hr.drop())"
    )
