"""The definition of an HTTP sink, and how it tells bad rows from a server that fails."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import httpx
import polars as pl
import pytest

from headrace.connectors.base.sink import Delivered, TaskSink, Unreachable
from headrace.connectors.http.client import Endpoint
from headrace.connectors.http.sink import idempotency_key, to_http
from headrace.errors import DefinitionError
from tests.writers import Writer


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
        to_http("http://127.0.0.1:1", identity="id").prepare(columns, [], 1)


def test_a_password_in_the_url_is_used_and_never_shown() -> None:
    sink = to_http("http://ann:hunt%65r2@host/in?key=hunter2", identity="id")
    assert sink.endpoint.login == ("ann", "hunter2")
    assert "hunter2" not in repr(sink) + sink.place + sink.why
    assert "hunt%65r2" not in repr(sink)


def test_it_is_a_sink_that_travels_to_tasks() -> None:
    sink = to_http("http://host/in", identity="id", headers={"A": "b"})
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.guarantee, sink.partition_by) == ("at_least_once", ("id",))


def test_the_key_of_a_request_depends_on_which_rows_there_are_and_not_on_their_order() -> None:
    key = idempotency_key(pl.Series(["a", "b"]))
    assert key == idempotency_key(pl.Series(["b", "a"]))
    assert key != idempotency_key(pl.Series(["ab"]))
    assert key != idempotency_key(pl.Series(["a", "b", "c"]))


class _Server:
    """Answers as it is told, from the rows of a request and its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: Callable[[list[int], int], int]) -> None:
        self.requests, self.accepted = 0, list[int]()

        def request(endpoint: Endpoint, method: str, *, content: bytes, headers: Any) -> httpx.Response:
            self.requests += 1
            given = [row["id"] for row in json.loads(content)]
            answer = httpx.Response(status(given, self.requests))
            if answer.is_success:
                self.accepted += given
            return answer

        monkeypatch.setattr(Endpoint, "request", request)


def _deliver(rows: int) -> Delivered:
    part = Writer("flow", epoch=1).batch(0, 0, None)
    return to_http("http://host/in", identity="id").deliver(pl.DataFrame({"id": range(rows)}), part)


def _refused(delivered: Delivered) -> list[int]:
    return [] if delivered.refused is None else sorted(json.loads(raw)["id"] for raw in delivered.refused["raw"])


@pytest.mark.parametrize("bad", [{1, 2}, set(range(40)), set(range(150)), set(range(0, 200, 2)), set(range(0, 200, 7))])
def test_neighbouring_rows_at_which_the_server_fails_are_refused_and_the_others_arrive_once(
    monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    server = _Server(monkeypatch, lambda given, number: 500 if bad & set(given) else 200)
    assert _refused(_deliver(200)) == sorted(bad)
    assert sorted(server.accepted) == sorted(set(range(200)) - bad)


@pytest.mark.parametrize("rows", [2, 5, 500])
def test_a_server_that_fails_at_every_row_is_waited_for_after_few_requests(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    server = _Server(monkeypatch, lambda given, number: 500)
    with pytest.raises(Unreachable, match="500"):
        _deliver(rows)
    assert server.requests <= 80


def test_a_row_at_which_the_server_failed_before_it_worked_again_is_posted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of 200 rows the first alone is in the eighth request.
    server = _Server(monkeypatch, lambda given, number: 500 if number <= 12 or 7 in given else 200)
    assert _refused(_deliver(200)) == [7]
    assert sorted(server.accepted) == [n for n in range(200) if n != 7]


def test_a_server_that_breaks_down_while_a_bad_row_is_looked_for_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server(monkeypatch, lambda given, number: 500 if number > 10 or 7 in given else 200)
    with pytest.raises(Unreachable, match="500"):
        _deliver(500)
    assert server.accepted


def test_a_server_that_judges_some_rows_and_fails_at_the_others_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _Server(monkeypatch, lambda given, number: 422 if given == [1] else 500)
    assert _refused(_deliver(3)) == [0, 1, 2]


def test_a_row_that_is_alone_and_at_which_the_server_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _Server(monkeypatch, lambda given, number: 500)
    assert _refused(_deliver(1)) == [0]
