"""What the steps of interval and window joins share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import polars as pl

from headrace.changelog import CHANGE
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, joined_columns
from headrace.operators.joins.matching import JoinHow
from headrace.operators.rows import Rows
from headrace.operators.step import Step
from headrace.wheel.operator import AnyOperator


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamJoin(Step):
    """A join of two streams by event time; late rows go to the outputs ``late`` and ``late_right``."""

    on: JoinKey
    how: JoinHow

    @property
    def inputs(self) -> tuple[str, ...]:
        return ("left", "right")

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        right_schema: Mapping[str, pl.DataType],
        right_time: str,
    ) -> AnyOperator:
        lateness = self._chosen_lateness()
        self.on.check(self.name, schema, right_schema)
        used = {name: right_schema[name] for name in self.on.right} if self._only_left else right_schema
        own = [*self._own_columns, *([CHANGE] if self.retracts else [])]
        columns = joined_columns(self.name, self.on, schema, used, own=own)
        left = Rows(self.name, self.on.left, time, dict(schema))
        right = Rows(self.name, self.on.right, right_time, dict(right_schema))
        return self._operator(left, right, columns, lateness)

    @abstractmethod
    def _operator(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> AnyOperator:
        """The operator over the rows of both inputs."""

    @property
    @abstractmethod
    def _own_columns(self) -> tuple[str, ...]:
        """The columns that the join adds, apart from ``change``."""

    @property
    def previews(self) -> bool:
        return self.retracts

    @property
    def _only_left(self) -> bool:
        return self.how in ("semi", "anti")

    @property
    def _emits_unmatched(self) -> tuple[bool, bool]:
        """Whether left and right rows without a match are emitted."""
        return self.how in ("left", "full", "anti"), self.how in ("right", "full")


def check_choice(step: str, argument: str, given: object, known: object) -> None:
    """An argument has one of the values of a literal type."""
    if given not in get_args(known):
        choices = ", ".join(map(repr, get_args(known)))
        raise DefinitionError(
            "JOIN_ARGUMENT", f"step {step!r}: {argument}={given!r} is not known. Use one of {choices}."
        )
