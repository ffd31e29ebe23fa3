"""Redis as a lookup service: one hash or JSON text per key, many keys in one pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import redis

from headrace.connectors.redis.client import RedisAddress, Value, is_passing
from headrace.errors import check_choice
from headrace.operators.lookup.service import LARGEST_ANSWER, Answer, LookupFailure, check_key_named, json_object
from headrace.rendering import Template, parse_template
from headrace.secrets import Secret, call_text
from headrace.stability import stable

if TYPE_CHECKING:
    from redis.asyncio import Redis


@dataclass(frozen=True, slots=True, repr=False)
class RedisLookup:
    """A server and the names of its keys."""

    address: RedisAddress
    key: Template
    value: Value
    keys_per_call: int = 250
    max_calls: int = 8
    as_text: bool = True

    def check(self, keys: Mapping[str, pl.DataType], *, step: str) -> None:
        check_key_named(self.key, keys, step=step)

    def requests(self, keys: pl.DataFrame) -> list[Any]:
        """The name of each key, as ``hr.to_redis`` writes it."""
        return self.key.render(keys).to_list()

    def connect(self, in_flight: int) -> RedisConnection:
        return RedisConnection(self.address.async_client(2 * in_flight), self.value)

    def __repr__(self) -> str:
        url, password = self.address.shown, self.address.password
        return call_text(redis_lookup, url, key=str(self.key), value=self.value, password=password)


@dataclass(frozen=True, slots=True)
class RedisConnection:
    """A process's connections to a server."""

    client: Redis
    value: Value

    async def fetch(self, requests: Sequence[Any]) -> Sequence[Answer]:
        async with self.client.pipeline(transaction=False) as commands:
            for name in requests:
                if self.value == "hash":
                    commands.hgetall(name)
                else:
                    commands.getrange(name, 0, LARGEST_ANSWER)
            answers = await commands.execute(raise_on_error=False)
        return [self._read(answer) for answer in answers]

    def _read(self, answer: Any) -> Answer:
        if isinstance(answer, redis.ResponseError) and not is_passing(answer):
            return LookupFailure("ANSWER_WRONG_TYPE", f"Redis says: {answer}", retryable=False)
        if isinstance(answer, Exception):
            raise answer
        if not answer:
            return None
        if self.value == "hash":
            return {_text(name): _text(value) for name, value in answer.items()}
        if len(answer) > LARGEST_ANSWER:
            detail = f"a value has more than {LARGEST_ANSWER} bytes"
            return LookupFailure("ANSWER_TOO_LARGE", detail, retryable=False)
        try:
            return json_object(answer)
        except LookupFailure as problem:
            # One bad value does not fail the other keys of the call.
            return LookupFailure(problem.reason, problem.detail, retryable=False)

    async def close(self) -> None:
        await self.client.aclose()


@stable
def redis_lookup(url: str, *, key: str, value: Value = "hash", password: str | Secret | None = None) -> RedisLookup:
    """Look up the hash, or the JSON text, of a Redis key whose name has the key columns in braces.

    >>> redis_lookup("redis://:hunter2@cache:6379/0", key="customer:{id}")
    hr.redis_lookup('redis://:***@cache:6379/0', key='customer:{id}')
    """
    check_choice(Value, value=value)
    return RedisLookup(RedisAddress(url, password), parse_template(key), value)


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")
