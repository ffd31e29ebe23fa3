"""An outbox: which changes of the table are messages, and in which order those of a key leave."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.operators.outbox import outbox
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

relay = outbox("relay")


def written(time: str, key: str | None, payload: str | None, position: int, change: str = "insert", **more: Any) -> Any:
    """A change of the outbox table."""
    where = f"{position:04d}"
    return at(time, aggregate_id=key, payload=payload, change=change, position=where, **more)


@pytest.mark.spark
def test_every_insert_is_a_message_with_key_value_position_and_time() -> None:
    timeline(
        relay,
        written("10:00", "a", "created", 1),
        written("10:01", "b", "created", 2),
        batch(),
        expect(
            row(key="a", value="created", position="0001", at="10:00"),
            row(key="b", value="created", position="0002", at="10:01"),
        ),
    )


@pytest.mark.spark
def test_the_messages_of_a_key_leave_in_the_order_of_their_positions_wherever_they_were_read() -> None:
    timeline(
        relay,
        written("10:00", "a", "third", 3, partition=0),
        written("10:00", "a", "first", 1, partition=1),
        written("10:00", "a", "second", 2, partition=2),
        batch(),
        expect(row(key="a", value="first"), row(key="a", value="second"), row(key="a", value="third")),
    )


@pytest.mark.spark
def test_updates_and_deletes_of_the_table_are_no_messages() -> None:
    timeline(
        relay,
        written("10:00", "a", "created", 1),
        written("10:01", "a", "created", 2, "update_before"),
        written("10:01", "a", "altered", 2, "update_after"),
        written("10:02", "a", None, 3, "delete"),
        batch(),
        expect(key="a", value="created"),
    )


@pytest.mark.spark
def test_a_change_behind_the_watermark_is_a_message_all_the_same() -> None:
    timeline(
        relay,
        written("10:00", "a", "first", 1),
        watermark("12:00"),
        expect(key="a", value="first"),
        written("09:00", "a", "second", 2),
        batch(),
        expect(key="a", value="second", at="09:00"),
    )


@pytest.mark.spark
def test_a_crash_neither_loses_nor_doubles_nor_reorders_messages() -> None:
    timeline(
        relay,
        written("10:00", "a", "first", 1),
        batch(),
        expect(key="a", value="first"),
        written("10:01", "a", "third", 3),
        written("10:01", "a", "second", 2),
        crash(),
        written("10:02", "a", "fourth", 4),
        batch(),
        expect(row(key="a", value="second"), row(key="a", value="third"), row(key="a", value="fourth")),
    )


@pytest.mark.spark
def test_a_message_may_have_no_key_and_no_value() -> None:
    timeline(
        relay,
        written("10:00", None, "to everybody", 1),
        written("10:00", "a", None, 2),
        batch(),
        expect(row(key=None, value="to everybody"), row(key="a", value=None)),
    )


def test_a_row_that_does_not_say_what_it_changes_is_a_dead_letter() -> None:
    played = play(
        relay,
        written("10:00", "a", "created", 1),
        written("10:00", "a", "paid", 2, "INSERT"),
        at("10:00", aggregate_id="a", payload="sent", change=None, position="0003"),
        at("10:00", aggregate_id="a", payload="closed", change="insert", position=None),
        batch(),
    )
    assert [message["value"] for message in played.main] == ["created"]
    assert [(each["reason"], each["detail"]) for each in played.dead_letters] == [
        ("CHANGE_UNKNOWN", "change is INSERT, not one of insert, update_after, delete, update_before"),
        ("CHANGE_UNKNOWN", "change is null, not one of insert, update_after, delete, update_before"),
        ("POSITION_NULL", "position is null, so the order of the change is unknown"),
    ]


def test_changes_that_a_source_sends_again_are_messages_once_behind_deduplicate() -> None:
    once = hr.deduplicate("once", key="id", within="1 hour").late(hr.side_output())
    timeline(
        (once, relay),
        written("10:00", "a", "first", 1, id=1, partition=1),
        written("10:00", "b", "first", 2, id=2, partition=0),
        written("10:00", "a", "first", 1, id=1, partition=0),
        crash(),
        batch(),
        expect(row(key="a", value="first", position="0001"), row(key="b", value="first", position="0002")),
        written("10:02", "a", "third", 4, id=4, partition=0),
        written("10:01", "a", "second", 3, id=3, partition=1),
        written("10:00", "a", "first", 1, id=1, partition=0),
        batch(),
        expect(row(key="a", value="second"), row(key="a", value="third")),
        written("10:30", "a", "first", 9, id=1),  # a snapshot that was begun anew
        batch(),
        expect(),
        watermark("12:00"),
        written("10:01", "a", "second", 3, id=3),
        batch(),
        expect(),
        expect(id=3, payload="second", output="late"),
    )


def test_a_timeline_of_an_outbox_demands_the_order_of_a_keys_messages() -> None:
    given = [written("10:00", "a", "first", 1), written("10:00", "a", "second", 2), batch()]
    timeline(relay, *given, expect(row(key="a", value="first"), row(key="a", value="second")))
    with pytest.raises(AssertionError, match="not what the timeline expects"):
        timeline(relay, *given, expect(row(key="a", value="second"), row(key="a", value="first")))


def test_a_key_that_is_a_number_becomes_text() -> None:
    (only,) = play(relay, at("10:00", aggregate_id=7, payload="x", change="insert", position="1"), batch()).main
    assert (only["key"], only["value"]) == ("7", "x")


def test_a_payload_must_be_text_or_bytes() -> None:
    with pytest.raises(hr.DefinitionError, match="payload column 'payload' is Int64") as raised:
        play(relay, at("10:00", aggregate_id="a", payload=7, change="insert", position="1"), batch())
    assert raised.value.id == "PAYLOAD_TYPE"


def test_rows_that_are_no_changelog_are_refused() -> None:
    with pytest.raises(hr.DefinitionError, match="takes a changelog") as raised:
        play(relay, at("10:00", aggregate_id="a", payload="x"), batch())
    assert raised.value.id == "CHANGELOG_EXPECTED"
