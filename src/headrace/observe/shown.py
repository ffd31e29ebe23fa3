"""Tables for people: text in a terminal, HTML in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import polars as pl
from rich.console import Console
from rich.table import Table

from headrace.rendering import shown

_STYLE = """<style>
.headrace table { border-collapse: collapse; margin: 0 0 1.2em }
.headrace th, .headrace td { padding: .25em .8em; text-align: left; border-bottom: 1px solid rgba(128, 128, 128, .3) }
.headrace th { border-bottom-width: 2px; font-weight: 600 }
.headrace td.number, .headrace th.number { text-align: right; font-variant-numeric: tabular-nums }
.headrace .title { font-weight: 600; margin: .6em 0 .3em }
.headrace .note { opacity: .7; font-weight: 400 }
</style>"""

MOST_COLUMNS = 3
"""Of a table that is turned."""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table whose values are text already."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    """What is said beside the title."""
    numbers: frozenset[str] = frozenset()
    """The columns that stand to the right in HTML."""

    @classmethod
    def of(cls, rows: pl.DataFrame, *, title: str = "", note: str = "") -> ShownTable:
        """The rows of a frame."""
        numbers = frozenset(name for name, kind in rows.schema.items() if kind.is_numeric())
        return cls(rows.columns, [[*map(shown, row)] for row in rows.iter_rows()], title, note, numbers)

    def fitting(self, console: Console) -> Table:
        """For a console: few rows that are wider than it are turned, each into a column."""
        table = self.as_rich()
        endless = console.options.update(max_width=10_000)
        if len(self.rows) > MOST_COLUMNS or console.measure(table, options=endless).maximum <= console.width:
            return table
        first, *others = zip(self.columns, *self.rows, strict=True)
        return ShownTable(first, others).as_rich()

    def as_rich(self) -> Table:
        """For a console, which must not take values for markup."""
        table = Table(header_style="bold")
        for name in self.columns:
            table.add_column(name, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def as_html(self) -> str:
        """An HTML table below its title."""
        note = f' <span class="note">{escape(self.note)}</span>' if self.note else ""
        title = f'<div class="title">{escape(self.title)}{note}</div>' if self.title else ""
        if not self.columns:
            return title
        names = [(name, ' class="number"' if name in self.numbers else "") for name in self.columns]
        head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in names)
        body = "".join(
            f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for (_, kind), cell in zip(names, row, strict=True))}</tr>"
            for row in self.rows
        )
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def as_text(tables: Iterable[ShownTable]) -> str:
    """Tables below each other, as text."""
    console = Console(file=io.StringIO(), markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as captured:
        for table in tables:
            if table.title:
                console.print(f"{table.title}  {table.note}".rstrip())
            if table.columns:
                console.print(table.fitting(console))
    return captured.get().rstrip("\n")


def as_html(tables: Iterable[ShownTable]) -> str:
    """Tables below each other, as HTML for a notebook."""
    return f'<div class="headrace">{_STYLE}{"".join(table.as_html() for table in tables)}</div>'
