"""Each kind of message becomes the rows of a changelog that say the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.connectors.debezium.changes import debezium_changes
from headrace.errors import HeadraceError
from tests.unit.connectors.debezium.recorded import (
    COMMITTED,
    CUSTOMERS,
    change,
    dead,
    decoded,
    postgres,
    rows,
    with_schema,
)

ANN, BOB = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}
FIELDS = [{"type": "int64", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "name"}]


def without_rows(op: str) -> dict[str, Any]:
    """An envelope that leaves out what is null."""
    return {name: part for name, part in change(op).items() if part is not None}


def test_inserts_and_rows_of_a_snapshot_are_inserts() -> None:
    found = decoded(change("r", after=ANN), change("c", after=BOB))
    assert rows(found, "id", "name", "change") == [(1, "Ann", "insert"), (2, "Bob", "insert")]


def test_an_update_is_the_row_before_and_the_row_after_with_one_position() -> None:
    found = decoded(change("u", before=ANN, after={**ANN, "name": "Anna"}))
    position = "00000000000000000100:00000000000000000100"
    assert rows(found, "id", "name", "change", "position") == [
        (1, "Ann", "update_before", position),
        (1, "Anna", "update_after", position),
    ]


def test_an_update_without_the_row_before_is_the_row_after_alone() -> None:
    assert rows(decoded(change("u", after=ANN)), "id", "name", "change") == [(1, "Ann", "update_after")]


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert() -> None:
    found = decoded(change("u", before=ANN, after={**ANN, "id": 9}))
    assert rows(found, "id", "name", "change") == [(1, "Ann", "delete"), (9, "Ann", "insert")]


def test_a_delete_has_what_the_database_logged_of_the_row() -> None:
    found = decoded(change("d", before=ANN), change("d", before={"id": 2, "name": None}))
    assert rows(found, "id", "name", "change") == [(1, "Ann", "delete"), (2, None, "delete")]


@pytest.mark.parametrize("key", [{"id": 7}, {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": {"id": 7}}])
def test_a_delete_without_a_row_before_takes_the_key_of_its_message(key: object) -> None:
    found = decoded(change("d"), keys=[key])
    assert rows(found, "id", "name", "change") == [(7, None, "delete")]


def test_the_tombstone_after_a_delete_is_skipped_and_counted() -> None:
    found = decoded(change("d", before=ANN), None, b"null", {"schema": None, "payload": None}, keys=[{"id": 1}] * 4)
    assert rows(found, "id", "change") == [(1, "delete")]
    assert found.skipped == 3


def test_a_schema_part_changes_nothing_but_how_values_are_read() -> None:
    plain = [change("c", after=ANN), change("u", before=ANN, after=BOB), change("d", before=BOB)]
    assert decoded(*(with_schema(each, FIELDS) for each in plain)).rows.equals(decoded(*plain).rows)


def test_messages_written_with_white_space_or_in_another_order_are_read_too() -> None:
    whole = with_schema(change("c", after=ANN), FIELDS)
    turned = {"payload": whole["payload"], "schema": whole["schema"]}
    spaced = json.dumps(whole, indent=2).encode()
    found = decoded(json.dumps(turned).encode(), spaced, json.dumps(whole["payload"], indent=1).encode())
    assert rows(found, "id", "name", "change") == [(1, "Ann", "insert")] * 3


def test_forms_may_be_mixed_and_rows_keep_the_order_of_the_messages() -> None:
    flat = {**ANN, "__op": "u", "__lsn": 300, "__source_ts_ms": COMMITTED}
    found = decoded(flat, with_schema(change("c", after=BOB), FIELDS), change("d", before=ANN), None, flat, first=5)
    assert rows(found, "id", "change", "__position") == [
        (1, "update_after", 5),
        (2, "insert", 6),
        (1, "delete", 7),
        (1, "update_after", 9),
    ]


def test_a_change_is_timed_by_its_commit_or_else_by_the_connector_or_else_by_kafka() -> None:
    untimed = {**change("c", after=ANN, source=postgres(100, ts_ms=0)), "ts_ms": None}
    found = decoded(change("c", after=ANN), change("c", after=ANN, source=postgres(100, ts_ms=0)), untimed, first=1)
    assert [moment for (moment,) in rows(found, "committed_at")] == [
        datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
        datetime(2026, 1, 2, 3, 4, 5, 722_000, UTC),
        datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
    ]


def test_all_changes_of_a_transaction_have_its_name() -> None:
    def inserted(lsn: int, connector: str = "postgresql") -> dict[str, Any]:
        block = {"id": f"734:{lsn}", "total_order": 1, "data_collection_order": 1}
        return change("c", after=ANN, source=postgres(lsn, connector=connector), transaction=block)

    found = decoded(inserted(100), inserted(104), inserted(5, "mysql"), change("c", after=ANN))
    assert rows(found, "transaction") == [("734",), ("734",), ("734:5",), (None,)]


def test_unwrapped_rows_say_by_added_fields_what_happened() -> None:
    found = decoded(
        {**ANN, "__deleted": "false", "__op": "r", "__lsn": 90, "__source_ts_ms": COMMITTED},
        {**ANN, "__deleted": "false", "__op": "u", "__lsn": 95, "__sequence": '["91","95"]', "__ts_ms": COMMITTED},
        {**ANN, "name": None, "__deleted": "true", "__op": "d", "__source_lsn": 99, "__transaction_id": "7"},
        {**BOB},
    )
    assert rows(found, "id", "name", "change", "position", "transaction") == [
        (1, "Ann", "insert", "00000000000000000090:00000000000000000090", None),
        (1, "Ann", "update_after", "00000000000000000091:00000000000000000095", None),
        (1, None, "delete", "00000000000000000099:00000000000000000099", "7"),
        (2, "Bob", "update_after", "00000000000000000003", None),
    ]


def test_tombstones_of_unwrapped_rows_are_deletes_when_the_author_says_so() -> None:
    changes = debezium_changes("id BIGINT, name STRING", key="id", tombstones="delete")
    found = decoded({**ANN, "__lsn": 90}, None, BOB, changes=changes, keys=[{"id": 1}, {"id": 1}, {"id": 2}], first=4)
    assert rows(found, "id", "name", "change", "position") == [
        (1, "Ann", "update_after", "00000000000000000004"),
        (1, None, "delete", "00000000000000000005"),
        (2, "Bob", "update_after", "00000000000000000006"),
    ]
    assert found.skipped == 0


TRUNCATED = [
    pytest.param(change("t"), id="rows that are null"),
    pytest.param(without_rows("t"), id="no rows"),
    pytest.param(with_schema(without_rows("t"), FIELDS), id="no rows but a schema part"),
]


@pytest.mark.parametrize("message", TRUNCATED)
def test_a_truncated_table_is_a_dead_letter(message: dict[str, Any]) -> None:
    found = decoded(change("c", after=ANN), message)
    assert found.rows["id"].to_list() == [1]
    assert dead(found) == [(1, "TABLE_TRUNCATED", "the table was truncated")]


@pytest.mark.parametrize("message", TRUNCATED)
def test_a_truncated_table_stops_the_flow_when_the_author_says_so(message: dict[str, Any]) -> None:
    changes = debezium_changes("id BIGINT, name STRING", key="id", on_truncate="stop")
    with pytest.raises(HeadraceError, match=r"\[TABLE_TRUNCATED\] .* at 0*100:0*100, "):
        decoded(message, changes=changes)


@pytest.mark.parametrize("whole", [False, True])
def test_messages_that_the_database_puts_into_its_log_are_skipped(whole: bool) -> None:
    """They are about no table: neither they nor their schema part have a row."""
    note = {**without_rows("m"), "message": {"prefix": "note", "content": "aGk="}}
    fields = [{"type": "struct", "field": "source"}, {"type": "string", "field": "op"}]
    found = decoded({"schema": {"type": "struct", "fields": fields}, "payload": note} if whole else note)
    assert (rows(found, "id"), found.skipped) == ([], 1)


def test_large_values_that_were_not_sent_are_null_and_named() -> None:
    changes = debezium_changes(
        "id BIGINT, note STRING, photo BINARY, tags ARRAY<STRING>, marks ARRAY<INT>, more STRING", key="id"
    )
    unavailable = "__debezium_unavailable_value"
    sent = {"id": 1, "note": "n", "photo": "AQI=", "tags": ["a"], "marks": [1], "more": "{}"}
    kept = {
        "note": unavailable,
        "photo": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "tags": [unavailable],
        "marks": list(unavailable.encode()),
        "more": json.dumps({unavailable: unavailable}, separators=(",", ":")),
    }
    found = decoded(change("c", after=sent), change("u", after={"id": 1, **kept}), changes=changes)
    assert rows(found, "id", "note", "photo", "tags", "marks", "more", "unchanged") == [
        (1, "n", b"\x01\x02", ["a"], [1], "{}", []),
        (1, None, None, None, None, None, ["note", "photo", "tags", "marks", "more"]),
    ]


@pytest.mark.parametrize(("kind", "source"), [("STRING", "web"), ("STRUCT<site: STRING>", {"site": "web"})])
def test_a_table_may_have_columns_with_the_names_of_the_envelope(kind: str, source: object) -> None:
    changes = debezium_changes(f"id BIGINT, op STRING, source {kind}, payload STRING", key="id")
    row = {"payload": "p", "id": 1, "op": "t", "source": source}
    fields = [{"type": "int64", "field": "id"}, *({"type": "string", "field": name} for name in ("op", "source"))]
    whole = {"schema": {"type": "struct", "fields": fields}, "payload": row}
    found = decoded(row, whole, change("c", after=row), changes=changes)
    assert rows(found, "id", "op", "source", "payload", "change") == [
        (1, "t", source, "p", "update_after"),
        (1, "t", source, "p", "update_after"),
        (1, "t", source, "p", "insert"),
    ]


@pytest.mark.parametrize("source", [postgres(100), None])
@pytest.mark.parametrize("name", ["before", "after"])
@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("TIMESTAMP_NTZ", COMMITTED * 1000, datetime(2026, 1, 2, 3, 4, 5, 678_000)),
        ("DECIMAL(10, 2)", "BNI=", Decimal("12.34")),
        ("STRING", '{"$oid": "5f"}', '{"$oid": "5f"}'),
    ],
)
def test_a_text_column_with_the_name_of_a_side_makes_no_document_of_its_row(
    declared: str, value: object, expected: object, name: str, source: dict[str, Any] | None
) -> None:
    changes = debezium_changes(f"id BIGINT, v {declared}", key="id")
    row = {"id": 1, name: "x", "v": value}
    turned = {"op": "d", "source": source, "before": row}
    found = decoded(
        change("c", after=row, source=source),
        change("u", before=row, after=row, source=source),
        turned,
        changes=changes,
    )
    kinds = ["insert", "update_before", "update_after", "delete"]
    assert rows(found, "v", "change") == [(expected, kind) for kind in kinds]


AUDIT = debezium_changes("id BIGINT, op STRING, before STRING, after STRING", key="id")


@pytest.mark.parametrize(
    ("before", "after"), [("x", "y"), (None, "y"), ("x", None), (None, None), ('{"id": 5}', '{"id": 6}'), ("1", 2)]
)
@pytest.mark.parametrize("first", ["id", "before"])
def test_an_unwrapped_row_of_an_audit_table_is_no_envelope(before: object, after: object, first: str) -> None:
    row = {"id": 1, "op": "d", "before": before, "after": after}
    row = {first: row[first], **row}
    fields = [{"type": "int64", "field": "id"}, *({"type": "string", "field": name} for name in row if name != "id")]
    whole = {"schema": {"type": "struct", "fields": fields}, "payload": row}
    found = decoded({**row, "__op": "c"}, row, whole, change("r", after=row), changes=AUDIT, keys=[{"id": 1}] * 4)
    shown = (1, "d", before, None if after is None else str(after))
    assert rows(found, "id", "op", "before", "after", "change") == [
        (*shown, "insert"),
        (*shown, "update_after"),
        (*shown, "update_after"),
        (*shown, "insert"),
    ]


def test_an_unwrapped_row_that_holds_an_envelope_is_none() -> None:
    changes = debezium_changes("id BIGINT, log STRUCT<op: STRING, before: STRING>", key="id")
    found = decoded({"id": 1, "log": {"op": "c", "before": "x"}}, changes=changes)
    assert rows(found, "id", "log", "change") == [(1, {"op": "c", "before": "x"}, "update_after")]


def test_an_envelope_without_its_source_is_one_still() -> None:
    deleted = {"op": "d", "before": None, "after": None, "ts_ms": COMMITTED}
    documents = {"op": "c", "after": '{"id": 2, "name": "Bob"}'}
    found = decoded({"op": "c", "after": ANN}, deleted, documents, keys=[None, {"id": 1}, None])
    assert rows(found, "id", "name", "change") == [(1, "Ann", "insert"), (1, None, "delete"), (2, "Bob", "insert")]


@pytest.mark.parametrize(
    "row",
    [
        {"schema": "public", "payload": "x", "id": 1},
        {"schema": None, "payload": "x", "id": 1},
        {"schema": "public", "payload": None, "id": 1},
        {"schema": None, "payload": {"a": 1}, "id": 1},
        {"schema": None, "payload": {"a": 1}, "id": 1, "more": {}},
        {"schema": {"a": 1}, "payload": {"a": 1}, "id": 1, "more": {}},
        {"schema": {"type": "struct"}, "payload": {"a": 1}, "id": 1},
        {"schema": {"type": "struct"}, "payload": {"a": "}"}, "id": 1, "more": {"a": "{"}},
        {"schema": 5, "id": 1, "payload": [1]},
    ],
)
def test_a_table_may_have_columns_named_as_the_parts_of_a_message(row: dict[str, Any]) -> None:
    changes = debezium_changes("id BIGINT, schema STRING, payload STRING", key="id")
    found = decoded(row, changes=changes)
    held = (row["schema"], row["payload"])
    shown = (each if each is None or isinstance(each, str) else json.dumps(each) for each in held)
    assert rows(found, "id", "schema", "payload") == [(1, *shown)]


def test_a_table_may_have_no_other_columns_than_those() -> None:
    changes = debezium_changes("schema STRING, payload STRING", key="schema")
    found = decoded({"schema": "public", "payload": "x"}, {"schema": "other", "payload": None}, changes=changes)
    assert rows(found, "schema", "payload") == [("public", "x"), ("other", None)]


def test_nothing_gives_nothing() -> None:
    found = decoded()
    assert (found.rows.height, found.dead.height, found.skipped) == (0, 0, 0)
    assert found.rows.columns == [*CUSTOMERS.struct.fieldNames(), "__position"]


def test_a_key_that_is_a_decimal_may_be_a_number() -> None:
    changes = debezium_changes("id DECIMAL(10, 2), name STRING", key="id")
    found = decoded(change("d"), keys=[{"id": 1234}], changes=changes)
    assert rows(found, "id", "change") == [(Decimal(1234), "delete")]
