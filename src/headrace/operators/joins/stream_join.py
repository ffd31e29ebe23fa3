"""What joins by time have in common as an author says them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl

from headrace.changelog import CHANGE
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.operators.corrections import check_late
from headrace.operators.joins.join_columns import JoinedColumns, JoinKey, joined_columns
from headrace.operators.joins.matching import JoinHow
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, place
from headrace.wheel.operator import AnyOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamJoin(ABC):
    """A value that becomes an operator once ``late`` is chosen."""

    name: str
    on: JoinKey
    how: JoinHow
    lateness: Lateness | None = None

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows of either side; there is no default."""
        check_late(f"step {self.name!r}", lateness)
        return replace(self, lateness=lateness)

    def __call__(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """The joined rows of two frames."""
        return self.outputs(left, right).main

    def outputs(self, left: DataFrame, right: DataFrame) -> Outputs:
        """The joined rows and, beside them, the late rows of each side: ``late`` and ``late_right``."""
        return place(self, self.bind, left, right)

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        right_schema: Mapping[str, pl.DataType] | None = None,
        right_time: str | None = None,
    ) -> AnyOperator:
        """The operator that runs over rows of these schemas."""
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"step {self.name!r} does not say what happens to late rows, so some would silently be lost. "
                "Add .late(hr.drop()), .late(hr.side_output()) or .late(hr.update_for('5 minutes')).",
            )
        if right_schema is None or right_time is None:
            raise DefinitionError(
                "JOIN_NEEDS_TWO", f"step {self.name!r} joins two frames, but got one. Call step(left, right)."
            )
        self.on.check(self.name, schema, right_schema)
        known = {name: right_schema[name] for name in self.on.right} if self._only_left else right_schema
        own = [*self._own, *([CHANGE] if self.takes_back else [])]
        columns = joined_columns(self.name, self.on, schema, known, own=own)
        left = Rows(self.name, self.on.left, time, dict(schema))
        right = Rows(self.name, self.on.right, right_time, dict(right_schema))
        return self._joining(left, right, columns, self.lateness)

    @abstractmethod
    def _joining(self, left: Rows, right: Rows, columns: JoinedColumns, lateness: Lateness) -> AnyOperator:
        """The operator over the rows of both sides."""

    @property
    @abstractmethod
    def _own(self) -> tuple[str, ...]:
        """The columns that the join adds, beside the change."""

    @property
    @abstractmethod
    def takes_back(self) -> bool:
        """Whether a row may be taken back because a late one belongs to it, so that rows carry a ``change``."""

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid; ``late`` may only become longer."""

    @property
    @abstractmethod
    def holds(self) -> str:
        """What the state holds and how long, in words and as a bound."""

    @property
    def key(self) -> tuple[str, ...]:
        """The left key columns, under whose names the key leaves."""
        return self.on.left

    @property
    def previews(self) -> bool:
        """Whether rows are emitted that a later one takes back."""
        return self.takes_back

    @property
    def retention(self) -> int:
        """JoinHow much longer rows are kept for late ones."""
        return 0 if self.lateness is None else self.lateness.correctable

    @property
    def _only_left(self) -> bool:
        return self.how in ("semi", "anti")

    @property
    def _leave_alone(self) -> tuple[bool, bool]:
        """Whether left and right rows that meet none leave too."""
        return self.how in ("left", "full", "anti"), self.how in ("right", "full")
