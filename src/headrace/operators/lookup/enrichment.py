"""A lookup at work in a task: distinct keys are asked for once, and every row gets its key's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import polars as pl

from headrace.errors import HeadraceError
from headrace.operators.lookup.breaker import Breaker
from headrace.operators.lookup.cache import Cache, Remembered
from headrace.operators.lookup.client import Desk, Piece, desk_of, leave
from headrace.operators.lookup.requests import Terms
from headrace.operators.lookup.service import LookupFailure, Service
from headrace.operators.rows import join_by_key
from headrace.shaping import json_rows
from headrace.wheel.key_groups import canonical
from headrace.wheel.stateless import Passed
from headrace.wheel.task import Task

Order = Literal["kept", "free"]
OnFailure = Literal["null", "dead_letter", "stop"]
NUMBERS = ("keys", "cache_hits", "calls", "retries", "timeouts", "failures", "refused", "breaker_open")
"""What a lookup tells of every batch; ``breaker_open`` counts the tasks that ended with an open breaker."""
_REASON, _DETAIL = "__reason", "__detail"


@dataclass(frozen=True)
class Enrichment:
    """The runtime form of a lookup."""

    id: str
    """What a worker knows the lookup by from batch to batch."""
    name: str
    schema: Mapping[str, pl.DataType]
    on: tuple[str, ...]
    columns: Mapping[str, pl.DataType]
    """What each answer brings."""
    service: Service
    terms: Terms
    breaker: Breaker | None
    cache: Cache | None
    order: Order
    on_failure: OnFailure

    @property
    def gathered_by(self) -> tuple[str, ...]:
        """All rows of a key come to one task, so that a batch asks for it once."""
        return self.on

    @property
    def output_schema(self) -> dict[str, pl.DataType]:
        """The columns of the rows and of the answers; where failures are nulls, beside them why."""
        why = {failure_column(self.name): pl.String()} if self.on_failure == "null" else {}
        return {**self.schema, **self.columns, **why}

    def passed(self, frames: Iterable[pl.DataFrame], task: Task) -> Iterator[Passed]:
        """The rows with the answers to their keys; rows without a key are not asked for."""
        given = [frame for frame in frames if not frame.is_empty()]
        if not given:
            return
        rows = pl.concat(given)
        numbers = Counter(dict.fromkeys(NUMBERS, 0))
        desk = desk_of(self.id, self._desk)
        keys = canonical(rows.select(self.on), self.on).unique(maintain_order=True).drop_nulls()
        known = self._remembered(desk, keys, task.record.clock)
        numbers.update(keys=keys.height, cache_hits=known.height)
        unknown = keys.join(known, on=self.on, how="anti", maintain_order="left")
        with closing(self._asked(desk, unknown, task.record.clock, numbers)) as asked:
            if self.order == "kept":
                answers = pl.concat([known, *asked])
                yield self._joined(join_by_key(rows, answers, self.on, how="left", maintain_order="left"))
            else:
                without_key = rows.filter(pl.any_horizontal(pl.col(self.on).is_null()))
                yield self._joined(join_by_key(without_key, known, self.on, how="left"))
                for answers in chain([known], asked) if known.height else asked:
                    yield self._joined(join_by_key(rows, answers, self.on))
        numbers.update(breaker_open=int(desk.circuit.is_open))
        yield Passed(pl.DataFrame(schema=self.output_schema), 0, counters=numbers)

    def close(self) -> None:
        """Let go of the service, and of what it has answered."""
        leave(self.id)

    @property
    def _answer_schema(self) -> dict[str, pl.DataType]:
        keys = {name: self.schema[name] for name in self.on}
        return {**keys, **self.columns, _REASON: pl.String(), _DETAIL: pl.String()}

    def _desk(self) -> Desk:
        remembered = None if self.cache is None else Remembered(self.cache, self.on, self._answer_schema)
        return Desk(self.service, self.terms, self.breaker, remembered)

    def _remembered(self, desk: Desk, keys: pl.DataFrame, clock: int) -> pl.DataFrame:
        if desk.remembered is None:
            return pl.DataFrame(schema=self._answer_schema)
        return desk.remembered.known(keys, clock)

    def _asked(self, desk: Desk, keys: pl.DataFrame, clock: int, numbers: Counter[str]) -> Generator[pl.DataFrame]:
        """Answers in pieces of many keys."""
        if keys.is_empty():
            return
        with closing(desk.ask(keys, self.columns, numbers)) as pieces:
            for piece in pieces:
                answers = self._answers(keys, piece)
                if desk.remembered is not None:
                    desk.remembered.remember(answers.filter(pl.col(_REASON).is_null()), clock)
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
        """Rows with their answers; those without go where the author said."""
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
            f"{' '.join(first[_DETAIL].split())}. Nothing of the batch is committed; mend the service and start again, "
            "or choose on_failure='dead_letter' or 'null'.",
        )


def failure_column(step: str) -> str:
    """The column that says why a row's answer is null.

    >>> failure_column("customer")
    'customer_failure'
    """
    return f"{step}_failure"
