"""What can be wrong in the definition of an HTTP sink."""

from __future__ import annotations

import pickle
from typing import Any

import polars as pl
import pytest

from headrace.errors import DefinitionError
from headrace.sinks.http import idempotency_key, to_http
from headrace.sinks.sink import TaskSink


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("ftp://host/in", {}, "URL_INVALID"),
        ("host/in", {}, "URL_INVALID"),
        ("http://host", {"batch": 0}, "BATCH_INVALID"),
        ("http://host", {"retries": -1}, "RETRIES_INVALID"),
        ("http://host", {"writers": 0}, "WRITERS_INVALID"),
        ("http://host", {"timeout": "0 seconds"}, "DURATION_NOT_POSITIVE"),
    ],
)
def test_a_definition_that_cannot_work_is_an_error(url: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        to_http(url, identity="id", **options)


@pytest.mark.parametrize("kind", [None, pl.List(pl.String())])
def test_the_identity_must_be_a_column_with_single_values(kind: pl.DataType | None) -> None:
    columns = {"n": pl.Int64()} | ({} if kind is None else {"id": kind})
    with pytest.raises(DefinitionError, match=r"IDENTITY_MISSING.*Existing columns: n"):
        to_http("http://127.0.0.1:1", identity="id").prepare(columns, [])


def test_a_password_in_the_url_is_used_and_never_shown() -> None:
    sink = to_http("http://ann:hunt%65r2@host/in?key=hunter2", identity="id")
    assert sink.endpoint.login == ("ann", "hunter2")
    assert "hunter2" not in repr(sink) + sink.place + sink.why
    assert "hunt%65r2" not in repr(sink)


def test_it_is_a_sink_that_travels_to_tasks() -> None:
    sink = to_http("http://host/in", identity="id", headers={"A": "b"})
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.guarantee, sink.dealt_by) == ("at_least_once", ("id",))


def test_the_key_of_a_request_depends_on_which_rows_there_are_and_not_on_their_order() -> None:
    key = idempotency_key(pl.Series(["a", "b"]))
    assert key == idempotency_key(pl.Series(["b", "a"]))
    assert key != idempotency_key(pl.Series(["ab"]))
    assert key != idempotency_key(pl.Series(["a", "b", "c"]))
