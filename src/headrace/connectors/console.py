"""Results on the terminal, for development."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.connectors.base.sink import BatchIdentity, DriverSink, Guarantee, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ConsoleSink(DriverSink):
    """Prints each batch that has rows as a table."""

    rows: int

    @property
    def guarantee(self) -> Guarantee:
        """A batch that is run again is printed again."""
        return "at_least_once"

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        """Print the first rows of a batch and how many more there are."""
        rows = frame.collect()
        if rows:
            title = f"{batch.flow} {batch.output}, batch {batch.batch}, {len(rows)} rows"
            table = Table(*frame.columns, title=title, title_justify="left")
            for row in rows[: self.rows]:
                table.add_row(*(str(value) for value in row))
            # Values and names are nobody's markup.
            Console(markup=False, emoji=False).print(table)
        return Written(len(rows), len(rows))

    def __repr__(self) -> str:
        return "hr.to_console()"


def to_console(*, rows: int = 20) -> ConsoleSink:
    """Print each batch's first rows; brings all rows of a batch to the driver, so use it for development only.

    >>> to_console()
    hr.to_console()
    """
    return ConsoleSink(rows)
