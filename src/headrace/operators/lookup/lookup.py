"""The lookup step and its operator: each distinct key of a task is requested once, and the answers join the rows."""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import polars as pl

from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import HeadraceError, check_choice
from headrace.key_hash import canonical
from headrace.keys import key_argument, key_columns
from headrace.operators.lookup.answers import BatchAnswers
from headrace.operators.lookup.client import AnswerCache, Cache, LookupClient, close_client, lookup_client
from headrace.operators.lookup.requests import Breaker, Piece, RequestLimits, breaker
from headrace.operators.lookup.service import FunctionLookup, LookupFailure, LookupService
from headrace.operators.rows import check_key, join_by_key
from headrace.operators.step import LateRows, Step
from headrace.rendering import json_rows
from headrace.schemas import parse_ddl, polars_schema
from headrace.stability import stable
from headrace.wheel.stateless import Passed
from headrace.wheel.task import Task

Order = Literal["kept", "free"]
OnFailure = Literal["null", "dead_letter", "stop"]
IN_FLIGHT, TIMEOUT, RETRIES, USUAL_BREAKER = 100, "2 seconds", 2, breaker()
MOST_IN_FLIGHT = 1000
COUNTERS = ("keys", "cache_hits", "calls", "retries", "timeouts", "failures", "refused", "breaker_open")
"""The counters of a lookup; ``breaker_open`` counts the tasks that ended with an open breaker."""
_REASON, _DETAIL = "__reason", "__detail"


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

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = (("in_flight", self.in_flight, 1, MOST_IN_FLIGHT), ("retries", self.retries, 0, 10))
        for name, number, least, most in numbers:
            if type(number) is not int or not least <= number <= most:
                message = f"{name}={number!r} must be a whole number from {least} to {most}."
                raise self._wrong(f"{name.upper()}_INVALID", message)
        for name, given, kind in (("breaker", self.breaker, Breaker), ("cache", self.cache, Cache)):
            if given is not None and not isinstance(given, kind):
                raise self._wrong(f"{name.upper()}_INVALID", f"{name} must be hr.{name}(...) or None, not {given!r}.")
        if not isinstance(self.how, LookupService):
            services = "hr.redis_lookup(...), hr.postgres_lookup(...), hr.http_lookup(...) or an async def function"
            raise self._wrong("LOOKUP_UNKNOWN", f"{self.how!r} is not a lookup service. Use {services}.")

    @property
    def failure_column(self) -> str:
        """The column with the reason why a row has no answer."""
        return f"{self.name}_failure"

    def bind(self, schema: Mapping[str, pl.DataType], time: str | None) -> LookupOperator:
        check_key(self.name, self.key, schema)
        self.how.check({name: schema[name] for name in self.key}, step=self.name)
        columns = polars_schema(parse_ddl(self.output))
        added = [*columns, *([self.failure_column] if self.on_failure == "null" else [])]
        # Spark does not tell columns apart that differ in capitals only.
        taken = [name.lower() for name in (*schema, *added)]
        for column in added:
            if taken.count(column.lower()) > 1:
                rows = f"The rows have the columns {', '.join(schema)}; rename one of them."
                raise self._wrong("COLUMN_EXISTS", f"output column {column!r} would exist twice. {rows}")
        return LookupOperator(uuid.uuid4().hex, self, dict(schema), columns)

    @property
    def state_description(self) -> str:
        kept = "none" if self.cache is None else f"none; each worker caches answers as {self.cache!r}"
        longest = spoken(self.timeout * (self.retries + 1))
        return (
            f"{kept}; answers are stored until their batch is done, so that it has the same rows when it runs again; "
            f"a task waits at most {longest} x ceil(its distinct keys / {self.in_flight}) + 2 seconds"
        )

    @property
    def _positional(self) -> tuple[str, ...]:
        return (repr(self.how),)

    @property
    def _arguments(self) -> Mapping[str, object]:
        options = (
            ("in_flight", self.in_flight, IN_FLIGHT),
            ("timeout", spoken(self.timeout), TIMEOUT),
            ("retries", self.retries, RETRIES),
            ("breaker", self.breaker, USUAL_BREAKER),
            ("cache", self.cache, None),
            ("order", self.order, "kept"),
        )
        chosen = {name: given for name, given, default in options if given != default}
        return {"on": key_argument(self.key), "output": self.output, **chosen, "on_failure": self.on_failure}


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
    check_choice(OnFailure, step=name, on_failure=on_failure)
    check_choice(Order, step=name, order=order)
    parse_ddl(output)
    return Lookup(
        name=name,
        how=FunctionLookup(how) if inspect.iscoroutinefunction(how) else how,  # type: ignore[arg-type]
        key=key_columns(on, argument="on", needed_by=name),
        output=output,
        in_flight=in_flight,
        timeout=positive_microseconds(timeout, argument="timeout"),
        retries=retries,
        breaker=breaker,
        cache=cache,
        order=order,
        on_failure=on_failure,
    )


@dataclass(frozen=True)
class LookupOperator:
    """Requests the keys of a task and joins the answers to its rows."""

    id: str
    """Identifies the lookup in a worker from batch to batch."""
    step: Lookup
    schema: Mapping[str, pl.DataType]
    columns: Mapping[str, pl.DataType]
    """The columns of an answer."""

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def gathered_by(self) -> tuple[str, ...]:
        """All rows of a key come to one task, so that a batch requests it once."""
        return self.step.key

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        why = {self.step.failure_column: pl.String()} if self.step.on_failure == "null" else {}
        return {**self.schema, **self.columns, **why}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """The rows with the answers for their keys; null keys are not requested."""
        given = [frame for frame in frames if not frame.is_empty()]
        if not given:
            return
        rows, on = pl.concat(given), self.step.key
        counters = Counter(dict.fromkeys(COUNTERS, 0))
        client = lookup_client(self.id, self._client)
        keys = canonical(rows.select(on), on).unique(maintain_order=True).drop_nulls()
        counters.update(keys=keys.height)
        with closing(self._answered(client, keys, task, counters)) as answered:
            if self.step.order == "kept":
                yield self._joined(join_by_key(rows, pl.concat(answered), on, how="left", maintain_order="left"))
            else:
                without_key = rows.filter(pl.any_horizontal(pl.col(on).is_null()))
                yield self._joined(join_by_key(without_key, self._nothing, on, how="left"))
                for answers in answered:
                    yield self._joined(join_by_key(rows, answers, on))
        counters.update(breaker_open=int(client.circuit.is_open))
        yield Passed(pl.DataFrame(schema=self.output_schema), 0, counters=counters)

    def close(self) -> None:
        close_client(self.id)

    @property
    def _nothing(self) -> pl.DataFrame:
        """The answers for no keys."""
        keys = {name: self.schema[name] for name in self.step.key}
        return pl.DataFrame(schema={**keys, **self.columns, _REASON: pl.String(), _DETAIL: pl.String()})

    def _client(self) -> LookupClient:
        step = self.step
        cached = None if step.cache is None else AnswerCache(step.cache, step.key, self._nothing.schema)
        limits = RequestLimits(min(step.in_flight, step.how.max_calls), step.timeout / 1e6, step.retries)
        return LookupClient(step.how, limits, step.breaker, cached)

    def _answered(
        self, client: LookupClient, keys: pl.DataFrame, task: Task, counters: Counter[str]
    ) -> Generator[pl.DataFrame]:
        """The answers for the keys of a task, in pieces where order is free: no row has one that is not settled."""
        if keys.is_empty():
            yield self._nothing
            return
        clock, settled = task.record.clock, BatchAnswers(self.name, keys, self._nothing, task)
        yield settled.known
        unknown = self._without(keys, settled.known)
        cached = self._nothing if client.cached is None else client.cached.get(unknown, clock)
        counters.update(cache_hits=cached.height)
        with closing(self._fetched(client, self._without(unknown, cached), clock, counters)) as fetched:
            pieces = chain([cached], fetched)
            for answers in [pl.concat(pieces)] if self.step.order == "kept" else pieces:
                # Where a failure stops the flow, the next start asks again.
                is_open = pl.col(_REASON).is_not_null() & pl.lit(self.step.on_failure == "stop")
                yield pl.concat([settled.settle(answers.filter(~is_open)), answers.filter(is_open)])

    def _without(self, keys: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
        return keys.join(answers, on=self.step.key, how="anti", maintain_order="left")

    def _fetched(
        self, client: LookupClient, keys: pl.DataFrame, clock: int, counters: Counter[str]
    ) -> Generator[pl.DataFrame]:
        if keys.is_empty():
            return
        with closing(client.fetch(keys, self.columns, counters)) as pieces:
            for piece in pieces:
                answers = self._answers(keys, piece)
                if client.cached is not None:
                    client.cached.put(answers.filter(pl.col(_REASON).is_null()), clock)
                yield answers

    def _answers(self, keys: pl.DataFrame, piece: Piece) -> pl.DataFrame:
        nothing = (None,) * len(self.columns)
        rows = [
            (*nothing, outcome.reason, outcome.detail) if isinstance(outcome, LookupFailure) else (*outcome, None, None)
            for _, outcome in piece
        ]
        schema = {name: dtype for name, dtype in self._nothing.schema.items() if name not in self.step.key}
        values = pl.DataFrame(rows, schema=schema, orient="row")
        return pl.concat([keys[[place for place, _ in piece]], values], how="horizontal")

    def _joined(self, rows: pl.DataFrame) -> Passed:
        """Rows with their answers; rows without go where ``on_failure`` says."""
        if self.step.on_failure == "null":
            why = pl.concat_str(_REASON, pl.lit(": "), _DETAIL).alias(self.step.failure_column)
            return Passed(rows.with_columns(why).select(self.output_schema.keys()), rows.height)
        failed = rows.filter(pl.col(_REASON).is_not_null())
        if self.step.on_failure == "stop" and not failed.is_empty():
            first = failed.row(0, named=True)
            key = ", ".join(f"{name}={first[name]!r}" for name in self.step.key)
            raise HeadraceError(
                "LOOKUP_FAILED",
                f"step {self.name!r}: {failed.height} rows got no answer, the first for {key}: {first[_REASON]}: "
                f"{' '.join(first[_DETAIL].split())}. Repair the service, or use on_failure='dead_letter' or 'null'.",
            )
        accepted = rows.filter(pl.col(_REASON).is_null()).select(self.output_schema.keys())
        whole = pl.Series("row", json_rows(failed.select(self.schema.keys())), pl.Binary())
        letters = failed.select(pl.col(_REASON).alias("reason"), pl.col(_DETAIL).alias("detail")).with_columns(whole)
        return Passed(accepted, accepted.height, failed=letters)
