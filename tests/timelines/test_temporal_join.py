"""Temporal joins: each row with the version of its key that was valid at the row's time."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.joins.temporal_join import temporal_join
from headrace.testing import at, batch, clock, crash, expect, late_by, play, row, timeline, watermark


def priced(**more: Any) -> Any:
    given = {"on": "item", "ttl": "30 days", "versions_late": hr.side_output(), **more}
    return temporal_join("priced", **given).late(hr.side_output())


def price(time: str, item: str | None, price: int | None, **more: Any) -> Any:
    return at(time, side="right", item=item, price=price, **more)


@pytest.mark.spark
def test_a_row_meets_the_version_that_was_valid_at_its_time_whatever_the_order_of_arrival() -> None:
    timeline(
        priced(),
        price("10:20", "tea", 7),
        at("10:25", item="tea", n=3),
        at("10:05", item="tea", n=1),
        price("10:00", "tea", 5),
        at("10:19:59.999999", item="tea", n=2),
        price("10:10", "salt", 1),
        watermark("11:00"),
        expect(
            row(item="tea", n=1, price=5, at="10:05", at_right="10:00"),
            row(item="tea", n=2, price=5, at="10:19:59.999999", at_right="10:00"),
            row(item="tea", n=3, price=7, at="10:25", at_right="10:20"),
        ),
    )


def test_a_version_is_valid_from_its_own_moment_on() -> None:
    timeline(
        priced(how="left"),
        at("10:00", item="tea", n=2),
        at("09:59:59.999999", item="tea", n=1),
        price("10:00", "tea", 5),
        watermark("10:01"),
        expect(row(item="tea", n=1, price=None, at_right=None), row(item="tea", n=2, price=5, at_right="10:00")),
    )


@pytest.mark.spark
def test_rows_and_versions_wait_for_the_slower_side_and_survive_a_crash_between_the_two() -> None:
    timeline(
        priced(how="left"),
        at("10:05", item="tea", n=1),
        at("10:40", item="tea", n=2),
        crash(),
        batch(),
        watermark("11:00", side="left"),
        expect(),
        price("10:00", "tea", 5),
        price("10:30", "tea", 7),
        crash(),
        watermark("10:06", side="right"),
        expect(item="tea", n=1, price=5),
        crash(),
        watermark("10:40", side="right"),
        expect(),
        watermark("10:40:00.000001", side="right"),
        expect(item="tea", n=2, price=7),
        expect(output="late"),
        expect(output="late_right"),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("first", ["rows", "versions"])
def test_a_crash_between_a_row_and_its_version_changes_nothing_whichever_came_first(how: str, first: str) -> None:
    sold = [at("10:05", item="tea", n=1), at("10:05", item="salt", n=2)]
    prices = [price("10:00", "tea", 5), price("10:06", "salt", 1)]
    earlier, later = (sold, prices) if first == "rows" else (prices, sold)
    timeline(
        priced(how=how),
        *earlier,
        crash(),
        batch(),
        crash(),
        *later,
        crash(),
        batch(),
        expect(),
        crash(),
        watermark("10:06"),
        expect(row(item="tea", n=1, price=5), *([row(item="salt", n=2, price=None)] if how == "left" else [])),
        expect(output="late"),
        expect(output="late_right"),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_in_one_batch_a_late_version_is_met_by_no_row_and_a_late_row_meets_none(how: str) -> None:
    timeline(
        priced(how=how),
        price("10:00", "tea", 5),
        at("10:00", item="z", n=0),
        watermark("10:30"),
        expect(*([row(item="z", n=0, price=None)] if how == "left" else [])),
        price("10:29", "tea", 6),
        at("10:29", item="tea", n=1),
        at("10:30", item="tea", n=2),
        at("10:30", item="salt", n=3),
        price("10:29", "salt", 1),
        crash(),
        batch(),
        watermark("11:00"),
        expect(row(item="tea", n=2, price=5), *([row(item="salt", n=3, price=None)] if how == "left" else [])),
        expect(item="tea", n=1, late_by=late_by("1 minute"), output="late"),
        expect(row(item="tea", price=6), row(item="salt", price=1), output="late_right"),
    )


def test_the_side_of_the_rows_holds_as_well() -> None:
    timeline(
        priced(),
        price("10:00", "tea", 5),
        at("10:05", item="tea", n=2),
        watermark("11:00", side="right"),
        at("10:04", item="tea", n=1),
        price("10:04", "tea", 6),
        watermark("10:30", side="left"),
        expect(row(item="tea", n=1, price=6), row(item="tea", n=2, price=6)),
    )


def test_an_inner_join_leaves_rows_out_that_have_no_version_and_a_left_join_gives_them_nulls() -> None:
    elements = [
        price("10:10", "tea", 5),
        at("10:00", item="tea", n=1),
        at("10:20", item="salt", n=2),
        at("10:20", item="tea", n=3),
        watermark("11:00"),
    ]
    timeline(priced(), *elements, expect(item="tea", n=3, price=5))
    timeline(
        priced(how="left"),
        *elements,
        expect(row(item="tea", n=1, price=None), row(item="tea", n=3, price=5), row(item="salt", n=2, price=None)),
    )


def test_null_keys_meet_nothing_not_even_each_other() -> None:
    elements = [price("10:00", None, 5), at("10:20", item=None, n=1), at("10:20", item="tea", n=2), watermark("11:00")]
    timeline(priced(), *elements, expect())
    timeline(priced(how="left"), *elements, expect(row(item=None, n=1, price=None), row(item="tea", n=2, price=None)))


@pytest.mark.spark
def test_late_rows_and_late_versions_leave_by_outputs_of_their_own() -> None:
    timeline(
        priced(how="left"),
        price("10:00", "tea", 5),
        watermark("11:00"),
        at("10:59:59.999999", item="tea", n=1),
        price("10:30", "tea", 6),
        at("11:00", item="tea", n=2),
        watermark("11:01"),
        expect(item="tea", n=2, price=5),
        expect(item="tea", n=1, late_by=late_by("1 microsecond"), output="late"),
        expect(item="tea", price=6, late_by=late_by("30 minutes"), output="late_right"),
    )


def test_late_versions_and_late_rows_that_are_dropped_change_nothing() -> None:
    step = temporal_join("priced", on="item", keep_forever=True, versions_late=hr.drop()).late(hr.drop())
    timeline(
        step,
        price("10:00", "tea", 5),
        watermark("11:00"),
        price("10:30", "tea", 6),
        at("10:59", item="tea", n=1),
        at("11:00", item="tea", n=2),
        watermark("11:01"),
        expect(item="tea", n=2, price=5),
        expect(output="late"),
    )


@pytest.mark.spark
def test_late_versions_correct_rows_that_have_left() -> None:
    step = temporal_join("priced", on="item", ttl="30 days", how="left", versions_late=hr.update_for("30 minutes"))
    timeline(
        step.late(hr.side_output()),
        at("10:40", item="tea", n=2),
        at("10:10", item="tea", n=1),
        at("10:50", item="tea", n=3),
        price("10:45", "tea", 9),
        watermark("11:00"),
        expect(
            row(item="tea", n=1, price=None, change="insert"),
            row(item="tea", n=2, price=None, change="insert"),
            row(item="tea", n=3, price=9, change="insert"),
        ),
        price("10:30", "tea", 5),
        price("10:29:59.999999", "tea", 4),
        crash(),
        batch(),
        expect(
            row(item="tea", n=2, price=None, change="update_before"),
            row(item="tea", n=2, price=5, change="update_after"),
        ),
        expect(item="tea", price=4, output="late_right"),
        price("10:35", "tea", 6),
        watermark("11:20"),
        expect(
            row(item="tea", n=2, price=5, change="update_before"),
            row(item="tea", n=2, price=6, change="update_after"),
        ),
    )


def test_in_an_inner_join_a_correction_may_put_a_row_in_or_take_it_away() -> None:
    step = temporal_join("priced", on="item", ttl="30 days", versions_late=hr.update_for("1 hour")).late(hr.drop())
    timeline(
        step,
        at("10:40", item="tea", n=1),
        price("10:50", "tea", 9, change="insert"),
        watermark("11:00"),
        expect(),
        price("10:30", "tea", 5, change="insert"),
        batch(),
        expect(item="tea", n=1, price=5, change="insert"),
        price("10:35", "tea", None, change="delete"),
        batch(),
        expect(item="tea", n=1, price=5, change="delete"),
    )


def test_a_late_row_joins_the_version_of_its_time_while_it_is_kept() -> None:
    step = temporal_join("priced", on="item", keep_forever=True, versions_late=hr.drop())
    timeline(
        step.late(hr.update_for("30 minutes")),
        price("10:00", "tea", 5),
        price("10:40", "tea", 7),
        price("10:50", "tea", 8),
        watermark("11:00"),
        at("10:30", item="tea", n=1),
        at("10:45", item="tea", n=2),
        at("10:29:59.999999", item="tea", n=3),
        batch(),
        expect(row(item="tea", n=1, price=5), row(item="tea", n=2, price=7)),
        expect(item="tea", n=3, output="late"),
    )


@pytest.mark.spark
def test_a_changelog_says_when_a_version_ends_and_in_which_order_changes_of_one_moment_are() -> None:
    timeline(
        priced(how="left"),
        price("10:00", "tea", 5, change="insert", position="01"),
        price("10:10", "tea", 7, change="update_after", position="02"),
        price("10:10", "tea", 5, change="update_before", position="02"),
        price("10:20", "tea", 8, change="update_after", position="04"),
        price("10:20", "tea", 9, change="update_after", position="03"),
        price("10:30", "tea", None, change="delete", position="05"),
        price("10:40", "tea", 6, change="insert", position="06"),
        price("10:40", "tea", 6, change="insert", position="06"),
        at("10:00", item="tea", n=1),
        at("10:10", item="tea", n=2),
        crash(),
        at("10:20", item="tea", n=3),
        at("10:30", item="tea", n=4),
        at("10:40", item="tea", n=5),
        watermark("11:00"),
        expect(
            row(item="tea", n=1, price=5),
            row(item="tea", n=2, price=7),
            row(item="tea", n=3, price=8),
            row(item="tea", n=4, price=None),
            row(item="tea", n=5, price=6),
        ),
    )


def test_a_change_of_no_known_kind_is_a_dead_letter() -> None:
    played = play(
        priced(how="left"),
        price("10:00", "tea", 5, change="insert"),
        price("10:10", "tea", 7, change="upsert"),
        at("10:20", item="tea", n=1),
        watermark("11:00"),
    )
    assert [row["price"] for row in played.main] == [5]
    assert [(letter["reason"], letter["source"]) for letter in played.dead_letters] == [("CHANGE_UNKNOWN", "priced")]


def test_how_a_version_came_about_is_no_column_of_a_joined_row() -> None:
    step = priced(how="left")
    played = play(
        step,
        price("10:00", "tea", 5, change="insert", position="1"),
        at("10:20", item="tea", n=1, position="left"),
        watermark("11:00"),
    )
    assert list(played.main[0]) == ["item", "n", "position", "at", "price", "at_right"]
    assert played.main[0]["position"] == "left"


def test_a_version_is_of_no_use_once_its_time_to_live_is_over() -> None:
    timeline(
        priced(ttl="1 hour", how="left"),
        price("10:00", "tea", 5),
        at("10:59:59.999999", item="tea", n=1),
        at("11:00", item="tea", n=2),
        batch(),
        at("10:30", item="tea", n=0),
        watermark("11:30"),
        expect(row(item="tea", n=0, price=5), row(item="tea", n=1, price=5), row(item="tea", n=2, price=None)),
        at("11:40", item="tea", n=3),
        price("11:45", "tea", 6),
        at("11:50", item="tea", n=4),
        crash(),
        watermark("12:00"),
        expect(row(item="tea", n=3, price=None), row(item="tea", n=4, price=6)),
    )


def test_an_idle_side_does_not_hold_the_join_for_ever() -> None:
    timeline(
        priced(how="left"),
        price("10:00", "tea", 5),
        at("10:05", item="tea", n=1),
        at("10:10", item="tea", n=2),
        batch(),
        batch(),
        expect(),
        clock("2026-01-02T00:00:30"),
        at("10:20", item="tea", n=3),
        batch(),
        expect(),
        clock("2026-01-02T00:01:30"),
        at("10:30", item="tea", n=4),
        batch(),
        at("10:31", item="tea", n=5),
        batch(),
        expect(
            row(item="tea", n=1, price=5),
            row(item="tea", n=2, price=5),
            row(item="tea", n=3, price=5),
        ),
        event_time=hr.event_time("at", idle="1 minute"),
    )


def test_rows_of_one_time_leave_in_the_order_of_their_arrival() -> None:
    timeline(
        priced(),
        price("10:00", "tea", 5),
        at("10:05", item="tea", n=1),
        at("10:05", item="tea", n=2),
        batch(),
        at("10:05", item="tea", n=3),
        at("10:04", item="tea", n=4),
        watermark("10:06"),
        expect(*(row(item="tea", n=n, price=5) for n in (4, 1, 2, 3))),
    )


def test_without_positions_the_last_of_several_versions_at_one_time_is_valid() -> None:
    timeline(
        priced(),
        price("10:00", "tea", 5),
        price("10:00", "tea", 6),
        batch(),
        price("10:00", "tea", 7),
        at("10:00", item="tea", n=1),
        watermark("10:01"),
        expect(item="tea", n=1, price=7),
    )


def test_columns_of_other_names_can_be_the_key() -> None:
    step = temporal_join("j", on={"user": "id", "region": "area"}, keep_forever=True, versions_late=hr.drop())
    timeline(
        step.late(hr.drop()),
        at("10:00", side="right", id=1, area="n", level="gold"),
        at("10:00", side="right", id=1, area="s", level="tin"),
        at("10:05", user=1, region="s", id=7),
        at("10:05", user=1, region="n", id=8),
        crash(),
        watermark("11:00"),
        expect(row(user=1, region="s", id=7, level="tin"), row(user=1, region="n", id=8, level="gold")),
    )


def test_negative_zero_and_nan_are_keys_like_any_other() -> None:
    step = temporal_join("j", on="x", keep_forever=True, versions_late=hr.drop()).late(hr.drop())
    timeline(
        step,
        at("10:00", side="right", x=0.0, v=1),
        at("10:00", side="right", x=float("nan"), v=2),
        at("10:05", x=-0.0, n=1),
        at("10:05", x=-float("nan"), n=2),
        watermark("11:00"),
        expect(row(n=1, v=1), row(n=2, v=2)),
    )


@pytest.mark.spark
def test_enrichment_with_reference_data_as_it_was_at_the_time() -> None:
    """Orders of the morning get the customer's level of the morning, though the change was known before them."""
    step = temporal_join("with_level", on="customer", keep_forever=True, how="left", versions_late=hr.side_output())
    timeline(
        step.late(hr.side_output()),
        at("08:00", side="right", customer="ada", level="silver"),
        at("12:00", side="right", customer="ada", level="gold"),
        at("12:00", side="right", customer="bob", level="silver"),
        batch(),
        at("12:30", customer="ada", order=3, total=10),
        at("11:59", customer="ada", order=1, total=30),
        at("11:00", customer="bob", order=2, total=20),
        crash(),
        watermark("13:00"),
        expect(
            row(customer="ada", order=1, total=30, level="silver"),
            row(customer="ada", order=3, total=10, level="gold"),
            row(customer="bob", order=2, total=20, level=None),
        ),
    )


def test_windows_behind_it_count_joined_rows() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="item").agg(taken="sum(price)").late(hr.side_output())
    timeline(
        (priced(), hourly),
        price("10:00", "tea", 5),
        price("10:30", "tea", 7),
        at("10:20", item="tea", n=1),
        at("10:40", item="tea", n=2),
        watermark("11:00"),
        expect(item="tea", window="10:00/11:00", taken=12),
        expect(output="late"),
    )


@pytest.mark.spark
def test_as_of_arrival_a_row_meets_the_latest_version_and_does_not_wait() -> None:
    step = temporal_join("priced", on="item", ttl="1 day", how="left", as_of="arrival")
    timeline(
        step,
        at("10:00", item="tea", n=1),
        batch(),
        expect(item="tea", n=1, price=None),
        at("10:05", item="tea", n=2),
        price("10:30", "tea", 5),
        price("10:20", "tea", 6),
        crash(),
        batch(),
        expect(item="tea", n=2, price=6),
        watermark("12:00"),
        at("10:06", item="tea", n=3),
        price("10:01", "tea", 7),
        batch(),
        expect(item="tea", n=3, price=7),
        watermark("2026-01-02T10:01"),
        at("10:07", item="tea", n=4),
        batch(),
        expect(item="tea", n=4, price=None),
    )


@pytest.mark.streamed
def test_as_of_arrival_positions_tell_which_version_is_the_latest() -> None:
    step = temporal_join("priced", on="item", keep_forever=True, as_of="arrival")
    timeline(
        step,
        price("10:00", "tea", 5, change="insert", position="2"),
        price("10:00", "tea", 4, change="insert", position="1"),
        at("10:00", item="tea", n=1),
        batch(),
        expect(item="tea", n=1, price=5),
        price("10:01", "tea", 3, change="update_after", position="0"),
        price("10:01", "tea", 5, change="update_before", position="3"),
        price("10:01", "tea", 6, change="update_after", position="3"),
        at("10:01", item="tea", n=2),
        batch(),
        expect(item="tea", n=2, price=6),
        price("10:02", "tea", None, change="delete", position="5"),
        price("10:02", "tea", 9, change="update_after", position="4"),
        at("10:02", item="tea", n=3),
        batch(),
        price("10:02", "tea", 9, change="update_after", position="4"),
        at("10:02", item="tea", n=4),
        batch(),
        expect(),
        watermark("10:03"),
        price("10:03", "tea", 8, change="insert", position="6"),
        at("10:03", item="tea", n=5),
        batch(),
        expect(item="tea", n=5, price=8),
    )


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("first", ["rows", "versions"])
@pytest.mark.streamed
def test_as_of_arrival_the_order_of_arrival_decides_and_a_crash_does_not(how: Any, first: str) -> None:
    unmet = [row(item="tea", n=1, price=None)] if how == "left" else []
    sold, new = at("10:05", item="tea", n=1), price("10:00", "tea", 5)
    timeline(
        temporal_join("priced", on="item", keep_forever=True, how=how, as_of="arrival"),
        sold if first == "rows" else new,
        crash(),
        batch(),
        expect(*(unmet if first == "rows" else [])),
        new if first == "rows" else sold,
        crash(),
        batch(),
        expect(*([] if first == "rows" else [row(item="tea", n=1, price=5)])),
        crash(),
        at("09:00", item="tea", n=2),
        batch(),
        expect(item="tea", n=2, price=5),
    )


@pytest.mark.parametrize("life", [{"keep_forever": True}, {"ttl": "1 day"}], ids=["for ever", "a day"])
def test_as_of_arrival_a_change_from_before_a_deletion_does_not_bring_the_version_back(life: Any) -> None:
    timeline(
        temporal_join("priced", on="item", how="left", as_of="arrival", **life),
        price("10:00", "tea", 5, change="insert", position="1"),
        batch(),
        price("10:01", "tea", None, change="delete", position="3"),
        batch(),
        watermark("10:05"),
        at("10:06", item="tea", n=1),
        price("10:00", "tea", 5, change="insert", position="1"),  # comes again
        batch(),
        expect(item="tea", n=1, price=None),
        crash(),
        at("10:06", item="tea", n=2),
        price("10:00", "tea", 6, change="update_after", position="2"),  # comes late
        batch(),
        expect(item="tea", n=2, price=None),
        price("10:07", "tea", 7, change="insert", position="4"),
        at("10:08", item="tea", n=3),
        batch(),
        expect(item="tea", n=3, price=7),
    )


def test_as_of_arrival_a_deletion_is_forgotten_when_event_time_has_left_it_behind() -> None:
    timeline(
        temporal_join("priced", on="item", keep_forever=True, how="left", as_of="arrival", keep_deleted="1 hour"),
        price("10:01", "tea", None, change="delete", position="2"),
        at("10:01", item="salt", n=0),
        watermark("11:01"),
        expect(item="salt", n=0, price=None),
        price("10:00", "tea", 5, change="insert", position="1"),
        at("11:02", item="tea", n=1),
        batch(),
        expect(item="tea", n=1, price=5),
    )


def test_a_version_that_was_deleted_stays_so_in_a_group_to_which_nothing_comes_for_long() -> None:
    timeline(
        priced(how="left"),
        price("10:00", "tea", 5, change="insert", position="1"),
        price("10:10", "tea", None, change="delete", position="2"),
        at("10:05", item="tea", n=1),
        watermark("10:06"),
        expect(item="tea", n=1, price=5),
        watermark("10:20"),
        watermark("10:30"),
        crash(),
        at("10:35", item="tea", n=2),
        watermark("11:00"),
        expect(item="tea", n=2, price=None),
    )


@pytest.mark.spark
def test_a_late_version_that_is_delivered_is_met_by_rows_still_to_come_only() -> None:
    timeline(
        priced(how="left", versions_late=hr.deliver()),
        price("10:00", "tea", 5),
        at("10:40", item="tea", n=1),
        at("11:30", item="tea", n=2),
        watermark("11:00"),
        expect(n=1, price=5),
        price("10:50", "tea", 7),  # late, and valid for the row that waits
        crash(),
        batch(),
        price("10:30", "tea", 6),  # later still, and superseded by then
        batch(),
        expect(),
        watermark("12:00"),
        expect(n=2, price=7),
        price("11:20", "tea", 8),
        at("12:10", item="tea", n=3),
        watermark("13:00"),
        expect(n=3, price=8),
    )
    assert "depends on batches" in priced(versions_late=hr.deliver()).state_description
