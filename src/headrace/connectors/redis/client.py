"""A worker's connections to Redis, and many large commands on their way at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headrace.errors import DefinitionError
from headrace.secrets import Secret, revealed, without_password

PATIENCE = 6.0
"""Seconds without an answer after which a server counts as not there."""
TOGETHER = 4
"""How many commands may be unanswered: while the server runs one, the next is made."""
_clients: dict[tuple[str, str | Secret | None], redis.Redis] = {}


def check_url(url: str) -> None:
    """Refuse what the client cannot read as an address."""
    try:
        redis.ConnectionPool.from_url(url)
    except ValueError:
        raise DefinitionError(
            "REDIS_URL",
            f"url={without_password(url)!r} is not an address of Redis. Write it like 'redis://127.0.0.1:6379/0'.",
        ) from None


def client_of(url: str, password: str | Secret | None) -> redis.Redis:
    """This worker's client of a server; it connects when it is used and again after an error."""
    known = _clients.get((url, password))
    if known is None:
        known = _clients[url, password] = redis.Redis.from_url(
            url,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            # Whoever delivers tries again, mark first.
            retry=Retry(NoBackoff(), 0),
            **({} if password is None else {"password": revealed(password)}),
        )
    return known


def run(client: redis.Redis, commands: Iterable[Sequence[str | bytes | int]]) -> None:
    """Send commands in their order on one connection; the first error ends it and leaves no answer behind."""
    connection = client.connection_pool.get_connection()
    unanswered = 0
    try:
        for command in commands:
            connection.send_packed_command([encoded(command)])  # type: ignore[no-untyped-call]
            unanswered += 1
            if unanswered == TOGETHER:
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
    """A command as Redis reads it; the client's own encoder takes four times as long for thousands of arguments.

    >>> encoded(["SET", b"n", 12])
    b'*3\\r\\n$3\\r\\nSET\\r\\n$1\\r\\nn\\r\\n$2\\r\\n12\\r\\n'
    """
    parts = [b"*%d\r\n" % len(command)]
    for argument in command:
        if isinstance(argument, str):
            argument = argument.encode()
        elif isinstance(argument, int):
            argument = b"%d" % argument
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)
