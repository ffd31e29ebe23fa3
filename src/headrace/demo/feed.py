"""What a running demo has left on disk so far, and whether its account adds up."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from headrace.observe.account import Account, SourceCounts, StepCounts, total
from headrace.observe.committed import commits, rows_of
from headrace.observe.history import FILE, HistoryEntry, parse

LATEST = 14


@dataclass(slots=True)
class Committed:
    """The committed batches of one folder: how many rows there are, and the latest of them."""

    folder: Path
    order: tuple[str, ...]
    """Columns in whose order rows count as the latest."""
    rows: int = 0
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=LATEST))
    _seen: set[str] = field(default_factory=set)

    def look(self) -> pl.DataFrame:
        """The rows that have been committed since the last look."""
        fresh = [commit for commit in commits(self.folder) if commit.name not in self._seen]
        if not fresh:
            return pl.DataFrame()
        self._seen.update(commit.name for commit in fresh)
        rows = pl.concat([rows_of(commit) for commit in fresh])
        self.rows += rows.height
        self.latest.extend(rows.sort(self.order).tail(LATEST).to_dicts())
        return rows


@dataclass(slots=True)
class Feed:
    """All that the screen shows."""

    flow: Path
    windows: Committed
    late: Committed
    dead: Committed
    batches: dict[int, HistoryEntry] = field(default_factory=dict)
    """The history's entries; of a batch that ran again the later one."""
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """What was wrong with the latest dead letter of each reason."""
    _read: int = 0

    @classmethod
    def of(cls, folder: Path, flow: Path) -> Feed:
        """The feed of a demonstration in this folder."""
        return cls(
            flow,
            Committed(folder / "windows", ("window", "shop")),
            Committed(folder / "late", ("at",)),
            Committed(flow / "dead_letters", ("position",)),
        )

    @property
    def rows(self) -> Account:
        """The account of all batches so far."""
        return total(entry.account for entry in self.batches.values())

    def look(self) -> None:
        """Take in what has happened since the last look."""
        self.windows.look()
        self.late.look()
        dead = self.dead.look()
        if not dead.is_empty():
            self.reasons.update(dead["reason"].to_list())
            self.examples |= dict(dead.sort("position").select("reason", "detail").rows())
        self._look_at_history()

    def _look_at_history(self) -> None:
        file = self.flow / FILE
        if not file.exists():
            return
        with file.open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.batches |= {entry.batch: entry for entry in map(parse, whole.splitlines())}


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
    account = feed.rows
    payments = account.sources.get("payments", SourceCounts())
    minutes = account.steps.get("minutes", StepCounts())

    def outputs(what: str, output: str, rows: int) -> Balance:
        return Balance(what, ("out", account.out(output)), (("in files", rows),))

    return [
        Balance("payments", ("read", payments.read), (("handed on", payments.handed_on), ("dead", payments.dead))),
        Balance("window step", ("in", minutes.in_), (("accepted", minutes.accepted), ("late", minutes.late))),
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
