"""``hr.to_redis`` without a server: chunks, texts, errors, and what is shown of secrets."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from headrace.connectors.base.sink import TaskSink, Unreachable
from headrace.connectors.redis.chunks import CHUNK, RedisChunk, chunked
from headrace.connectors.redis.sink import to_redis
from headrace.errors import DefinitionError
from headrace.rendering import parse_template
from headrace.secrets import secret
from tests.writers import Writer

NOBODY = "redis://127.0.0.1:1/0"
WRITER = Writer("f", epoch=1)


def test_a_sink_prints_the_code_that_makes_it_and_hides_secrets() -> None:
    sink = to_redis("redis://:hunter2@cache/0", key="n:{id}", value="json", password="hunter2", writers=2)
    assert repr(sink) == "hr.to_redis('redis://:***@cache/0', key='n:{id}', value='json', password='***', writers=2)"
    named = to_redis("redis://cache/0", key="n:{id}", password=secret(env="P"), guarantee="at_least_once")
    assert repr(named) == (
        "hr.to_redis('redis://cache/0', key='n:{id}', password=hr.secret(env='P'), guarantee='at_least_once')"
    )
    assert "hunter2" not in sink.place


def test_a_sink_is_a_task_sink_and_travels_to_tasks() -> None:
    sink = to_redis(NOBODY, key="n:{a}:{b}", ttl="1 day")
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.partition_by, sink.writers) == (("a", "b"), None)
    assert "MARK_LOST" in sink.why


@pytest.mark.parametrize(
    ("wrong", "id"),
    [
        ({"value": "xml"}, "VALUE_UNKNOWN"),
        ({"guarantee": "maybe"}, "GUARANTEE_UNKNOWN"),
        ({"writers": 0}, "WRITERS_INVALID"),
        ({"ttl": "0 seconds"}, "DURATION_NOT_POSITIVE"),
        ({"key": "constant"}, "TEMPLATE_INVALID"),
        ({"url": "http://:hunter2@cache"}, "REDIS_URL"),
    ],
)
def test_a_definition_that_cannot_work_is_refused(wrong: dict[str, Any], id: str) -> None:
    given = {"url": NOBODY, "key": "n:{id}", **wrong}
    with pytest.raises(DefinitionError) as refusal:
        to_redis(given.pop("url"), **given)
    assert refusal.value.id == id
    assert "hunter2" not in str(refusal.value)


def test_a_template_of_a_column_that_is_not_there_is_refused_before_the_server_is_asked() -> None:
    with pytest.raises(DefinitionError) as refusal:
        to_redis(NOBODY, key="n:{nobody}").prepare({"id": pl.Int64()}, [WRITER.name], WRITER.epoch)
    assert refusal.value.id == "TEMPLATE_COLUMN"


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    sink = to_redis(NOBODY, key="n:{id}")
    with pytest.raises(Unreachable, match="refused"):
        sink.prepare({"id": pl.Int64()}, [WRITER.name], WRITER.epoch)
    with pytest.raises(Unreachable, match="refused"):
        sink.deliver(pl.DataFrame({"id": [1]}), WRITER.batch(0, 0, None))


def test_chunks_are_the_same_whatever_the_order_of_different_keys() -> None:
    changes = ["delete" if id % 3 == 0 else "insert" for id in range(2_500)]
    rows = pl.DataFrame({"id": range(2_500), "n": range(2_500), "change": changes})
    template = parse_template("n:{id}")
    chunks = chunked(rows, template, "hash", changelog=True).chunks
    assert [chunk.changes for chunk in chunks] == [CHUNK, CHUNK, 500]
    shuffled = rows.sample(fraction=1, shuffle=True, seed=7)
    assert chunked(shuffled, template, "hash", changelog=True).chunks == chunks


def test_only_the_last_change_of_a_key_is_kept_and_a_delete_is_one() -> None:
    rows = pl.DataFrame(
        {"id": [1, 2, 1, 3], "n": [5, 6, 7, 8], "change": ["insert", "insert", "delete", "update_after"]}
    )
    parts = chunked(rows, parse_template("n:{id}"), "json", changelog=True)
    assert parts.chunks == [RedisChunk(["n:1"], ["n:2", "n:3"], [b'{"id":2,"n":6}', b'{"id":3,"n":8}'])]
    assert parts.superseded == 1


def test_a_row_without_a_key_is_refused() -> None:
    parts = chunked(pl.DataFrame({"id": [1, None], "n": [5, 6]}), parse_template("n:{id}"), "json")
    assert [chunk.sets for chunk in parts.chunks] == [["n:1"]]
    assert parts.refused.rows() == [("NO_KEY", "a column of the key 'n:{id}' is null", b'{"id":null,"n":6}')]
    assert parts.refused.schema == {"reason": pl.String, "detail": pl.String, "raw": pl.Binary}


def test_a_hash_has_a_field_for_each_flat_column_that_is_not_null() -> None:
    rows = pl.DataFrame(
        {
            "id": [1],
            "window": [{"start": datetime(2025, 1, 1, 10, tzinfo=UTC), "end": datetime(2025, 1, 1, 11, tzinfo=UTC)}],
            "nothing": pl.Series([None], dtype=pl.Int64),
            "empty": [""],
            "price": [Decimal("1.20")],
            "part": [0.5],
            "open": [True],
            "day": [date(2025, 1, 1)],
            "bytes": [b"\x00\xff"],
            "list": [["a", None]],
        }
    )
    [chunk] = chunked(rows, parse_template("spend:{id}:{window_start}"), "hash").chunks
    assert chunk.sets == ["spend:1:2025-01-01T10:00:00Z"]
    width, *texts = chunk.values
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    assert width == len(texts)
    assert fields == {
        "id": "1",
        "window_start": "2025-01-01T10:00:00Z",
        "window_end": "2025-01-01T11:00:00Z",
        "empty": "",
        "price": "1.20",
        "part": "0.5",
        "open": "true",
        "day": "2025-01-01",
        "bytes": b"\x00\xff",
        "list": b'["a",null]',
    }


def test_a_part_of_which_every_row_is_refused_has_a_chunk_for_its_mark() -> None:
    rows = pl.DataFrame({"id": [None, None], "n": [5, 6]}, schema={"id": pl.Int64(), "n": pl.Int64()})
    for value in ("hash", "json"):
        parts = chunked(rows, parse_template("n:{id}"), value)
        assert parts.chunks == [RedisChunk([], [], [])]
        assert parts.refused.height == 2
