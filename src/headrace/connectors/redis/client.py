"""Connections to Redis, and what its errors mean; the sink and the lookup share both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from headrace.errors import DefinitionError
from headrace.redaction import is_torn, learn_address, without_password
from headrace.secrets import Secret, revealed

Value = Literal["hash", "json"]
"""How a key holds a row: as a hash of its columns, or as JSON text."""
PATIENCE = 6.0
"""Seconds without an answer after which a server counts as unreachable."""
PIPELINED = 4
"""How many commands may be unanswered: while the server runs one, the next is encoded."""
_PASSING_ERRORS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.NoScriptError,
)
_PASSING_CODES = ("OOM", "LOADING", "READONLY", "MASTERDOWN", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "GAP")


@dataclass(frozen=True, slots=True, repr=False)
class RedisAddress:
    """A server's URL, and its password if it is not part of the URL."""

    url: str
    password: str | Secret | None

    def __post_init__(self) -> None:
        if is_torn(self.url) or not _is_readable(self.url):
            learn_address(self.url)
            raise DefinitionError(
                "REDIS_URL",
                f"url={self.shown!r} is not a Redis URL. Write it like 'redis://127.0.0.1:6379/0', and pass the "
                "password as password=hr.secret(...).",
            )

    @property
    def shown(self) -> str:
        return without_password(self.url)

    @cache  # noqa: B019 - a worker keeps its clients
    def client(self) -> redis.Redis:
        """This worker's client; it connects on use and again after an error."""
        timeouts: dict[str, Any] = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
        # No retries: the delivery retries, starting with the mark.
        return redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **timeouts, **self._login)

    def async_client(self, max_connections: int) -> redis_asyncio.Redis:
        """A new client for an event loop. The caller watches the time and retries."""
        retry = AsyncRetry(NoBackoff(), 0)
        return redis_asyncio.Redis.from_url(self.url, retry=retry, max_connections=max_connections, **self._login)

    @property
    def _login(self) -> dict[str, Any]:
        learn_address(self.url)
        return {} if self.password is None else {"password": revealed(self.password)}


def _is_readable(url: str) -> bool:
    try:
        redis.ConnectionPool.from_url(url)
    except ValueError:
        return False
    return True


def is_passing(problem: redis.RedisError) -> bool:
    """Whether an error goes away by itself, so that a retry helps."""
    # A refused login is also a ConnectionError.
    refused = isinstance(problem, redis.AuthenticationError)
    return not refused and (isinstance(problem, _PASSING_ERRORS) or str(problem).startswith(_PASSING_CODES))


def run(client: redis.Redis, commands: Iterable[Sequence[str | bytes | int]]) -> None:
    """Send commands in order on one connection. The first error ends it and leaves no answer behind."""
    connection = client.connection_pool.get_connection()
    unanswered = 0
    try:
        for command in commands:
            connection.send_packed_command([encoded(command)])  # type: ignore[no-untyped-call]
            unanswered += 1
            if unanswered == PIPELINED:
                connection.read_response()
                unanswered -= 1
        for _ in range(unanswered):
            connection.read_response()
    except BaseException:
        connection.disconnect()  # type: ignore[no-untyped-call]
        raise
    finally:
        client.connection_pool.release(connection)


def encoded(command: Sequence[str | bytes | int]) -> bytes:
    r"""A command in Redis's protocol; the client's own encoder takes four times as long for thousands of arguments.

    >>> encoded(["SET", b"n", 12])
    b'*3\r\n$3\r\nSET\r\n$1\r\nn\r\n$2\r\n12\r\n'
    """
    parts = [b"*%d\r\n" % len(command)]
    for argument in command:
        if isinstance(argument, str):
            argument = argument.encode()
        elif isinstance(argument, int):
            argument = b"%d" % argument
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)
