"""What runs for an accumulator: the author's code, called for every row."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import HeadraceError
from headrace.expressions.aggregates.binding import Binding, Rows
from headrace.expressions.rows import RowExpression

if TYPE_CHECKING:
    from headrace.expressions.aggregates.accumulator import Accumulator


class AccumulatorFailed(HeadraceError):
    """The author's own aggregate raised an error, or gave something else than it declares."""

    def __init__(self, message: str) -> None:
        # Polars makes an error of a function anew from its text, with a note on the expression at the end.
        said = message.removeprefix("[ACCUMULATOR_FAILED] ").partition("\n\nThis error occurred")[0]
        super().__init__("ACCUMULATOR_FAILED", said)


@dataclass(frozen=True, slots=True)
class RowByRow:
    """One struct for each group, made by the author's code; it is null for no rows, which merge as nothing."""

    accumulator: Accumulator

    @property
    def arguments(self) -> tuple[RowExpression, ...]:
        return self.accumulator.arguments

    def state_types(self, of: Binding) -> dict[str, pl.DataType]:
        return {"kept": pl.Struct(self.accumulator.kept_types)}

    def partial(self, of: Binding, rows: Rows) -> dict[str, pl.Expr]:
        values = [of.operand(argument).value.alias(argument.text) for argument in self.arguments]
        row = values[0] if len(values) == 1 else pl.struct(values)
        return {"kept": self._of_groups(rows.kept(row), partial(self._added, of.name), of)}

    def merge(self, of: Binding) -> dict[str, pl.Expr]:
        return {"kept": self._of_groups(of.state("kept").drop_nulls(), partial(self._merged, of.name), of)}

    def result(self, of: Binding) -> pl.Expr:
        results = partial(self._results, of.name)
        return of.state("kept").map_batches(results, self.accumulator.given_type, is_elementwise=True)

    def result_type(self, of: Binding) -> pl.DataType:
        for argument in self.arguments:
            of.operand(argument)
        with self._calling("start", of.name):
            self._stored([self.accumulator.start()], "start", of.name)
        return self.accumulator.given_type

    def _of_groups(self, value: pl.Expr, function: Any, of: Binding) -> pl.Expr:
        return value.implode().map_batches(function, self.state_types(of)["kept"], is_elementwise=True)

    def _added(self, name: str, groups: pl.Series) -> pl.Series:
        author = self.accumulator
        with self._calling("add", name):
            kept = [reduce(author.add, values, author.start()) if values else None for values in groups.to_list()]
        return self._stored(kept, "add", name)

    def _merged(self, name: str, groups: pl.Series) -> pl.Series:
        with self._calling("merge", name):
            kept = [reduce(self.accumulator.merge, several) if several else None for several in groups.to_list()]
        return self._stored(kept, "merge", name)

    def _results(self, name: str, kept: pl.Series) -> pl.Series:
        author = self.accumulator
        with self._calling("result", name):
            results = [author.result(author.start() if one is None else one) for one in kept.to_list()]
        return self._typed(results, author.given_type, "result", name)

    def _stored(self, kept: list[Any], method: str, name: str) -> pl.Series:
        """What the author's code keeps, in the declared types."""
        types = self.accumulator.kept_types
        for one in kept:
            if one is not None and (not isinstance(one, dict) or one.keys() != types.keys()):
                raise self._failed(method, name, f"gave {one!r}, which is not a dict of {', '.join(types)}")
        columns = [
            self._typed([None if one is None else one[field] for one in kept], dtype, method, name).alias(field)
            for field, dtype in types.items()
        ]
        filled = pl.Series([one is not None for one in kept], dtype=pl.Boolean)
        return pl.select(pl.when(filled).then(pl.struct(columns))).to_series()

    def _typed(self, values: list[Any], dtype: pl.DataType, method: str, name: str) -> pl.Series:
        try:
            return pl.Series(values, dtype=dtype, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            said = str(error).splitlines()[0]
            raise self._failed(method, name, f"gave what is not {dtype}: {said}") from error

    @contextmanager
    def _calling(self, method: str, name: str) -> Iterator[None]:
        try:
            yield
        except AccumulatorFailed:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            raise self._failed(method, name, f"raised {type(error).__name__}: {error} (at {place})") from error

    def _failed(self, method: str, name: str, what: str) -> AccumulatorFailed:
        kind = type(self.accumulator)
        return AccumulatorFailed(
            f"aggregate '{name}': {kind.__name__}.{method} {what}. It keeps ({kind.state}) and gives "
            f"{kind.result_type}; correct the method or what the class declares."
        )
