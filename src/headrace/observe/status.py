"""The status of every flow of a checkpoint, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from rich.console import Group
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from headrace.checkpoint.lease import last_driver
from headrace.checkpoint.outages import Outage, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.strategy import BEGINNING, END, EPOCH
from headrace.observe import history
from headrace.observe.history import HistoryEntry
from headrace.observe.shown import ShownTable

WIDE = 134


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow after its newest batch; rows are counted over all batches."""

    flow: str
    batch: int | None
    """None before the first batch is done."""
    read: int
    dead: int
    late: int
    out: int
    watermark: datetime | None
    """None before the first row and after the end of time."""
    lag: timedelta | None
    """How far the watermark is behind the clock of the newest batch."""
    seconds: float
    state_rows: int
    state_bytes: int
    unread: int = 0
    """Rows that wait in the sources after those read."""
    waiting: tuple[str, ...] = ()
    """The sinks and sources that do not answer, and why."""
    stopped: datetime | None = None
    """When its driver was last seen; None while the driver runs."""
    read_once: Mapping[str, bool] = field(default_factory=dict)
    """Of each source that tasks read, whether no batch has read anything of it twice."""
    drained: bool = False
    """Whether the flow has come to the end of time."""

    @property
    def state(self) -> Literal["running", "waiting", "stopped"]:
        """What the flow does now."""
        return "stopped" if self.stopped is not None else "waiting" if self.waiting else "running"

    @property
    def time(self) -> str:
        """The watermark for people."""
        if self.watermark is not None:
            return _text(self.watermark)
        return shown_moment(END) if self.drained else "none yet" if self.read else shown_moment(BEGINNING)

    def to_json(self) -> dict[str, object]:
        """Plain values for machines; the watermark is null before the first row and after the end of time."""
        moment = None if self.watermark is None else self.time
        lag = None if self.lag is None else self.lag.total_seconds()
        stopped = None if self.stopped is None else _text(self.stopped)
        said = {"state": self.state, "stopped": stopped, "watermark": moment, "lag": lag}
        return {**asdict(self), **said}


def statuses(checkpoint: Path) -> list[FlowStatus]:
    """The status of every flow that has run a batch, or is about to."""
    driver, everywhere = last_driver(checkpoint), outages(LocalStorage(checkpoint))
    flows = sorted({*history.flows(checkpoint), *(() if driver is None else driver.flows)})
    found = []
    for flow in flows:
        newest = history.newest(checkpoint / flow)
        ended = newest.clock if driver is None and newest is not None else None
        if driver is not None and driver.stopped is not None:
            ended = round(driver.stopped * 1_000_000)
        waiting = everywhere + outages(LocalStorage(checkpoint / flow)) if ended is None else []
        found.append(_status(flow, newest, waiting, ended))
    return found


def _status(flow: str, newest: HistoryEntry | None, waiting: list[Outage], stopped: int | None) -> FlowStatus:
    batch, newest = (None, HistoryEntry(flow, -1, 0)) if newest is None else (newest.batch, newest)
    rows = newest.total
    watermark = min(newest.watermarks.values(), default=BEGINNING)
    moment = EPOCH + timedelta(microseconds=watermark) if BEGINNING < watermark < END else None
    return FlowStatus(
        flow,
        batch,
        rows.read,
        rows.dead,
        rows.late,
        rows.out("main"),
        moment,
        None if moment is None else timedelta(microseconds=newest.clock - watermark),
        newest.seconds.batch,
        newest.state.rows,
        newest.state.bytes,
        sum(newest.unread.values()),
        tuple(sorted({f"{outage.sink} ({outage.reason})" for outage in waiting})),
        None if stopped is None else EPOCH + timedelta(microseconds=stopped),
        rows.read_once,
        watermark == END,
    )


def status_view(flows: list[FlowStatus], *, width: int) -> Group:
    """What ``headrace status`` shows: the table, and below it what flows wait for, since when they have stopped."""
    lines = [f"{flow.flow} has been stopped since {_text(flow.stopped)} (UTC)" for flow in flows if flow.stopped]
    lines += [f"[yellow]{flow.flow} is waiting: {escape(sink)}[/]" for flow in flows for sink in flow.waiting]
    again = ((flow.flow, source) for flow in flows for source, once in flow.read_once.items() if not once)
    lines += [f"[yellow]{flow} has read rows of {source} more than once; they count once[/]" for flow, source in again]
    return Group(status_table(flows, width=width), *lines)


def shown_status(flows: Iterable[FlowStatus], failed: Container[str]) -> ShownTable:
    """A line for each flow, as a started pipeline shows itself, which knows which of them have failed."""
    rows = [{name: Text.from_markup(cell).plain for name, cell in _shown(flow).items()} for flow in flows]
    rows = [{**row, "state": "failed"} if row["flow"] in failed else row for row in rows]
    columns = [*rows[0]] if rows else ["flow"]
    return ShownTable(columns, [[*row.values()] for row in rows], numbers=frozenset(columns[2:]))


def status_table(flows: list[FlowStatus], *, width: int) -> Table:
    """A line for each flow, or a column where lines would be too long."""
    wide = width >= WIDE
    rows = [_shown(flow) for flow in flows]
    lines: list[Iterable[str]] = [rows[0] if rows else ["flow"], *(row.values() for row in rows)]
    (flow, *headers), *body = lines if wide else zip(*lines, strict=True)
    table = Table(Column(flow, style="cyan" if wide else "bold", no_wrap=wide), header_style="bold")
    for header in headers:
        table.add_column(header, header_style="" if wide else "cyan", justify="right", no_wrap=wide)
    for line in body:
        table.add_row(*line)
    return table


def _shown(flow: FlowStatus) -> dict[str, str]:
    return {
        "flow": flow.flow,
        "state": f"[yellow]{flow.state}[/]" if flow.waiting else flow.state,
        "batch": "-" if flow.batch is None else f"{flow.batch:,}",
        "read": f"{flow.read:,}",
        "unread": f"{flow.unread:,}",
        "dead": f"[red]{flow.dead:,}[/]" if flow.dead else "0",
        "late": f"[yellow]{flow.late:,}[/]" if flow.late else "0",
        "out": f"{flow.out:,}",
        "watermark (UTC)": flow.time,
        "lag": "-" if flow.lag is None else shown_length(flow.lag // timedelta(microseconds=1)),
        "seconds": f"{flow.seconds:.2f}",
        "state rows": f"{flow.state_rows:,}",
        "state size": shown_size(flow.state_bytes),
    }


def shown_moment(moment: int) -> str:
    """A moment for people.

    >>> shown_moment(90_000_000)
    '1970-01-01 00:01:30'
    >>> shown_moment(BEGINNING), shown_moment(END)
    ('no row yet', 'end of time')
    """
    if moment in (BEGINNING, END):
        return "no row yet" if moment == BEGINNING else "end of time"
    return _text(EPOCH + timedelta(microseconds=moment))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def shown_length(length: int) -> str:
    """A length of time in its two largest units.

    >>> [shown_length(seconds * 1_000_000) for seconds in (4, 94, 7_260, 176_400, -5)]
    ['4.0 s', '1 min 34 s', '2 h 1 min', '2 d 1 h', '-5.0 s']
    """
    seconds, sign = abs(length) / 1_000_000, "-" if length < 0 else ""
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            return f"{sign}{int(seconds // unit)} {name} {int(seconds % unit // part)} {part_name}"
    return f"{sign}{seconds:.1f} s"


def shown_size(size: int) -> str:
    """A number of bytes for people.

    >>> shown_size(900), shown_size(10_560)
    ('900 B', '10.3 KiB')
    """
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
