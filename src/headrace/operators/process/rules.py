"""Rules: a small second input that every key can read, as it was at the time of each row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.record import TimeBounds
from headrace.operators.process.rows import Row
from headrace.wheel.operator import Combined

DELETED = "deleted"
TIME, RULE = "__time", "__rule"


@dataclass(frozen=True, slots=True)
class Rules:
    """How rules are told apart."""

    key: str

    def __repr__(self) -> str:
        return f"hr.rules(key={self.key!r})"


def rules(*, key: str) -> Rules:
    """Rules as rows of a second input: the last row of a key stands; a row with ``deleted`` true removes it.

    >>> rules(key="rule_id")
    hr.rules(key='rule_id')
    """
    if not isinstance(key, str):
        raise DefinitionError(
            "RULES_KEY",
            f"hr.rules(key={key!r}): rules are told apart by one column. Give its name, as in key='rule_id'.",
        )
    return Rules(key)


@dataclass(frozen=True)
class RuleIntake:
    """How rule rows come to the key groups: all of them to each, none of them late."""

    name: str
    schema: Mapping[str, pl.DataType]
    time: pl.Expr
    """The time of a rule row in microseconds."""
    broadcast: bool = True
    late_output: str = "late_rules"
    key: tuple[str, ...] = ()

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """The time and the whole row."""
        return {TIME: pl.Int64(), RULE: pl.Struct(dict(self.schema))}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Rules travel as they are; a late one counts from now on."""
        partials = rows.select(self.time.alias(TIME), pl.struct(self.schema.keys()).alias(RULE))
        return Combined(partials, rows.clear(), rows.height)

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rules stay as they are, in the order of their arrival."""
        return partials


@dataclass(slots=True)
class RuleHistory:
    """The rules of a batch: those before it, and each change in it."""

    current: Mapping[Any, Row]
    before: int
    """How many changes there were before."""
    changes: list[tuple[int, Any, Row | None]]
    """Time, key and rule of each change, in order; None removes."""
    _times: list[int] = field(init=False)
    _versions: dict[int, Mapping[Any, Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._times = [time for time, _, _ in self.changes]

    def at(self, time: int) -> Mapping[Any, Row]:
        """The rules at a time."""
        return self._after(bisect_right(self._times, time))

    def version(self, time: int) -> int:
        """How many changes there were up to a time."""
        return self.before + bisect_right(self._times, time)

    def _after(self, changes: int) -> Mapping[Any, Row]:
        """The rules after so many changes, put together when somebody asks."""
        if changes not in self._versions:
            known = dict(self.current)
            for _, key, rule in self.changes[:changes]:
                known.pop(key, None)
                if rule is not None:
                    known[key] = rule
            self._versions[changes] = MappingProxyType(known)
        return self._versions[changes]
