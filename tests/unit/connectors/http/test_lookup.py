"""A service over HTTP that is slow, down, flapping or mad: no row is lost, and a batch ends in its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import polars as pl
import pytest

from headrace.connectors.http.lookup import HttpConnection, http_lookup
from headrace.errors import DefinitionError
from headrace.operators.lookup import client
from headrace.operators.lookup.lookup import Lookup, lookup
from headrace.operators.lookup.requests import breaker
from headrace.operators.lookup.service import LARGEST_ANSWER, Answer
from headrace.secrets import secret
from tests.bad_service import BadService, bad_service
from tests.unit.conftest import Batches

KEYS = pl.DataFrame({"id": [n % 40 for n in range(200)]})


def lookup_step(service: BadService, **options: Any) -> Lookup:
    given: dict[str, Any] = {"timeout": "1 minute", "retries": 1, "on_failure": "dead_letter", **options}
    how = http_lookup(service.url + "/users/{id}")
    return lookup("users", how, on="id", output="name STRING, since DATE, score DECIMAL(6, 2)", **given)


async def well(path: str) -> tuple[int, bytes]:
    number = int(path.rsplit("/", 1)[1])
    return 200, json.dumps({"name": f"n{number}", "since": "2026-01-02", "score": 1.25, "more": [1]}).encode()


def test_every_key_is_asked_for_once_and_text_becomes_the_declared_types(service: BadService, run: Batches) -> None:
    service.answer = well
    made = run(lookup_step(service), KEYS)
    assert [(row["id"], row["name"]) for row in made.rows] == [(n % 40, f"n{n % 40}") for n in range(200)]
    assert str(made.rows[0]["since"]) == "2026-01-02"
    assert str(made.rows[0]["score"]) == "1.25"
    assert service.asked == {f"/users/{n}": 1 for n in range(40)}
    assert made.counters == {
        "keys": 40, "cache_hits": 0, "calls": 40, "retries": 0, "timeouts": 0, "failures": 0, "refused": 0,
        "breaker_open": 0,
    }  # fmt: skip


def test_no_more_requests_are_on_their_way_than_in_flight_says(service: BadService, run: Batches) -> None:
    async def slow(path: str) -> tuple[int, bytes]:
        while service.most < 7:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        return await well(path)

    service.answer = slow
    assert len(run(lookup_step(service, in_flight=7), KEYS).rows) == 200
    assert service.most == 7


@pytest.mark.parametrize("guarded", [True, False])
def test_a_service_that_hangs_fails_every_row_within_the_bound(
    service: BadService, run: Batches, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    monkeypatch.setattr(client, "GRACE", 60)

    async def hanging(path: str) -> tuple[int, bytes]:
        await asyncio.sleep(60)
        return await well(path)

    service.answer = hanging
    guard = breaker(after=20, pause="1 hour") if guarded else None
    step = lookup_step(service, in_flight=20, timeout="1 second", breaker=guard)
    made = run(step, KEYS)
    assert made.rows == []
    assert len(made.letters) == 200
    assert made.seconds < 50
    if guarded:
        assert 20 <= made.counters["calls"] == made.counters["timeouts"] < 80
        assert made.counters["breaker_open"] == 1
        assert "BREAKER_OPEN" in {letter["reason"] for letter in made.letters}
        again = run(step, KEYS)
        assert (again.counters["calls"], again.counters["refused"], len(again.letters)) == (0, 40, 200)
    else:
        assert (made.counters["failures"], made.counters["breaker_open"]) == (40, 0)
        assert {letter["detail"] for letter in made.letters} == {"no answer within 1 s"}


def test_a_service_that_is_down_fails_every_row_at_once(run: Batches) -> None:
    nowhere = BadService(port=1)
    made = run(lookup_step(nowhere, breaker=None), KEYS)
    assert made.rows == []
    assert {letter["reason"] for letter in made.letters} == {"LOOKUP_FAILED"}
    assert (made.counters["calls"], made.counters["retries"], made.counters["failures"]) == (80, 40, 40)
    assert made.seconds <= 60 * 2 + 2


def test_a_service_that_flaps_answers_every_row_with_enough_retries(service: BadService, run: Batches) -> None:
    async def flapping(path: str) -> tuple[int, bytes] | None:
        if service.asked[path] == 1:
            return None  # hangs up
        return (503, b"later") if service.asked[path] == 2 else await well(path)

    service.answer = flapping
    made = run(lookup_step(service, retries=2, breaker=None), KEYS)
    assert [row["name"] for row in made.rows] == [f"n{n % 40}" for n in range(200)]
    assert (made.counters["calls"], made.counters["retries"], made.counters["failures"]) == (120, 80, 0)
    assert made.letters == []


@pytest.mark.parametrize(
    ("status", "body", "reason", "calls"),
    [
        (200, b"<html>Sorry</html>", "ANSWER_NOT_JSON", 2),
        (200, b"", "ANSWER_NOT_JSON", 2),
        (200, b"\xff\xfe\x00", "ANSWER_NOT_JSON", 2),
        (200, b"[" * 100_000, "ANSWER_NOT_JSON", 2),
        (200, b'["a"]', "ANSWER_WRONG_TYPE", 2),
        (200, b'{"name": 7}', "ANSWER_WRONG_TYPE", 1),
        (200, b'{"name": "\\ud800"}', "ANSWER_WRONG_TYPE", 1),
        (200, b'{"since": "soon"}', "ANSWER_WRONG_TYPE", 1),
        (200, b'{"score": 12345.678}', "ANSWER_WRONG_TYPE", 1),
        (200, b'{"score": NaN}', "ANSWER_WRONG_TYPE", 1),
        (200, b" " * (LARGEST_ANSWER + 1), "ANSWER_TOO_LARGE", 2),
        (500, b"", "HTTP_500", 2),
        (429, b"", "HTTP_429", 2),
        (400, b"what?", "HTTP_400", 1),
        (302, b"", "HTTP_302", 1),
    ],
)
def test_nonsense_is_a_failure_of_its_key_with_the_reason(
    service: BadService, run: Batches, status: int, body: bytes, reason: str, calls: int
) -> None:
    async def mad(path: str) -> tuple[int, bytes]:
        return (status, body) if path.endswith("/7") else await well(path)

    service.answer = mad
    made = run(lookup_step(service), pl.DataFrame({"id": [6, 7, 8]}))
    assert [row["id"] for row in made.rows] == [6, 8]
    assert [letter["reason"] for letter in made.letters] == [reason]
    assert service.asked["/users/7"] == calls
    assert made.counters["breaker_open"] == 0


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"no such user"), (410, b""), (200, b"null"), (404, b" " * (LARGEST_ANSWER + 1))]
)
def test_a_key_that_the_service_does_not_know_gives_nulls(
    service: BadService, run: Batches, status: int, body: bytes
) -> None:
    async def unknown(path: str) -> tuple[int, bytes]:
        return status, body

    service.answer = unknown
    made = run(lookup_step(service), pl.DataFrame({"id": [1]}))
    assert made.rows == [{"id": 1, "name": None, "since": None, "score": None}]
    assert made.counters["failures"] == 0


@pytest.mark.parametrize(("status", "body"), [(404, b"no such user"), (400, b"what?"), (503, b"later"), (200, b"{}")])
def test_a_connection_is_used_again_whatever_the_service_said(
    run: Batches, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    connections = 0
    serve = BadService.serve

    async def counting(self: BadService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await serve(self, reader, writer)

    async def saying(path: str) -> tuple[int, bytes]:
        return status, body

    monkeypatch.setattr(BadService, "serve", counting)
    with bad_service() as service:
        service.answer = saying
        run(lookup_step(service, in_flight=1, retries=0, breaker=None), pl.DataFrame({"id": range(5)}))
        assert sum(service.asked.values()) == 5
    assert connections == 1


def test_a_key_is_unknown_by_the_status_alone_even_if_the_rest_cannot_be_read() -> None:
    async def cut_off() -> AsyncIterator[bytes]:
        yield b"no su"
        raise httpx.ReadError("cut off")

    async def story() -> Sequence[Answer]:
        server = httpx.MockTransport(lambda request: httpx.Response(404, content=cut_off()))
        async with httpx.AsyncClient(transport=server) as client:
            return await HttpConnection(client).fetch(["http://host/users/1"])

    assert asyncio.run(story()) == [None]


def test_a_value_cannot_lead_to_another_path(service: BadService, run: Batches) -> None:
    async def anything(path: str) -> tuple[int, bytes]:
        return 200, b"{}"

    service.answer = anything
    run(lookup_step(service), pl.DataFrame({"id": ["../admin", "..", "a?b=c&d#e", "ä ö", ""]}))
    assert set(service.asked) == {
        "/users/..%2Fadmin", "/users/%2E%2E", "/users/a%3Fb%3Dc%26d%23e", "/users/%C3%A4%20%C3%B6", "/users/",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://host/{id}", "URL_INVALID"),
        ("http://{id}.host/", "URL_INVALID"),
        ("http://host/users", "TEMPLATE_INVALID"),
    ],
)
def test_an_address_that_cannot_work_is_an_error(url: str, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        http_lookup(url)


def test_a_column_that_is_not_of_the_key_cannot_be_asked_for_and_every_one_of_the_key_must_be() -> None:
    schema = {"id": pl.Int64(), "shop": pl.String()}
    options: dict[str, Any] = {"output": "name STRING", "on_failure": "stop"}
    with pytest.raises(DefinitionError, match="TEMPLATE_COLUMN"):
        lookup("users", http_lookup("http://host/{shop}"), on="id", **options).bind(schema, None)
    with pytest.raises(DefinitionError, match="KEY_NOT_ASKED"):
        lookup("users", http_lookup("http://host/{shop}"), on=["id", "shop"], **options).bind(schema, None)


def test_passwords_and_secrets_are_not_shown() -> None:
    how = http_lookup("http://ann:hunter2@host/{id}?token=hunter3", headers={"Authorization": "Bearer hunter4"})
    assert repr(how) == "hr.http_lookup('http://host/{id}?***', headers={'Authorization': '***'})"
    hidden = http_lookup("http://host/{id}", headers={"X-Key": secret(env="CRM_KEY")})
    assert repr(hidden) == "hr.http_lookup('http://host/{id}', headers={'X-Key': hr.secret(env='CRM_KEY')})"
