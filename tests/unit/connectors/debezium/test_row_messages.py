"""Canal's and Maxwell's messages, and compacted topics: the rows of a changelog, and the reasons of dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.connectors.debezium.changes import DebeziumChanges
from headrace.errors import DefinitionError, HeadraceError
from tests.unit.connectors.debezium.recorded import dead, decoded, rows

COLUMNS = "id BIGINT, name STRING, weight DECIMAL(10,2)"
CANAL = hr.canal_changes(COLUMNS, key="id")
MAXWELL = hr.maxwell_changes(COLUMNS, key="id")
TABLE = hr.upsert_changes(COLUMNS, key="id")
AT = datetime(2020, 5, 13, 12, 39, 20, tzinfo=UTC)


def canal(type: str, *data: dict[str, Any], old: Any = None, **more: Any) -> dict[str, Any]:
    """A message as Canal writes it: all values are text, and a message has the rows of a statement."""
    texts = [{name: None if value is None else str(value) for name, value in row.items()} for row in data]
    known = {"data": texts or None, "database": "shop", "es": 1589373560000, "gtid": "", "id": 9, "isDdl": False}
    types = {"mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)"}, "pkNames": ["id"], "sql": "", "sqlType": {"id": 4}}
    return {**known, **types, "old": old, "table": "orders", "ts": 1589373560798, "type": type, **more}


def maxwell(type: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    """A message as Maxwell writes it."""
    known = {"database": "shop", "table": "orders", "type": type, "ts": 1589373560, "xid": 23396, "commit": True}
    return {**known, "data": data, **({} if old is None else {"old": old}), **more}


ANN, BOB = {"id": 1, "name": "Ann", "weight": "5.18"}, {"id": 2, "name": "Bob", "weight": None}
SHOWN = ("id", "name", "weight", "change")


def test_a_statement_of_canal_gives_each_of_its_rows_in_order() -> None:
    found = decoded(canal("INSERT", ANN, BOB), changes=CANAL)
    assert rows(found, *SHOWN, "committed_at") == [
        (1, "Ann", Decimal("5.18"), "insert", AT),
        (2, "Bob", None, "insert", AT),
    ]
    assert found.rows["position"].n_unique() == 2
    assert found.rows["position"].is_sorted()


def test_an_update_of_canal_has_the_row_before_made_of_its_old_values() -> None:
    old = [{"weight": "5.15"}, {"name": None, "weight": "1.00"}]
    found = decoded(canal("UPDATE", ANN, BOB, old=old), changes=CANAL)
    assert rows(found, *SHOWN) == [
        (1, "Ann", Decimal("5.15"), "update_before"),
        (1, "Ann", Decimal("5.18"), "update_after"),
        (2, None, Decimal("1.00"), "update_before"),
        (2, "Bob", None, "update_after"),
    ]
    assert found.rows["position"].n_unique() == 2


def test_an_update_of_canal_without_old_values_is_the_row_after_alone() -> None:
    assert rows(decoded(canal("UPDATE", ANN), changes=CANAL), *SHOWN) == [(1, "Ann", Decimal("5.18"), "update_after")]


def test_deletes_and_changed_keys() -> None:
    for deleted in (
        decoded(canal("DELETE", ANN), changes=CANAL),
        decoded(maxwell("delete", ANN), changes=MAXWELL),
    ):
        assert rows(deleted, *SHOWN) == [(1, "Ann", Decimal("5.18"), "delete")]
    for moved in (
        decoded(canal("UPDATE", ANN, old=[{"id": "7"}]), changes=CANAL),
        decoded(maxwell("update", ANN, old={"id": 7}), changes=MAXWELL),
    ):
        assert rows(moved, "id", "change") == [(7, "delete"), (1, "insert")]


def test_maxwells_numbers_keep_their_digits_and_old_values_that_are_null_are_null() -> None:
    given = '{"id":1,"name":"Ann","weight":1234567.10}'
    old = '{"name":null,"weight":0.10}'
    message = f'{{"database":"shop","table":"orders","type":"update","ts":1589373560,"data":{given},"old":{old}}}'
    found = decoded(message.encode(), maxwell("bootstrap-insert", BOB), changes=MAXWELL)
    assert rows(found, *SHOWN, "committed_at", "transaction") == [
        (1, None, Decimal("0.10"), "update_before", AT, None),
        (1, "Ann", Decimal("1234567.10"), "update_after", AT, None),
        (2, "Bob", None, "insert", AT, "23396"),
    ]


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            CANAL,
            [
                canal("CREATE", isDdl=True, sql="create table x"),
                canal("ALTER", isDdl=True),
                canal("QUERY", isDdl=False),
                None,
            ],
        ),
        (
            MAXWELL,
            [maxwell("table-alter", None), maxwell("bootstrap-start", {}), maxwell("bootstrap-complete", {}), None],
        ),
    ],
)
def test_what_concerns_no_row_is_skipped_and_counted(changes: DebeziumChanges, messages: list[Any]) -> None:
    found = decoded(*messages, changes=changes)
    assert (found.rows.height, found.dead.height, found.skipped) == (0, 0, len(messages))


def test_of_a_topic_with_several_tables_one_is_read() -> None:
    one = hr.canal_changes(COLUMNS, key="id", table="shop.orders")
    found = decoded(
        canal("INSERT", ANN), canal("INSERT", BOB, table="others"), canal("INSERT", BOB, database="x"), changes=one
    )
    assert (rows(found, "id"), found.skipped) == ([(1,)], 2)
    other = hr.maxwell_changes(COLUMNS, key="id", table="shop.others")
    assert decoded(maxwell("insert", ANN), changes=other).skipped == 1


@pytest.mark.parametrize(
    ("changes", "message", "reason", "detail"),
    [
        (CANAL, b"{", "NOT_JSON", ""),
        (CANAL, canal("MERGE", ANN), "NOT_A_CHANGE", "op merge is not known"),
        (CANAL, {"data": [ANN]}, "NOT_A_CHANGE", "op null is not known"),
        (CANAL, canal("INSERT"), "NOT_A_CHANGE", "op c has no row after it"),
        (CANAL, canal("DELETE"), "NOT_A_CHANGE", "op d has neither a row before it nor a key"),
        (CANAL, canal("INSERT", {**ANN, "weight": "heavy"}), "WRONG_TYPE", "column weight is DECIMAL(10,2), found"),
        (CANAL, canal("INSERT", {**ANN, "id": None}), "MISSING_VALUE", "column id is BIGINT NOT NULL"),
        (CANAL, canal("INSERT", data="text"), "NOT_JSON", ""),
        (CANAL, canal("TRUNCATE", isDdl=True), "TABLE_TRUNCATED", "the table was truncated"),
        (MAXWELL, maxwell("upsert", ANN), "NOT_A_CHANGE", "op upsert is not known"),
        (MAXWELL, maxwell("insert", None), "NOT_A_CHANGE", "op c has no row after it"),
        (MAXWELL, maxwell("update", {**ANN, "id": "x"}), "WRONG_TYPE", "column id is BIGINT, found"),
        (MAXWELL, maxwell("insert", [ANN]), "WRONG_TYPE", "column data"),
        (TABLE, b"[1]", "NOT_AN_OBJECT", ""),
        (TABLE, {"id": "x", "name": "Ann"}, "WRONG_TYPE", "column id is BIGINT, found"),
    ],
)
def test_a_message_that_cannot_be_used_is_a_dead_letter_with_its_reason(
    changes: DebeziumChanges, message: Any, reason: str, detail: str
) -> None:
    good = canal("INSERT", BOB) if changes is CANAL else maxwell("insert", BOB) if changes is MAXWELL else BOB
    found = decoded(good, message, good, changes=changes, keys=[{"id": 2}] * 3)
    assert [(position, why) for position, why in found.dead.select("position", "reason").rows()] == [(1, reason)]
    assert detail in found.dead["detail"][0]
    assert found.rows["id"].to_list() == [2, 2]


def test_a_truncated_table_stops_the_flow_if_that_is_said() -> None:
    stopping = hr.canal_changes(COLUMNS, key="id", on_truncate="stop")
    with pytest.raises(HeadraceError, match=r"\[TABLE_TRUNCATED\]"):
        decoded(canal("TRUNCATE", isDdl=True), changes=stopping)


def test_a_message_of_a_compacted_topic_is_the_row_of_its_key_and_one_without_a_value_deletes_it() -> None:
    found = decoded(
        ANN,
        None,
        {"id": 2, "op": "d", "before": None, "name": "Bob"},
        None,
        changes=TABLE,
        keys=[b"1", b"1", b"2", {"id": 2}],
    )
    assert rows(found, *SHOWN) == [
        (1, "Ann", Decimal("5.18"), "update_after"),
        (1, None, None, "delete"),
        (2, "Bob", None, "update_after"),
        (2, None, None, "delete"),
    ]
    assert found.rows["position"].is_sorted()


def test_keys_of_several_columns_and_of_strange_texts_are_found_again() -> None:
    two = hr.upsert_changes("shop STRING, id BIGINT, n INT", key=["shop", "id"])
    assert rows(decoded(None, changes=two, keys=[{"shop": "x", "id": 3}]), "shop", "id", "change") == [
        ("x", 3, "delete")
    ]
    text = hr.upsert_changes("name STRING, n INT", key="name")
    strange = ['a"b', "{x", "7", " ", "é\\", "null"]
    found = decoded(*[None] * len(strange), changes=text, keys=[each.encode() for each in strange])
    assert rows(found, "name", "change") == [(each, "delete") for each in strange]


def test_a_tombstone_without_a_key_is_a_dead_letter() -> None:
    found = decoded(None, changes=TABLE, keys=[None])
    assert dead(found) == [(0, "NOT_A_CHANGE", "op d has neither a row before it nor a key")]


values = st.one_of(
    st.none(), st.text(max_size=8), st.sampled_from(['"name":null', '": null', "null", '\\": null,', "{}", "é"])
)
table_rows = st.fixed_dictionaries({"id": st.integers(1, 9), "name": values, "note": values})


@given(st.lists(st.tuples(table_rows, table_rows, st.booleans()), min_size=1, max_size=5))
def test_any_update_is_the_row_before_and_the_row_after(
    updates: list[tuple[dict[str, Any], dict[str, Any], bool]],
) -> None:
    """Whatever texts and nulls rows hold, old values are told from those that have not changed."""
    columns = "id BIGINT, name STRING, note STRING"
    changed = [
        (
            {**before, "id": after["id"]},
            after,
            {name: before[name] for name in ("name", "note") if before[name] != after[name]},
        )
        for before, after, _ in updates
    ]
    wanted = [
        (row["id"], row["name"], row["note"], change)
        for before, after, _ in changed
        for row, change in ((before, "update_before"), (after, "update_after"))
    ]
    by_maxwell = decoded(
        *(maxwell("update", after, old=old) for _, after, old in changed), changes=hr.maxwell_changes(columns, key="id")
    )
    by_canal = decoded(
        canal("UPDATE", *(after for _, after, _ in changed), old=[old for *_, old in changed]),
        changes=hr.canal_changes(columns, key="id"),
    )
    for found in (by_maxwell, by_canal):
        assert rows(found, "id", "name", "note", "change") == wanted


@pytest.mark.parametrize(
    ("define", "error"),
    [
        (lambda: hr.canal_changes("id BIGINT", key="nr"), r"\[COLUMN_UNKNOWN\] canal_changes: key column 'nr'"),
        (lambda: hr.maxwell_changes("id BIGINT, change INT", key="id"), r"\[COLUMN_EXISTS\] maxwell_changes: 'change'"),
        (lambda: hr.upsert_changes("id BIGINT", key=[]), r"\[COLUMN_UNKNOWN\] upsert_changes: key=\[\]"),
        (lambda: hr.canal_changes("id BIGINT", key="id", on_truncate="wait"), r"\[ON_TRUNCATE_UNKNOWN\]"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_in_a_definition_are_refused(define: Any, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        define()
