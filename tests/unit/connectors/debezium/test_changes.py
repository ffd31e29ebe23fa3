"""What an author can say about Debezium's messages, and what is refused before any is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.base.decoding import Columns
from headrace.connectors.debezium.changes import debezium_changes
from headrace.connectors.debezium.decoder import DebeziumFiles, debezium_messages
from headrace.errors import DefinitionError
from headrace.schemas import polars_schema
from tests.unit.connectors.debezium.recorded import CUSTOMERS, change, decoder, written

COLUMNS = "id BIGINT, name STRING"


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        (COLUMNS, {"key": "number"}, r"\[COLUMN_UNKNOWN\] .* key column 'number' .* out of: id, name"),
        (COLUMNS, {"key": []}, r"\[COLUMN_UNKNOWN\] .* key=\[\] names no column"),
        ("id BIGINT, position INT", {"key": "id"}, r"\[COLUMN_EXISTS\] .*'position' is also a column"),
        (COLUMNS, {"key": "id", "on_truncate": "skip"}, r"\[ON_TRUNCATE_UNKNOWN\] .* Use 'dead_letter' or 'stop'"),
        (COLUMNS, {"key": "id", "tombstones": "keep"}, r"\[TOMBSTONES_UNKNOWN\] .* Use 'skip' or 'delete'"),
        (COLUMNS, {"key": "id", "decimals": "double"}, r"\[DECIMALS_UNKNOWN\] .* Use 'base64' or 'text'"),
        (COLUMNS, {"key": "id", "times": "seconds"}, r"\[TIMES_UNKNOWN\] times='seconds'"),
        ("id", {"key": "id"}, r"\[SCHEMA_UNREADABLE\]"),
    ],
)
def test_a_mistake_is_told_at_once(columns: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        debezium_changes(columns, **options)


def test_it_prints_itself_as_the_code_that_makes_it() -> None:
    assert repr(CUSTOMERS) == "hr.debezium_changes('id BIGINT, name STRING', key='id')"
    more = debezium_changes(COLUMNS, key=["id", "name"], times="milliseconds")
    assert repr(more) == ("hr.debezium_changes('id BIGINT, name STRING', key=['id', 'name'], times='milliseconds')")


def test_every_column_may_be_null_because_a_delete_has_its_key_alone() -> None:
    struct = debezium_changes("id BIGINT NOT NULL, name STRING NOT NULL", key="id").struct
    assert all(field.nullable for field in struct.fields)


def test_only_json_is_read() -> None:
    with pytest.raises(DefinitionError, match=r"\[FORMAT_UNKNOWN\]"):
        debezium_messages(CUSTOMERS, polars_schema(CUSTOMERS.struct), "csv")


def test_what_the_source_fills_is_no_key() -> None:
    changes = debezium_changes("id BIGINT, _key STRING", key="_key")
    declared = {name: kind for name, kind in polars_schema(changes.struct).items() if name != "_key"}
    with pytest.raises(DefinitionError, match=r"\[COLUMN_UNKNOWN\] .* '_key' is filled by the source .* out of: id"):
        debezium_messages(changes, declared, "json")


def test_recorded_messages_are_read_line_by_line(tmp_path: Path) -> None:
    flat = {"id": 1, "name": "Ann"}
    lines = [written(change("c", after=flat)), b"null", b"", b"{broken", written(flat)]
    (tmp_path / "part-1.json").write_bytes(b"\n".join(line or b"" for line in lines))
    (found,) = DebeziumFiles(Columns(polars_schema(CUSTOMERS.struct)), decoder()).decode(str(tmp_path / "part-1.json"))
    assert found.rows.select("id", "change", "position", "__position").rows() == [
        (1, "insert", "00000000000000000100:00000000000000000100", 1),
        (1, "update_after", "part-1.json:00000000000000000005", 5),
    ]
    assert found.dead.select("position", "reason", "raw").rows() == [(4, "NOT_JSON", b"{broken")]
    assert found.skipped == 1


def test_a_file_that_is_not_there_is_one_dead_row() -> None:
    (found,) = DebeziumFiles(Columns(polars_schema(CUSTOMERS.struct)), decoder()).decode("no/such/file")
    assert found.dead["reason"].to_list() == ["FILE_UNREADABLE"]
    assert found.rows.columns == [*CUSTOMERS.struct.fieldNames(), "__position"]
