"""The lookup step."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.graph import check_name
from headrace.keys import key_argument, key_columns
from headrace.operators.lookup.client import Cache
from headrace.operators.lookup.enrichment import Enrichment, OnFailure, Order, failure_column
from headrace.operators.lookup.requests import Breaker, RequestLimits, breaker
from headrace.operators.lookup.service import FunctionLookup, LookupService
from headrace.operators.step import LateRows, Step, check_key
from headrace.schemas import parse_ddl, polars_schema
from headrace.stability import stable
from headrace.wheel.stateless import Stateless

IN_FLIGHT, TIMEOUT, RETRIES = 100, "2 seconds", 2
MOST_IN_FLIGHT = 1000
USUAL_BREAKER = breaker()


@dataclass(frozen=True, kw_only=True, repr=False)
class Lookup(Step):
    """Rows enriched with the answers of a service; failed rows are dead letters."""

    kind = "lookup"
    stateless = True
    late_rows = LateRows(never="rows leave in the batch that brings them, so none is late")

    how: LookupService
    output: str
    in_flight: int
    timeout: int
    retries: int
    breaker: Breaker | None
    cache: Cache | None
    order: Order
    on_failure: OnFailure

    def bind(self, schema: Mapping[str, pl.DataType], time: str | None) -> Stateless:
        check_key(self.name, self.key, schema)
        self.how.check({name: schema[name] for name in self.key}, step=self.name)
        columns = polars_schema(parse_ddl(self.output))
        added = [*columns, *([failure_column(self.name)] if self.on_failure == "null" else [])]
        # Spark does not tell columns apart that differ in capitals only.
        taken = [name.lower() for name in (*schema, *added)]
        for column in added:
            if taken.count(column.lower()) > 1:
                raise DefinitionError(
                    "COLUMN_EXISTS",
                    f"step {self.name!r}: output column {column!r} would exist twice. The rows have the columns "
                    f"{', '.join(schema)}; rename one of them.",
                )
        return Enrichment(
            id=uuid.uuid4().hex,
            name=self.name,
            schema=dict(schema),
            on=self.key,
            columns=columns,
            service=self.how,
            limits=RequestLimits(self.in_flight, self.timeout / 1e6, self.retries),
            breaker=self.breaker,
            cache=self.cache,
            order=self.order,
            on_failure=self.on_failure,
        )

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"on": list(self.key)}

    @property
    def state_description(self) -> str:
        kept = "none" if self.cache is None else f"none; each worker caches answers as {self.cache!r}"
        longest = spoken(self.timeout * (self.retries + 1))
        return (
            f"{kept}; answers are not repeatable: a batch that runs again requests them again and may get others; "
            f"a task waits at most {longest} x ceil(its distinct keys / {self.in_flight}) + 2 seconds"
        )

    @property
    def _positional(self) -> tuple[str, ...]:
        return (repr(self.how),)

    @property
    def _arguments(self) -> Mapping[str, object]:
        given: dict[str, object] = {"on": key_argument(self.key), "output": self.output}
        given |= {"in_flight": self.in_flight} if self.in_flight != IN_FLIGHT else {}
        given |= {"timeout": spoken(self.timeout)} if spoken(self.timeout) != TIMEOUT else {}
        given |= {"retries": self.retries} if self.retries != RETRIES else {}
        given |= {"breaker": self.breaker} if self.breaker != USUAL_BREAKER else {}
        given |= {"cache": self.cache} if self.cache is not None else {}
        given |= {"order": self.order} if self.order != "kept" else {}
        return {**given, "on_failure": self.on_failure}


@stable
def lookup(
    name: str,
    how: LookupService | Callable[[Any], Awaitable[Mapping[str, Any] | None]],
    *,
    on: str | Sequence[str],
    output: str,
    on_failure: OnFailure,
    in_flight: int = IN_FLIGHT,
    timeout: Duration = TIMEOUT,
    retries: int = RETRIES,
    breaker: Breaker | None = USUAL_BREAKER,
    cache: Cache | None = None,
    order: Order = "kept",
) -> Lookup:
    """Look up the key of every row in a service and add the answer as the columns of ``output``.

    ``how`` is ``hr.redis_lookup(...)``, ``hr.postgres_lookup(...)``, ``hr.http_lookup(...)`` or an ``async def`` that
    takes a key (a tuple for several columns) and returns a dictionary, or None for an unknown key.

    >>> async def customer(id):
    ...     return {"name": "Ann", "tier": 3}
    >>> lookup("customer", customer, on="customer_id", output="name STRING, tier INT", on_failure="dead_letter")
    hr.lookup('customer', customer, on='customer_id', output='name STRING, tier INT', on_failure='dead_letter')
    """
    check_name("step", name)
    key = key_columns(on, argument="on")
    if not key:
        raise DefinitionError("KEY_MISSING", f"step {name!r}: on= names no column. Name the key columns.")
    for argument, value, known in (("on_failure", on_failure, OnFailure), ("order", order, Order)):
        if value not in get_args(known):
            choices = ", ".join(map(repr, get_args(known)))
            raise DefinitionError(
                f"{argument.upper()}_UNKNOWN", f"step {name!r}: {argument}={value!r} is not known. Use {choices}."
            )
    for argument, number, least, most in (("in_flight", in_flight, 1, MOST_IN_FLIGHT), ("retries", retries, 0, 10)):
        if type(number) is not int or not least <= number <= most:
            raise DefinitionError(
                f"{argument.upper()}_INVALID",
                f"step {name!r}: {argument}={number!r} must be a whole number from {least} to {most}.",
            )
    for argument, given, kind in (("breaker", breaker, Breaker), ("cache", cache, Cache)):
        if given is not None and not isinstance(given, kind):
            raise DefinitionError(
                f"{argument.upper()}_INVALID",
                f"step {name!r}: {argument} must be hr.{argument}(...) or None, not {given!r}.",
            )
    parse_ddl(output)
    return Lookup(
        name=name,
        how=_service(how, step=name),
        key=key,
        output=output,
        in_flight=in_flight,
        timeout=positive_microseconds(timeout, argument="timeout"),
        retries=retries,
        breaker=breaker,
        cache=cache,
        order=order,
        on_failure=on_failure,
    )


def _service(how: Any, *, step: str) -> LookupService:
    if inspect.iscoroutinefunction(how):
        return FunctionLookup(how)
    if not isinstance(how, LookupService):
        raise DefinitionError(
            "LOOKUP_UNKNOWN",
            f"step {step!r}: {how!r} is not a lookup service. Use hr.redis_lookup(...), hr.postgres_lookup(...), "
            "hr.http_lookup(...) or an async def function.",
        )
    return how
