from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import DefinitionError


async def customer(key: Any) -> dict[str, Any]:
    return {"name": key}


@pytest.mark.parametrize("key", [5, ["account", 5], b"account", {"account": 1}, {"account"}, len])
@pytest.mark.parametrize(
    ("argument", "define"),
    [
        ("key", lambda key: hr.tumbling("w", size="1 hour", key=key)),
        ("key", lambda key: hr.session("w", gap="1 hour", key=key)),
        ("key", lambda key: hr.counting("w", rows=2, key=key, ttl="1 day")),
        ("key", lambda key: hr.deduplicate("w", key=key, within="1 hour")),
        ("key", lambda key: hr.materialize("m", key=key)),
        ("row_key", lambda key: hr.table_aggregate("t", key="shop", row_key=key)),
        ("left_key", lambda key: hr.table_join("t", on="id", left_key=key, right_key="id")),
        ("right_key", lambda key: hr.table_join("t", on="id", left_key="id", right_key=key)),
        ("key", lambda key: hr.debezium_changes("id BIGINT", key=key)),
        ("on", lambda key: hr.lookup("l", customer, on=key, output="name STRING", on_failure="null")),
        ("key", lambda key: hr.to_kafka("spend", servers="localhost:9092", key=key)),
        ("upsert_on", lambda key: hr.to_postgres("spend", dsn="host=db", upsert_on=key)),
        ("upsert_on", lambda key: hr.to_delta("spend", upsert_on=key)),
        ("partition_by", lambda key: hr.to_delta("spend", partition_by=key)),
    ],
)
def test_a_key_is_a_column_or_a_list_of_columns(argument: str, define: Callable[[Any], Any], key: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"\[KEY_UNREADABLE\] {argument}=.* names no columns"):
        define(key)
