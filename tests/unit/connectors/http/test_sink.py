"""The definition of an HTTP sink, and how it tells bad rows from a server that fails."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import polars as pl
import pytest

from headrace.connectors.base.sink import Delivered, TaskSink, Unreachable
from headrace.connectors.http import client
from headrace.connectors.http.client import Endpoint
from headrace.connectors.http.sink import idempotency_key, to_http
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import Secret, secret
from tests.bad_service import BadService, bad_service
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


CANARY = "c4n4ry/hunter+2"


@pytest.fixture
def repeating() -> Iterator[BadService]:
    """A service that refuses every row with the status in its path, and repeats all that it is told about who asks."""
    with bad_service() as service:

        async def repeat(path: str) -> tuple[int, bytes]:
            told = [line for line in service.head.split(b"\r\n") if line[:2].lower() in (b"po", b"x-", b"au")]
            return int(path[1:4]), b"who is this? " + b" ".join(told)

        service.answer = repeat
        yield service
        while client._POOL:
            client._POOL.popitem()[1].close()


@pytest.mark.parametrize("status", [401, 422, 503])
def test_a_receiver_that_repeats_headers_makes_nothing_leak(
    repeating: BadService, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("API_KEY", f"Bearer {CANARY}")
    url = repeating.url.replace("//", f"//ann:{quote(CANARY, safe='')}@")
    headers: dict[str, str | Secret] = {"X-Api-Key": CANARY[1:], "X-Who": secret(env="API_KEY")}
    sink = to_http(f"{url}/{status}?token={CANARY[:-2]}", identity="id", headers=headers, retries=0)
    rows, part = pl.DataFrame({"id": ["a", "b"]}), Writer("flow", epoch=1).batch(0, 0, None)
    with caplog.at_level("DEBUG"):
        if status == 422:
            refused = sink.deliver(rows, part).refused
            assert refused is not None
            said = refused["detail"][0]
        else:
            with pytest.raises((HeadraceError, Unreachable)) as raised:
                sink.deliver(rows, part)
            # An outage is told as an error or by a marker, both redacted.
            said = str(HeadraceError("SINK_UNREACHABLE", str(raised.value)))
    assert f"{status} Said who is this? POST /{status}?token=*** HTTP/1.1" in said
    assert "uthorization: Basic" in said
    assert f"/{status}?token=*** " in caplog.text
    for part_of_it in ("hunter", quote(CANARY, safe="")[5:], b64encode(f"ann:{CANARY}".encode()).decode()[8:]):
        assert part_of_it not in said + repr(sink) + sink.place + caplog.text


@pytest.mark.parametrize("value", ["c4n4ry\nX-Other: 1", "c4n4ry\r", " c4n4ry", "c4n\xe4ry"])
def test_a_header_that_cannot_be_sent_is_an_error_without_its_value(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", value)
    sink = to_http("http://127.0.0.1:1/in", identity="id", headers={"Authorization": secret(env="API_KEY")}, retries=0)
    with pytest.raises(HeadraceError) as raised:
        sink.prepare({"id": pl.String()}, [], 1)
    assert str(raised.value) == (
        "[HEADER_INVALID] http://127.0.0.1:1/in: header 'Authorization' has a line break or another character that a "
        "header cannot have, or a space at its end. Correct its value, in the file or variable of its hr.secret(...)."
    )


@pytest.mark.parametrize(
    "url", ["http://ann:hun/ter2@shop/in", "http://ann:h@un?ter2@shop/in", "https://ann:h#unter2@s"]
)
def test_a_password_that_a_url_must_escape_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(DefinitionError, match=r"\[URL_INVALID\] url='https?://ann:\*\*\*@s") as raised:
        to_http(url, identity="id")
    assert "ter2" not in str(raised.value)
