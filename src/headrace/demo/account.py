"""The account of a whole demonstration: what the batches said, held against what the files hold."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from headrace.demo.feed import Feed
from headrace.observe.status import total


@dataclass(frozen=True, slots=True)
class Balance:
    """One line of the account: a whole, and the parts it must be the sum of."""

    what: str
    whole: tuple[str, int]
    parts: tuple[tuple[str, int], ...]

    @property
    def holds(self) -> bool:
        """Whether the parts make up the whole."""
        return self.whole[1] == sum(rows for _, rows in self.parts)

    @property
    def equation(self) -> str:
        """The line in words.

        >>> Balance("payments", ("read", 5), (("handed on", 4), ("dead", 1))).equation
        '5 read = 4 handed on + 1 dead'
        """
        parts = " + ".join(f"{rows:,} {name}" for name, rows in self.parts)
        return f"{self.whole[1]:,} {self.whole[0]} = {parts}"


def balances(feed: Feed) -> list[Balance]:
    """Every row that came in is somewhere, and every row that went out is in a file."""

    def summed(kind: str, number: str) -> int:
        return total(feed.entries, kind, number)

    def outputs(what: str, output: str, rows: int) -> Balance:
        out = total(feed.entries, "sinks", "out", of=output)
        return Balance(what, ("out", out), (("in files", rows),))

    return [
        Balance(
            "payments",
            ("read", summed("sources", "read")),
            (("handed on", summed("sources", "handed_on")), ("dead", summed("sources", "dead"))),
        ),
        Balance(
            "window step",
            ("in", summed("steps", "in")),
            (("accepted", summed("steps", "accepted")), ("late", summed("steps", "late"))),
        ),
        outputs("windows", "main", feed.windows.rows),
        outputs("late rows", "minutes.late", feed.late.rows),
        outputs("dead letters", "payments.dead_letters", feed.dead.rows),
    ]


def account_table(lines: list[Balance]) -> Table:
    """The account with a mark on every line that adds up."""
    table = Table(title="The account", title_style="bold", title_justify="left", show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="center")
    for line in lines:
        table.add_row(line.what, line.equation, "[green]✓[/]" if line.holds else "[bold red]✗[/]")
    return table
