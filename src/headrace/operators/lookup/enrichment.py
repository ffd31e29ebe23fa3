"""The operator of a lookup: requests each distinct key of a task once and joins the answers to the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import polars as pl

from headrace.errors import HeadraceError
from headrace.operators.lookup.client import AnswerCache, Cache, LookupClient, Piece, close_client, lookup_client
from headrace.operators.lookup.requests import Breaker, RequestLimits
from headrace.operators.lookup.service import LookupFailure, LookupService
from headrace.operators.rows import join_by_key
from headrace.rendering import json_rows
from headrace.wheel.key_groups import canonical
from headrace.wheel.stateless import Passed
from headrace.wheel.task import Task

Order = Literal["kept", "free"]
OnFailure = Literal["null", "dead_letter", "stop"]
COUNTERS = ("keys", "cache_hits", "calls", "retries", "timeouts", "failures", "refused", "breaker_open")
"""The counters of a lookup; ``breaker_open`` counts the tasks that ended with an open breaker."""
_REASON, _DETAIL = "__reason", "__detail"


@dataclass(frozen=True)
class Enrichment:
    """The operator of a lookup."""

    id: str
    """Identifies the lookup in a worker from batch to batch."""
    name: str
    schema: Mapping[str, pl.DataType]
    on: tuple[str, ...]
    columns: Mapping[str, pl.DataType]
    """The columns of an answer."""
    service: LookupService
    limits: RequestLimits
    breaker: Breaker | None
    cache: Cache | None
    order: Order
    on_failure: OnFailure

    @property
    def gathered_by(self) -> tuple[str, ...]:
        """All rows of a key come to one task, so that a batch requests it once."""
        return self.on

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The columns of the rows and of the answers, and with ``on_failure='null'`` the reason of a failure."""
        why = {failure_column(self.name): pl.String()} if self.on_failure == "null" else {}
        return {**self.schema, **self.columns, **why}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """The rows with the answers for their keys; null keys are not requested."""
        given = [frame for frame in frames if not frame.is_empty()]
        if not given:
            return
        rows = pl.concat(given)
        counters = Counter(dict.fromkeys(COUNTERS, 0))
        client = lookup_client(self.id, self._client)
        keys = canonical(rows.select(self.on), self.on).unique(maintain_order=True).drop_nulls()
        known = pl.DataFrame(schema=self._answer_schema)
        if client.cached is not None:
            known = client.cached.get(keys, task.record.clock)
        counters.update(keys=keys.height, cache_hits=known.height)
        unknown = keys.join(known, on=self.on, how="anti", maintain_order="left")
        with closing(self._fetched(client, unknown, task.record.clock, counters)) as fetched:
            if self.order == "kept":
                answers = pl.concat([known, *fetched])
                yield self._joined(join_by_key(rows, answers, self.on, how="left", maintain_order="left"))
            else:
                without_key = rows.filter(pl.any_horizontal(pl.col(self.on).is_null()))
                yield self._joined(join_by_key(without_key, known, self.on, how="left"))
                for answers in chain([known], fetched) if known.height else fetched:
                    yield self._joined(join_by_key(rows, answers, self.on))
        counters.update(breaker_open=int(client.circuit.is_open))
        yield Passed(pl.DataFrame(schema=self.output_schema), 0, counters=counters)

    def close(self) -> None:
        """Close the connection and forget the cached answers."""
        close_client(self.id)

    @property
    def _answer_schema(self) -> dict[str, pl.DataType]:
        keys = {name: self.schema[name] for name in self.on}
        return {**keys, **self.columns, _REASON: pl.String(), _DETAIL: pl.String()}

    def _client(self) -> LookupClient:
        cached = None if self.cache is None else AnswerCache(self.cache, self.on, self._answer_schema)
        return LookupClient(self.service, self.limits, self.breaker, cached)

    def _fetched(
        self, client: LookupClient, keys: pl.DataFrame, clock: int, counters: Counter[str]
    ) -> Generator[pl.DataFrame]:
        """Answers in pieces of many keys."""
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
        schema = {name: dtype for name, dtype in self._answer_schema.items() if name not in self.on}
        values = pl.DataFrame(rows, schema=schema, orient="row")
        return pl.concat([keys[[place for place, _ in piece]], values], how="horizontal")

    def _joined(self, rows: pl.DataFrame) -> Passed:
        """Rows with their answers; rows without go where ``on_failure`` says."""
        failing = pl.col(_REASON).is_not_null()
        if self.on_failure == "null":
            why = pl.concat_str(_REASON, pl.lit(": "), _DETAIL).alias(failure_column(self.name))
            return Passed(rows.with_columns(why).select(self.output_schema.keys()), rows.height)
        failed = rows.filter(failing)
        if self.on_failure == "stop" and not failed.is_empty():
            raise self._stopping(failed)
        accepted = rows.filter(~failing).select(self.output_schema.keys())
        whole = pl.Series("row", json_rows(failed.select(self.schema.keys())), pl.Binary())
        letters = failed.select(pl.col(_REASON).alias("reason"), pl.col(_DETAIL).alias("detail")).with_columns(whole)
        return Passed(accepted, accepted.height, failed=letters)

    def _stopping(self, failed: pl.DataFrame) -> HeadraceError:
        first = failed.row(0, named=True)
        key = ", ".join(f"{name}={first[name]!r}" for name in self.on)
        return HeadraceError(
            "LOOKUP_FAILED",
            f"step {self.name!r}: {failed.height} rows got no answer, the first for {key}: {first[_REASON]}: "
            f"{' '.join(first[_DETAIL].split())}. Nothing of the batch is committed; repair the service and start "
            "again, or choose on_failure='dead_letter' or 'null'.",
        )


def failure_column(step: str) -> str:
    """The column with the reason why a row has no answer.

    >>> failure_column("customer")
    'customer_failure'
    """
    return f"{step}_failure"
