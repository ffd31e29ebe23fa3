"""Current tables of changelogs."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.operators.tables.materialize import materialize
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

TABLE = materialize("customers", key="id")


def change(
    position: int | str, kind: str, id: Any, city: str | None = None, *, time: str = "10:00", **more: Any
) -> Any:
    place = position if isinstance(position, str) else f"{position:04d}"
    return at(time, id=id, city=city, change=kind, position=place, **more)


@pytest.mark.spark
def test_the_table_follows_inserts_updates_and_deletes() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(2, "insert", 2, "Oslo"),
        batch(),
        expect(
            row(id=1, city="Rome", change="insert", position="0001"),
            row(id=2, city="Oslo", change="insert", position="0002"),
        ),
        change(3, "update_before", 1, "Rome"),
        change(3, "update_after", 1, "Bonn"),
        change(4, "delete", 2),
        batch(),
        expect(
            row(id=1, city="Bonn", change="update_after", position="0003"),
            row(id=2, city=None, change="delete", position="0004"),
        ),
    )


def test_of_a_batch_only_the_last_change_of_a_key_leaves() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(2, "update_after", 1, "Bonn"),
        change(3, "insert", 2, "Oslo"),
        change(4, "delete", 2, "Oslo"),
        batch(),
        expect(id=1, city="Bonn", change="insert", position="0002"),
        change(5, "delete", 1, "Bonn"),
        change(6, "insert", 1, "Kiev"),
        batch(),
        expect(id=1, city="Kiev", change="update_after", position="0006"),
    )


@pytest.mark.spark
def test_changes_that_come_out_of_order_end_in_the_order_of_their_positions() -> None:
    timeline(
        TABLE,
        change(5, "update_after", 1, "Bonn"),
        change(1, "insert", 1, "Rome"),
        batch(),
        expect(id=1, city="Bonn", change="insert", position="0005"),
        change(4, "update_after", 1, "Oslo"),
        batch(),
        expect(),
        change(6, "update_after", 1, "Kiev"),
        batch(),
        expect(id=1, city="Kiev", change="update_after", position="0006"),
    )


@pytest.mark.spark
def test_a_change_from_before_a_deletion_does_not_bring_the_row_back() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(3, "delete", 1),
        batch(),
        expect(),
        change(2, "update_after", 1, "Bonn"),
        change(3, "delete", 1),
        batch(),
        expect(),
        change(4, "insert", 1, "Oslo"),
        batch(),
        expect(id=1, city="Oslo", change="insert"),
    )


@pytest.mark.spark
def test_a_crash_in_the_middle_gives_every_change_once() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        batch(),
        expect(id=1, city="Rome", change="insert"),
        change(2, "update_after", 1, "Bonn"),
        change(3, "insert", 2, "Oslo"),
        crash(),
        batch(),
        expect(row(id=1, city="Bonn", change="update_after"), row(id=2, city="Oslo", change="insert")),
        change(3, "insert", 2, "Oslo"),
        change(4, "delete", 2),
        crash(),
        batch(),
        expect(id=2, change="delete"),
    )


def test_an_update_may_come_with_its_second_row_first() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(2, "update_after", 1, "Bonn"),
        batch(),
        expect(id=1, city="Bonn", change="insert"),
        change(2, "update_before", 1, "Rome"),
        batch(),
        expect(),
    )


def test_an_update_whose_rows_come_in_two_batches_ends_with_the_new_row() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(2, "update_before", 1, "Rome"),
        batch(),
        expect(),
        change(2, "update_after", 1, "Bonn"),
        batch(),
        expect(id=1, city="Bonn", change="insert"),
    )


def test_a_changed_key_is_a_deletion_and_an_insertion() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome"),
        batch(),
        expect(id=1, change="insert"),
        change(2, "delete", 1, "Rome"),
        change(2, "insert", 7, "Rome"),
        batch(),
        expect(row(id=1, city="Rome", change="delete"), row(id=7, city="Rome", change="insert")),
    )


@pytest.mark.spark
def test_a_deletion_is_forgotten_when_event_time_has_left_it_behind() -> None:
    step = materialize("customers", key="id", keep_deleted="1 hour")
    timeline(
        step,
        change(1, "insert", 1, "Rome", time="10:00"),
        change(3, "delete", 1, time="10:10"),
        watermark("11:09:59"),
        change(2, "update_after", 1, "Bonn", time="10:05"),
        batch(),
        expect(),
        watermark("11:10"),
        change(2, "update_after", 1, "Bonn", time="10:05"),
        batch(),
        expect(id=1, city="Bonn", change="insert"),
    )


def test_deletions_that_are_kept_for_ever_are() -> None:
    timeline(
        materialize("customers", key="id", keep_deleted=None),
        change(1, "insert", 1, "Rome"),
        change(3, "delete", 1),
        watermark("2036-01-01T00:00:00"),
        change(2, "update_after", 1, "Bonn"),
        batch(),
        expect(),
    )


def test_the_event_time_of_a_change_never_makes_it_late() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome", time="10:00"),
        watermark("12:00"),
        expect(id=1, change="insert", at="10:00"),
        change(2, "update_after", 1, "Bonn", time="10:01"),
        batch(),
        expect(id=1, city="Bonn", change="update_after", at="10:01"),
    )


@pytest.mark.spark
def test_before_images_are_the_rows_that_were_emitted_before() -> None:
    timeline(
        materialize("customers", key="id", before_images=True),
        change(1, "insert", 1, "Rome", time="10:00"),
        batch(),
        expect(id=1, city="Rome", change="insert", position="0001", at="10:00"),
        change(2, "update_after", 1, "Bonn", time="10:01"),
        change(3, "update_after", 1, "Oslo", time="10:02"),
        batch(),
        expect(
            row(id=1, city="Rome", change="update_before", position="0003", at="10:00"),
            row(id=1, city="Oslo", change="update_after", position="0003", at="10:02"),
        ),
        change(4, "delete", 1, time="10:03"),
        batch(),
        expect(id=1, city="Oslo", change="delete", position="0004", at="10:02"),
    )


def test_values_that_were_not_sent_are_those_of_the_row_before() -> None:
    timeline(
        TABLE,
        change(1, "insert", 1, "Rome", note="long", unchanged=None),
        change(2, "update_after", 1, "Bonn", note=None, unchanged=["note"]),
        batch(),
        expect(id=1, city="Bonn", note="long", change="insert"),
        change(3, "update_after", 1, None, note=None, unchanged=["note", "city"]),
        batch(),
        expect(id=1, city="Bonn", note="long", change="update_after"),
        change(4, "update_after", 1, "Kiev", note=None, unchanged=[]),
        batch(),
        expect(id=1, city="Kiev", note=None, change="update_after"),
        change(5, "update_after", 2, "Oslo", note=None, unchanged=["note"]),
        batch(),
        expect(id=2, city="Oslo", note=None, change="insert"),
    )


def test_a_row_that_does_not_say_what_it_changes_is_a_dead_letter() -> None:
    played = play(
        TABLE,
        change(1, "insert", 1, "Rome"),
        change(2, "upsert", 1, "Bonn"),
        at("10:00", id=1, city="Oslo", change=None, position="0003"),
        at("10:00", id=1, city="Kiev", change="insert", position=None),
        batch(),
    )
    assert [(each["city"], each["change"]) for each in played.main] == [("Rome", "insert")]
    assert [(each["reason"], each["detail"]) for each in played.dead_letters] == [
        ("CHANGE_UNKNOWN", "change is upsert, not one of insert, update_after, delete, update_before"),
        ("CHANGE_UNKNOWN", "change is null, not one of insert, update_after, delete, update_before"),
        ("POSITION_NULL", "position is null, so the order of the change is unknown"),
    ]


def test_keys_of_several_columns_may_hold_nulls() -> None:
    timeline(
        materialize("lines", key=["id", "city"]),
        change(1, "insert", None, "Rome"),
        change(2, "insert", 1, None),
        change(3, "insert", None, None),
        batch(),
        expect(row(id=None, city="Rome"), row(id=1, city=None), row(id=None, city=None)),
        change(4, "delete", None, None),
        change(4, "delete", 1, None),
        batch(),
        expect(row(id=None, city=None, change="delete"), row(id=1, city=None, change="delete")),
    )


@pytest.mark.parametrize("batches", [[], [batch()]], ids=["one batch", "three batches"])
def test_a_deleted_row_gives_its_values_to_none_though_it_was_sent_whole(batches: list[Any]) -> None:
    played = play(
        TABLE,
        change(1, "insert", 1, "Rome", note="long", unchanged=None),
        *batches,
        change(2, "delete", 1, "Rome", note="long", unchanged=None),
        *batches,
        change(3, "insert", 1, "Bonn", note=None, unchanged=["note"]),
        batch(),
    )
    assert [(each["city"], each["note"]) for each in played.main][-1] == ("Bonn", None)


@pytest.mark.parametrize("batches", [[], [batch()]], ids=["one batch", "three batches"])
@pytest.mark.parametrize("unsent", [None, ["note"]], ids=["brings the value", "does not"])
def test_the_old_row_of_an_update_gives_its_values_to_the_new_one(batches: list[Any], unsent: Any) -> None:
    played = play(
        TABLE,
        change(1, "insert", 1, "Rome", note="long", unchanged=None),
        *batches,
        change(2, "update_before", 1, "Rome", note=None if unsent else "long", unchanged=unsent),
        *batches,
        change(2, "update_after", 1, "Bonn", note=None, unchanged=["note"]),
        batch(),
    )
    assert [(each["city"], each["note"]) for each in played.main][-1] == ("Bonn", "long")


@pytest.mark.parametrize(("one", "same"), [(-0.0, 0.0), (0.0, -0.0), (float("nan"), -float("nan"))])
@pytest.mark.parametrize("before_images", [False, True])
def test_a_row_is_deleted_by_a_key_that_is_the_same_number(one: float, same: float, before_images: bool) -> None:
    timeline(
        materialize("customers", key="id", before_images=before_images),
        change(1, "insert", one, "Rome"),
        batch(),
        expect(city="Rome", change="insert"),
        change(2, "delete", same),
        batch(),
        expect(change="delete"),
        change(1, "insert", one, "Rome"),  # stale
        batch(),
        expect(),
    )
