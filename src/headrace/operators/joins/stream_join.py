"""What joins by time have in common as an author says them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

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
    """A join of two inputs by event time; its late rows leave by ``late`` and ``late_right``."""

    on: JoinKey
    how: JoinHow

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        right_schema: Mapping[str, pl.DataType] | None = None,
        right_time: str | None = None,
    ) -> AnyOperator:
        """The operator that runs over rows of these schemas."""
        lateness = self._chosen_lateness()
        if right_schema is None or right_time is None:
            raise DefinitionError(
                "JOIN_NEEDS_TWO", f"step {self.name!r} joins two frames, but got one. Call step(left, right)."
            )
        self.on.check(self.name, schema, right_schema)
        known = {name: right_schema[name] for name in self.on.right} if self._only_left else right_schema
        own = [*self._own, *([CHANGE] if self.retracts else [])]
        columns = joined_columns(self.name, self.on, schema, known, own=own)
        left = Rows(self.name, self.on.left, time, dict(schema))
        right = Rows(self.name, self.on.right, right_time, dict(right_schema))
        return self._joining(left, right, columns, lateness)

    @abstractmethod
    def _joining(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> AnyOperator:
        """The operator over the rows of both sides."""

    @property
    @abstractmethod
    def _own(self) -> tuple[str, ...]:
        """The columns that the join adds, beside the change."""

    @property
    def previews(self) -> bool:
        """Whether rows are emitted that a later one takes back."""
        return self.retracts

    @property
    def _only_left(self) -> bool:
        return self.how in ("semi", "anti")

    @property
    def _leave_alone(self) -> tuple[bool, bool]:
        """Whether left and right rows that meet none leave too."""
        return self.how in ("left", "full", "anti"), self.how in ("right", "full")
