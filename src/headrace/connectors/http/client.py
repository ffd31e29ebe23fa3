"""Requests to a server over HTTP: connections kept in the process, what passes by itself tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from headrace.connectors.base.sink import Unreachable
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import HIDDEN, Secret, revealed, shown_options

_POOL: dict[Endpoint, httpx.Client] = {}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_BUSY = (408, 425, 429, 502, 503, 504)
FAILING = 500
_TELLING_HEADERS = ("authorization", "cookie")

Headers = tuple[tuple[str, str | Secret], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A server's address, who we are to it, and how patient we are."""

    url: str
    """Without user and password."""
    login: tuple[str, str | Secret] | None
    headers: Headers
    timeout: float
    retries: int

    @property
    def shown(self) -> str:
        """The address for people; a query may hold a token, so it is hidden."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(query=HIDDEN if parts.query else ""))

    @property
    def shown_headers(self) -> dict[str, str | Secret]:
        """The headers for people: places of secrets, hidden values of telling names."""
        plain = {name: value for name, value in self.headers if isinstance(value, str)}
        hidden = {name: HIDDEN for name in plain if name.lower() in _TELLING_HEADERS}
        return dict(self.headers) | shown_options(plain) | hidden

    def request(
        self, method: str, path: str = "", *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """The server's answer, asked for again while it is busy or failing.

        Raises Unreachable when it stays busy; a 500 is returned in the end, for one row can be its cause.
        """
        trouble = ""
        for attempt in range(self.retries + 1):
            pause = _FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.5)
            try:
                answer = self._client().request(method, self.url + path, content=content, headers=headers)
            except httpx.TimeoutException as problem:
                # Long enough was waited already; the next attempt is the caller's.
                raise Unreachable(f"{self.shown}: no answer within {self.timeout:g} s") from problem
            except httpx.TransportError as problem:
                self._drop()
                trouble = str(problem) or type(problem).__name__
            else:
                last = attempt == self.retries
                if answer.status_code not in (*_BUSY, FAILING) or (answer.status_code == FAILING and last):
                    return answer
                trouble, pause = said(answer), _asked_pause(answer, pause)
            if attempt < self.retries:
                time.sleep(min(pause, _LONGEST_PAUSE))
        raise Unreachable(f"{self.shown}: {trouble}")

    def less_patient(self) -> Endpoint:
        """The same with one retry at most."""
        return replace(self, retries=min(1, self.retries))

    def _client(self) -> httpx.Client:
        client = _POOL.get(self._patience_aside())
        if client is None:
            login = None if self.login is None else (self.login[0], revealed(self.login[1]))
            headers = {name: revealed(value) for name, value in self.headers}
            client = httpx.Client(headers=headers, auth=login, timeout=self.timeout)
            _POOL[self._patience_aside()] = client
        return client

    def _drop(self) -> None:
        client = _POOL.pop(self._patience_aside(), None)
        if client is not None:
            client.close()

    def _patience_aside(self) -> Endpoint:
        return replace(self, retries=0)


def parse_endpoint(
    url: str, login: tuple[str, str | Secret] | None, headers: Headers, timeout: float, retries: int
) -> Endpoint:
    """The endpoint at a URL; a user and password in the URL are taken out of it.

    >>> endpoint = parse_endpoint("https://ann:hunter2@shop:9200/in?token=x", None, (), 10.0, 5)
    >>> endpoint.url, endpoint.shown
    ('https://shop:9200/in?token=x', 'https://shop:9200/in?***')
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError("URL_INVALID", "url= must be like 'https://host:port/path'. Write scheme and host.")
    if parts.username is not None and login is None:
        login = (unquote(parts.username), unquote(parts.password or ""))
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return Endpoint(bare, login, headers, timeout, retries)


def said(answer: httpx.Response) -> str:
    """An answer in one line: its status and the beginning of its body."""
    return f"{answer.status_code} {answer.reason_phrase} {' '.join(answer.text[:300].split())}".strip()


def check_permitted(answer: httpx.Response, place: str) -> None:
    """Fail when the server refuses us or our way of asking, not what we sent."""
    status = answer.status_code
    if status in (401, 403, 407):
        raise HeadraceError("SINK_REFUSED", f"{place}: {said(answer)}. Check user, password and headers.")
    if status in (404, 405, 410) or 300 <= status < 400 or status > FAILING:
        raise HeadraceError("SINK_REFUSED", f"{place}: {said(answer)}. Check the address.")


def _asked_pause(answer: httpx.Response, usual: float) -> float:
    asked = answer.headers.get("Retry-After", "")
    if asked.isdigit():
        return float(asked)
    try:
        return max(0.0, (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return usual
