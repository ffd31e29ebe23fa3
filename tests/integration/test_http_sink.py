"""Rows posted to a real server that fails, stalls and refuses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl
import pytest

from headrace.connectors.base.sink import Delivered, Unreachable
from headrace.connectors.http.sink import HttpSink, to_http
from headrace.errors import HeadraceError
from headrace.secrets import secret
from tests.writers import Writer

WRITER = Writer("flow", epoch=1)
PART = WRITER.batch(0, 0, None)
Rows = list[dict[str, Any]]


@dataclass
class Receiver:
    """A server that answers as a test says, and remembers what it accepted."""

    answer: Callable[[Rows, int], tuple[int, dict[str, str]]] = lambda rows, request: (200, {})
    requests: list[tuple[dict[str, str], Rows]] = field(default_factory=list)
    accepted: Rows = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that accepts everything until it is told otherwise."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.requests.append((dict(self.headers), rows))
            status, headers = receiver.answer(rows, len(receiver.requests))
            if status == 0:
                self.close_connection = True
                return
            if status < 300:
                receiver.accepted += rows
            body = b"so says the receiver"
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/in"
    yield receiver
    server.shutdown()
    thread.join()
    server.server_close()


def _sink(receiver: Receiver, **options: Any) -> HttpSink:
    sink = to_http(receiver.url, identity="id", **options)
    sink.prepare({"id": pl.String(), "n": pl.Int64()}, [WRITER.name], WRITER.epoch)
    return sink


def _rows(count: int) -> pl.DataFrame:
    return pl.DataFrame({"id": [f"r{n:04d}" for n in range(count)], "n": list(range(count))})


def test_rows_are_posted_in_requests_that_are_the_same_for_the_same_rows(receiver: Receiver) -> None:
    sink, rows = _sink(receiver, batch=4), _rows(10)
    assert sink.deliver(rows, PART) == Delivered(10)
    assert sink.deliver(rows.reverse(), PART) == Delivered(10)
    first, second = receiver.requests[:3], receiver.requests[3:]
    assert [len(rows) for _, rows in first] == [4, 4, 2]
    assert [rows for _, rows in first] == [rows for _, rows in second]
    keys = [headers["Idempotency-Key"] for headers, _ in first]
    assert keys == [headers["Idempotency-Key"] for headers, _ in second]
    assert len(set(keys)) == 3
    assert first[0][0]["Content-Type"] == "application/json"
    assert first[0][0]["Headrace-Identity"] == "id"


def test_a_lost_connection_a_busy_and_a_failing_server_are_tried_again(receiver: Receiver) -> None:
    troubles = {1: 0, 2: 429, 3: 503, 4: 500}
    receiver.answer = lambda rows, request: (troubles.get(request, 200), {"Retry-After": "0"})
    assert _sink(receiver).deliver(_rows(3), PART) == Delivered(3)
    assert len({headers["Idempotency-Key"] for headers, _ in receiver.requests}) == 1
    assert len(receiver.accepted) == 3


def test_the_pause_that_a_busy_server_asks_for_is_kept(receiver: Receiver) -> None:
    receiver.answer = lambda rows, request: (429 if request == 1 else 200, {"Retry-After": "1"})
    began = time.monotonic()
    assert _sink(receiver).deliver(_rows(1), PART) == Delivered(1)
    assert time.monotonic() - began >= 1


def test_rows_that_the_server_refuses_are_found_and_the_others_arrive_once(receiver: Receiver) -> None:
    receiver.answer = lambda rows, request: (422 if any(row["n"] % 50 == 7 for row in rows) else 200, {})
    delivered = _sink(receiver).deliver(_rows(200), PART)
    assert delivered.written == 196
    assert delivered.refused is not None
    assert set(delivered.refused["reason"]) == {"HTTP_422"}
    assert "so says the receiver" in delivered.refused["detail"][0]
    assert [json.loads(raw)["n"] for raw in delivered.refused["raw"]] == [7, 57, 107, 157]
    assert sorted(row["n"] for row in receiver.accepted) == [n for n in range(200) if n % 50 != 7]


def test_a_row_at_which_the_server_fails_to_the_end_is_refused(receiver: Receiver) -> None:
    receiver.answer = lambda rows, request: (500 if any(row["n"] == 2 for row in rows) else 200, {})
    delivered = _sink(receiver, retries=1).deliver(_rows(4), PART)
    assert delivered.written == 3
    assert delivered.refused is not None
    assert delivered.refused["reason"].to_list() == ["HTTP_500"]


@pytest.mark.parametrize("status", [500, 503, 0])
def test_a_server_that_fails_at_everything_is_waited_for(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda rows, request: (status, {})
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
        _sink(receiver, retries=1).deliver(_rows(4), PART)


def test_a_server_that_stalls_is_waited_for(receiver: Receiver) -> None:
    given_up = threading.Event()

    def stall(rows: Rows, request: int) -> tuple[int, dict[str, str]]:
        given_up.wait(60)
        return 200, {}

    receiver.answer = stall
    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
        _sink(receiver, timeout="200 milliseconds").deliver(_rows(1), PART)
    given_up.set()


@pytest.mark.parametrize("status", [401, 403, 404, 301, 501])
def test_a_server_that_refuses_us_is_an_error_and_no_row_is(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda rows, request: (status, {})
    with pytest.raises(HeadraceError, match=f"SINK_REFUSED.*{status}"):
        _sink(receiver).deliver(_rows(4), PART)
    assert len(receiver.requests) == 1


def test_a_row_without_identity_is_refused(receiver: Receiver) -> None:
    rows = pl.DataFrame({"id": ["a", None], "n": [1, 2]})
    delivered = _sink(receiver).deliver(rows, PART)
    assert delivered.written == 1
    assert delivered.refused is not None
    assert delivered.refused["reason"].to_list() == ["IDENTITY_NULL"]


def test_headers_may_be_secrets(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    sink = _sink(receiver, headers={"Authorization": secret(env="API_KEY"), "X-Token": "hunter2", "X-Team": "a"})
    sink.deliver(_rows(1), PART)
    assert receiver.requests[0][0]["Authorization"] == "hunter2"
    assert "hunter2" not in repr(sink) + sink.place
    assert "'Authorization': hr.secret(env='API_KEY')" in repr(sink)
    assert "'X-Team': 'a'" in repr(sink)


def test_nobody_listening_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        to_http("http://127.0.0.1:1/in", identity="id", retries=0).prepare(
            {"id": pl.String()}, [WRITER.name], WRITER.epoch
        )
