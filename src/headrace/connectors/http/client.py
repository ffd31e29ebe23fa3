"""HTTP requests: connections kept in the process, and which statuses are retried; sinks and lookups share both."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import httpx

from headrace.connectors.base.sink import Unreachable
from headrace.errors import DefinitionError, HeadraceError
from headrace.redaction import HIDDEN, beginning, is_torn, learn_address, without_password
from headrace.secrets import Secret, revealed, revealed_options, shown_options

_POOL: dict[Endpoint, httpx.Client] = {}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
BUSY = (408, 425, 429, 502, 503, 504)
"""Statuses of a server that is busy; a retry helps."""
FAILING = 500
"""A server that fails; one row may be the cause."""


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A server's URL, the credentials, the timeout and the number of retries."""

    url: str
    """Without user and password."""
    login: tuple[str, str | Secret] | None
    headers: tuple[tuple[str, str | Secret], ...]
    timeout: float
    retries: int

    @property
    def shown(self) -> str:
        """The URL for people, without its query, which may hold a token."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(query=HIDDEN if parts.query else ""))

    @property
    def shown_headers(self) -> dict[str, str | Secret]:
        """The headers for people: the places of secrets, plain secrets hidden."""
        return dict(self.headers) | shown_options({name: each for name, each in self.headers if isinstance(each, str)})

    def request(
        self, method: str, path: str = "", *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The server's response; retries while it is busy or failing.

        Raises Unreachable when it stays busy. A last 500 is returned, because one row may be the cause.
        """
        trouble = ""
        for attempt in range(self.retries + 1):
            pause = _FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.5)
            try:
                response = self._client().request(method, self.url + path, content=content, headers=headers)
            except httpx.TimeoutException as problem:
                # That was long enough; the delivery retries.
                raise Unreachable(f"{self.shown}: no answer within {self.timeout:g} s") from problem
            except httpx.TransportError as problem:
                if (client := _POOL.pop(replace(self, retries=0), None)) is not None:
                    client.close()
                trouble = str(problem) or type(problem).__name__
            else:
                last = attempt == self.retries
                if response.status_code not in (*BUSY, FAILING) or (response.status_code == FAILING and last):
                    return response
                trouble, pause = summary(response), _requested_pause(response, pause)
            if attempt < self.retries:
                time.sleep(min(pause, _LONGEST_PAUSE))
        raise Unreachable(f"{self.shown}: {trouble}")

    def async_client(self, max_connections: int) -> httpx.AsyncClient:
        """A new client for an event loop; the caller watches the time."""
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        return httpx.AsyncClient(**self._identity, timeout=None, limits=limits)  # noqa: S113 - as above

    def _client(self) -> httpx.Client:
        key = replace(self, retries=0)
        if key not in _POOL:
            _POOL[key] = httpx.Client(**self._identity, timeout=self.timeout)
        return _POOL[key]

    @property
    def _identity(self) -> dict[str, Any]:
        """How a client identifies itself in every request."""
        headers = revealed_options(self.headers)
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable() or value != value.strip():
                raise HeadraceError(
                    "HEADER_INVALID",
                    f"{self.shown}: header {name!r} has a line break or another character that a header cannot have, "
                    "or a space at its end. Correct its value, in the file or variable of its hr.secret(...).",
                )
        # Some receivers want a token in the query, which clients log.
        revealed_options(parse_qsl(urlsplit(self.url).query))
        auth = None if self.login is None else (self.login[0], revealed(self.login[1]))
        return {"headers": headers, "auth": auth}


def parse_endpoint(
    url: str,
    *,
    login: tuple[str, str | Secret] | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    timeout: float = 0.0,
    retries: int = 0,
) -> Endpoint:
    """The endpoint at a URL; a user and password in the URL become the login.

    >>> endpoint = parse_endpoint("https://ann:hunter2@shop:9200/in?token=x")
    >>> endpoint.url, endpoint.shown
    ('https://shop:9200/in?token=x', 'https://shop:9200/in?***')
    """
    if is_torn(url):
        learn_address(url)
        raise DefinitionError(
            "URL_INVALID",
            f"url={without_password(url)!r}: it is not clear where the password ends. Escape / as %2F, ? as %3F, # as "
            "%23 and @ as %40.",
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError("URL_INVALID", "url= must be like 'https://host:port/path'. Write scheme and host.")
    if parts.username is not None and login is None:
        login = (unquote(parts.username), unquote(parts.password or ""))
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return Endpoint(bare, login, tuple((headers or {}).items()), timeout, retries)


def summary(response: httpx.Response) -> str:
    """A response in one line: its status and the beginning of its body."""
    return f"{response.status_code} {response.reason_phrase} {' '.join(beginning(response.text, 300).split())}".strip()


def check_permitted(response: httpx.Response, place: str) -> None:
    """Fail when the server refuses the client or the URL, not the content."""
    status = response.status_code
    if status in (401, 403, 407):
        raise HeadraceError("SINK_REFUSED", f"{place}: {summary(response)}. Check user, password and headers.")
    if status in (404, 405, 410) or 300 <= status < 400 or status > FAILING:
        raise HeadraceError("SINK_REFUSED", f"{place}: {summary(response)}. Check the address.")


def _requested_pause(response: httpx.Response, usual: float) -> float:
    asked = response.headers.get("Retry-After", "")
    if asked.isdigit():
        return float(asked)
    try:
        return max(0.0, (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return usual
