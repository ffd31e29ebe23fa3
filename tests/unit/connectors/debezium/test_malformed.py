"""Messages that are no changes become dead letters with the reason and their bytes; the others are not affected."""

from __future__ import annotations

import pytest

from tests.unit.connectors.debezium.recorded import change, dead, decoded, written

ANN = {"id": 1, "name": "Ann"}


@pytest.mark.parametrize(
    ("message", "reason", "detail"),
    [
        (b"{broken", "NOT_JSON", "Expecting property name enclosed in double quotes at character 2"),
        (b"", "NOT_JSON", "Expecting value at character 1"),
        (b'{"schema":{},"payload":{broken}', "NOT_JSON", None),
        (b"[1]", "NOT_AN_OBJECT", "found [1]"),
        (b'"op"', "NOT_AN_OBJECT", 'found "op"'),
        (b'{"id": 1, "name": "\xff"}', "NOT_UTF8", "the message holds bytes that are not UTF-8"),
        ({**change("c"), "after": 5}, "WRONG_TYPE", "column after is STRUCT<id: STRING, name: STRING>, found 5"),
        (change("c", after={"name": "Ann"}), "MISSING_VALUE", "column id is BIGINT NOT NULL, found no value"),
        ({}, "MISSING_VALUE", "column id is BIGINT NOT NULL, found no value"),
        ({"other": 1}, "MISSING_VALUE", "column id is BIGINT NOT NULL, found no value"),
        (change("c", after={"id": "one"}), "WRONG_TYPE", 'column id is BIGINT, found "one"'),
        (change("c"), "NOT_A_CHANGE", "op c has no row after it"),
        (change("u", before=ANN), "NOT_A_CHANGE", "op u has no row after it"),
        (change("d"), "NOT_A_CHANGE", "op d has neither a row before it nor a key"),
        (change("x", after=ANN), "NOT_A_CHANGE", "op x is not known"),
        (change("UNKNOWN_OP", after=ANN), "NOT_A_CHANGE", "op UNKNOWN_OP is not known"),
        (change("UNKNOWN_OP", before=ANN, after=ANN), "NOT_A_CHANGE", "op UNKNOWN_OP is not known"),
        ({"op": "UNKNOWN_OP", "before": None, "after": ANN}, "NOT_A_CHANGE", "op UNKNOWN_OP is not known"),
        ({**change("c", after=ANN), "op": None}, "NOT_A_CHANGE", "op null is not known"),
        (b'{"id": 1, "name": "' + b"x" * 2_000_000 + b'"}', "TOO_LARGE", "the message is longer than 1048576 bytes"),
    ],
)
def test_a_malformed_message_is_a_dead_letter(message: object, reason: str, detail: str | None) -> None:
    found = decoded(change("c", after=ANN), message, change("d", before=ANN), first=7)
    assert found.rows.select("id", "change", "__position").rows() == [(1, "insert", 7), (1, "delete", 9)]
    ((position, found_reason, found_detail),) = dead(found)
    assert (position, found_reason) == (8, reason)
    if detail is not None:
        assert found_detail == detail
    assert found.dead["raw"].to_list() == [(written(message) or b"")[: 64 * 1024]]


def test_a_delete_whose_key_cannot_be_read_is_a_dead_letter() -> None:
    found = decoded(change("d"), change("d"), keys=[b"{broken", {"id": 4}])
    assert dead(found) == [(0, "NOT_A_CHANGE", "op d has neither a row before it nor a key")]
    assert found.rows["id"].to_list() == [4]


def test_a_schema_part_that_is_none_of_kafka_connects_is_passed_over() -> None:
    found = decoded(
        {"schema": {"fields": 5}, "payload": change("c", after=ANN)},
        {"schema": "text", "payload": change("c", after=ANN)},
        {"schema": None, "payload": change("c", after=ANN)},
    )
    assert found.rows["id"].to_list() == [1, 1, 1]
    assert dead(found) == []


def test_rows_and_dead_letters_and_skipped_messages_are_all_messages() -> None:
    good, update, bad = change("c", after=ANN), change("u", before=ANN, after=ANN), b"{broken"
    found = decoded(*[good, update, bad, None] * 300)
    assert found.rows["__position"].n_unique() + found.dead.height + found.skipped == 1200
    assert (found.rows.height, found.dead.height, found.skipped) == (900, 300, 300)
