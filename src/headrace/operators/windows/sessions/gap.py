"""How long a key must be silent for a session to be over: as long for every row, or as long as each row says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.durations import spoken
from headrace.errors import DefinitionError

DURATION = pl.Duration("us")


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest silence in microseconds, and the column with a row's own, if rows have one."""

    longest: int
    column: str | None = None

    @property
    def least(self) -> int:
        """The shortest silence that may end a session."""
        return self.longest if self.column is None else 1

    def behind(self, time: pl.Expr) -> pl.Expr:
        """Where a session of a row at this time alone ends.

        >>> rows = pl.DataFrame({"wait": [3, None, 0, 99]}, schema={"wait": DURATION})
        >>> rows.select(Gap(10, "wait").behind(pl.lit(100))).to_series().to_list()
        [103, 110, 101, 110]
        """
        if self.column is None:
            return time + self.longest
        # One wrong value must not keep a session open for ever, nor a row out of every session.
        return time + pl.col(self.column).cast(pl.Int64).clip(1, self.longest).fill_null(self.longest)

    def check(self, window: str, schema: Mapping[str, pl.DataType]) -> None:
        """Refuse a column that is not there or tells no duration."""
        if self.column is None or schema.get(self.column) == DURATION:
            return
        found = f"is {schema[self.column]}" if self.column in schema else "does not exist"
        raise DefinitionError(
            "GAP_COLUMN",
            f"window {window!r}: gap_column={self.column!r} {found}; it must be an INTERVAL DAY TO SECOND. Make one "
            f"before, as in .withColumn('pause', F.expr('make_dt_interval(0, 0, 0, seconds)')). Columns: "
            f"{', '.join(schema)}.",
        )

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of ``hr.session`` that make it."""
        return {"gap": spoken(self.longest), **({} if self.column is None else {"gap_column": self.column})}
