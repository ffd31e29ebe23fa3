"""Temporal joins with versions whose large values the database did not send again."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, row, timeline, watermark


def described(**more: Any) -> Any:
    given = {"on": "item", "ttl": "30 days", "versions_late": hr.side_output(), **more}
    return hr.temporal_join("described", **given).late(hr.drop())


def version(time: str, position: str, price: int | None, text: str | None, *unchanged: str, **more: Any) -> Any:
    given = {"change": "update_after", "unchanged": list(unchanged) or None, **more}
    return at(time, side="right", item="tea", price=price, text=text, position=position, **given)


def order(time: str, n: int) -> Any:
    return at(time, item="tea", n=n)


@pytest.mark.spark
def test_a_value_that_was_not_sent_is_that_of_the_version_before_also_in_later_batches_and_after_a_crash() -> None:
    timeline(
        described(),
        version("10:00", "01", 5, "long"),
        order("10:05", 1),
        batch(),
        version("10:10", "02", 6, None, "text"),
        order("10:15", 2),
        watermark("11:00"),
        expect(row(item="tea", n=1, price=5, text="long"), row(item="tea", n=2, price=6, text="long")),
        crash(),
        version("11:10", "03", 7, None, "text"),
        order("11:15", 3),
        watermark("12:00"),
        expect(item="tea", n=3, price=7, text="long"),
        version("12:10", "04", 7, "longer"),
        version("12:20", "05", None, None, "price", "text"),
        order("12:25", 4),
        watermark("13:00"),
        expect(item="tea", n=4, price=7, text="longer"),
    )


def test_what_a_version_carries_follows_from_event_time_whatever_came_first() -> None:
    timeline(
        described(),
        version("10:20", "03", 7, None, "text"),
        order("10:25", 3),
        batch(),
        version("10:00", "01", 5, "long"),
        batch(),
        version("10:10", "02", 6, "longer"),
        order("10:05", 1),
        watermark("11:00"),
        expect(row(item="tea", n=1, price=5, text="long"), row(item="tea", n=3, price=7, text="longer")),
    )


def test_a_null_that_was_sent_and_a_value_behind_a_deletion_are_not_filled_in() -> None:
    timeline(
        described(how="left"),
        version("10:00", "01", 5, "long"),
        version("10:10", "02", 6, None),
        order("10:15", 1),
        version("10:20", "03", None, None, change="delete"),
        version("10:30", "04", 8, None, "text", change="insert"),
        order("10:35", 2),
        watermark("11:00"),
        expect(row(item="tea", n=1, price=6, text=None), row(item="tea", n=2, price=8, text=None)),
    )


def test_the_old_row_of_an_update_brings_the_value() -> None:
    timeline(
        described(),
        version("10:10", "02", 5, "long", change="update_before"),
        version("10:10", "02", 6, None, "text"),
        order("10:15", 1),
        watermark("11:00"),
        expect(item="tea", n=1, price=6, text="long"),
    )


def test_a_value_that_nobody_knows_is_null() -> None:
    timeline(
        described(),
        version("10:10", "02", 6, None, "text"),
        order("10:15", 1),
        watermark("11:00"),
        expect(item="tea", n=1, price=6, text=None),
    )


def test_a_late_version_corrects_rows_of_the_versions_that_carry_its_values() -> None:
    timeline(
        described(versions_late=hr.update_for("2 hours")),
        version("10:00", "01", 5, "long"),
        version("10:20", "03", 7, None, "text"),
        order("10:05", 1),
        order("10:25", 2),
        watermark("11:00"),
        expect(
            row(item="tea", n=1, price=5, text="long", change="insert"),
            row(item="tea", n=2, price=7, text="long", change="insert"),
        ),
        version("10:10", "02", 6, "longer"),
        batch(),
        expect(
            row(item="tea", n=2, price=7, text="long", change="update_before"),
            row(item="tea", n=2, price=7, text="longer", change="update_after"),
        ),
        order("10:15", 3),
        order("11:05", 4),
        watermark("12:00"),
        expect(item="tea", n=4, price=7, text="longer", change="insert"),
    )


@pytest.mark.streamed
def test_as_of_arrival_a_version_carries_what_was_known_when_it_came() -> None:
    live = hr.temporal_join("live", on="item", ttl="30 days", how="left", as_of="arrival")
    timeline(
        live,
        version("10:00", "01", 5, "long"),
        batch(),
        version("10:10", "03", 7, None, "text"),
        order("10:15", 1),
        batch(),
        expect(item="tea", n=1, price=7, text="long"),
        crash(),
        version("10:05", "02", 6, None, "text"),  # stale, and knows no text
        version("10:10", "03", 7, None, "text"),  # comes again
        order("10:16", 2),
        batch(),
        expect(item="tea", n=2, price=7, text="long"),
        version("10:20", "04", 8, None, "text"),
        version("10:30", "05", 9, None, "text"),
        order("10:35", 3),
        batch(),
        expect(item="tea", n=3, price=9, text="long"),
    )


def test_a_column_of_this_name_that_is_no_list_of_names_is_a_column_like_others() -> None:
    timeline(
        described(),
        at("10:00", side="right", item="tea", unchanged=True, change="insert", position="01"),
        order("10:05", 1),
        watermark("11:00"),
        expect(item="tea", n=1, unchanged=True),
    )


@pytest.mark.parametrize("batches", [[], [batch()], [crash(), batch()]], ids=["one batch", "two batches", "a crash"])
def test_a_deleted_version_gives_its_values_to_none_though_it_was_sent_whole(batches: list[Any]) -> None:
    timeline(
        described(how="left"),
        version("10:00", "01", 5, "long"),
        version("10:20", "03", 8, None, "text", change="insert"),
        *batches,
        version("10:10", "02", 5, "long", change="delete"),
        order("10:05", 1),
        order("10:25", 2),
        watermark("11:00"),
        expect(row(item="tea", n=1, price=5, text="long"), row(item="tea", n=2, price=8, text=None)),
    )


@pytest.mark.parametrize("batches", [[], [batch()]], ids=["one batch", "two batches"])
def test_as_of_arrival_a_deleted_version_gives_its_values_to_none(batches: list[Any]) -> None:
    timeline(
        hr.temporal_join("live", on="item", ttl="30 days", how="left", as_of="arrival"),
        version("10:00", "01", 5, "long"),
        *batches,
        version("10:10", "02", 5, "long", change="delete"),
        *batches,
        version("10:20", "03", 8, None, "text", change="insert"),
        order("10:25", 1),
        batch(),
        expect(item="tea", n=1, price=8, text=None),
    )


@pytest.mark.parametrize("batches", [[], [batch()]], ids=["one batch", "two batches"])
@pytest.mark.parametrize("unsent", [[], ["text"]], ids=["brings the value", "does not"])
def test_as_of_arrival_the_old_row_of_an_update_gives_its_values_to_the_new_one(
    batches: list[Any], unsent: list[str]
) -> None:
    timeline(
        hr.temporal_join("live", on="item", ttl="30 days", as_of="arrival"),
        version("10:00", "01", 5, "long"),
        *batches,
        version("10:10", "02", 5, None if unsent else "long", *unsent, change="update_before"),
        *batches,
        version("10:10", "02", 6, None, "text"),
        order("10:15", 1),
        batch(),
        expect(item="tea", n=1, price=6, text="long"),
    )


@pytest.mark.parametrize("kind", ["update_after", "delete"])
def test_as_of_arrival_a_change_that_comes_again_gives_nothing_to_the_version_that_is_known(kind: str) -> None:
    again = version("10:05", "02", 6, "old", change=kind)
    timeline(
        hr.temporal_join("live", on="item", ttl="30 days", as_of="arrival"),
        again,
        version("10:10", "03", 7, "new"),
        version("10:20", "04", 8, None, "text"),
        batch(),
        again,
        order("10:25", 1),
        batch(),
        expect(item="tea", n=1, price=8, text="new"),
    )


def test_a_value_of_one_of_several_versions_at_one_time_is_carried_on_however_often_the_key_is_looked_at() -> None:
    timeline(
        described(),
        version("10:00", "01", 5, "old"),
        version("10:20", "02", 6, "new"),
        version("10:20", "03", 7, None, "text"),
        order("10:05", 1),
        watermark("10:10"),
        expect(item="tea", n=1, price=5, text="old"),
        order("10:25", 2),
        watermark("11:00"),
        expect(item="tea", n=2, price=7, text="new"),
    )


@pytest.mark.parametrize("pause", [(), (crash(),)], ids=["the slots stay", "the slots are others"])
@pytest.mark.parametrize("fan_out", [99, 2], ids=["a segment each batch", "merged segments"])
def test_of_two_versions_of_one_time_the_one_that_came_last_counts_whether_segments_are_merged_or_not(
    fan_out: int, pause: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.state.slot_state.FAN_OUT", fan_out)

    def unplaced(time: str, price: int, text: str | None, *unchanged: str) -> Any:
        given: dict[str, Any] = {"change": "update_after", "unchanged": list(unchanged) or None}
        return at(time, side="right", item="tea", price=price, text=text, **given)

    timeline(
        described(),
        unplaced("09:50", 50, "old"),
        unplaced("10:00", 100, None, "text"),
        unplaced("10:00", 200, "new"),
        *(unplaced(f"11:{minute:02d}", minute, "later") for minute in range(10)),
        batch(),
        # Alters what the first of the two carries, and so it is stored behind the other.
        unplaced("09:59", 99, "older"),
        batch(),
        *pause,
        order("10:30", 1),
        watermark("12:00"),
        expect(item="tea", n=1, price=200, text="new"),
    )
