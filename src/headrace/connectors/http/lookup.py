"""HTTP as a lookup service: one GET request per key, answered with a JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import polars as pl

from headrace.connectors.http.client import BUSY, FAILING, Endpoint, parse_endpoint
from headrace.errors import DefinitionError
from headrace.operators.lookup.service import LARGEST_ANSWER, Answer, LookupFailure, check_key_named, json_object
from headrace.rendering import Template, parse_template
from headrace.secrets import Secret, call_text
from headrace.stability import stable

_UNKNOWN = (404, 410)


@dataclass(frozen=True, slots=True, repr=False)
class HttpLookup:
    """A URL with the key's columns in it."""

    endpoint: Endpoint
    url: Template
    keys_per_call: int = 1
    max_calls: int = 1000
    as_text: bool = True

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        check_key_named(self.url, keys, step=step)

    def requests(self, keys: pl.DataFrame) -> list[str]:
        """The URL of each key; no value can lead to another path or host."""
        texts = [Template(("", ""), (name,)).render(keys).to_list() for name in self.url.columns]
        first, *others = self.url.texts
        return [
            first + "".join(_quoted(value) + text for value, text in zip(values, others, strict=True))
            for values in zip(*texts, strict=True)
        ]

    def connect(self, in_flight: int) -> HttpConnection:
        return HttpConnection(self.endpoint.async_client(in_flight))

    def __repr__(self) -> str:
        return call_text(http_lookup, self.endpoint.shown, headers=self.endpoint.shown_headers or None)


@dataclass(frozen=True, slots=True)
class HttpConnection:
    """A process's connections to a server."""

    client: httpx.AsyncClient

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        return [await self._get(url) for url in requests]

    async def _get(self, url: str) -> Answer:
        async with self.client.stream("GET", url) as answer:
            status = answer.status_code
            if status == 200:
                body = await _body(answer)
                if len(body) > LARGEST_ANSWER:
                    raise LookupFailure("ANSWER_TOO_LARGE", f"an answer has more than {LARGEST_ANSWER} bytes")
                return json_object(body)
            # The status is enough, whatever is wrong with the body.
            with suppress(httpx.HTTPError):
                await _body(answer)
        if status in _UNKNOWN:
            return None
        said = f"the service said {status} {answer.reason_phrase}"
        if status in BUSY or status >= FAILING:
            raise LookupFailure(f"HTTP_{status}", said)
        return LookupFailure(f"HTTP_{status}", said, retryable=False)

    async def close(self) -> None:
        await self.client.aclose()


async def _body(answer: httpx.Response) -> bytes:
    """The body of an answer, read to the end so that its connection is reused, unless it is too large."""
    body = bytearray()
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > LARGEST_ANSWER:
            break
    return bytes(body)


def _quoted(value: str) -> str:
    """A value as a part of a URL; a bare '.' or '..' would be another path."""
    return value.replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


@stable
def http_lookup(url: str, *, headers: Mapping[str, str | Secret] | None = None) -> HttpLookup:
    """Look up a JSON object at ``url``, which has the key columns in braces; 404 means that a key is unknown.

    >>> http_lookup("https://crm/customers/{customer_id}", headers={"Authorization": "Bearer hunter2"})
    hr.http_lookup('https://crm/customers/{customer_id}', headers={'Authorization': '***'})
    """
    endpoint = parse_endpoint(url, headers=headers)
    if "{" in urlsplit(endpoint.url).netloc:
        raise DefinitionError(
            "URL_INVALID", "http_lookup: a column must not choose the host. Put it into the path or query."
        )
    return HttpLookup(endpoint, parse_template(endpoint.url))
