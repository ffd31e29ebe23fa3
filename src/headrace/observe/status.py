"""The status of every flow of a checkpoint, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Group
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from headrace.checkpoint.outages import Outage, outages
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.strategy import BEGINNING, END, EPOCH
from headrace.observe import history
from headrace.observe.history import HistoryEntry
from headrace.observe.shown import ShownTable

WIDE = 124


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow after its newest batch; rows are counted over all batches."""

    flow: str
    batch: int
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
    """The sinks that do not answer, and why."""
    read_once: Mapping[str, bool] = field(default_factory=dict)
    """Of each source that tasks read, whether no batch has read anything of it twice."""
    drained: bool = False
    """Whether the flow has come to the end of time."""

    @property
    def shown_watermark(self) -> str:
        """The watermark for people."""
        if self.watermark is None:
            return shown_moment(END if self.drained else BEGINNING)
        return f"{self.watermark:%Y-%m-%d %H:%M:%S}"

    def to_json(self) -> dict[str, object]:
        """Plain values for machines; the watermark is null before the first row and after the end of time."""
        moment = None if self.watermark is None else self.shown_watermark
        return {**asdict(self), "watermark": moment, "lag": None if self.lag is None else self.lag.total_seconds()}


def statuses(checkpoint: Path) -> list[FlowStatus]:
    """The status of every flow that has run a batch."""
    everywhere = outages(LocalStorage(checkpoint))
    newest = {flow: history.newest(checkpoint / flow) for flow in history.flows(checkpoint)}
    return [
        status_of(flow, entry, everywhere + outages(LocalStorage(checkpoint / flow)))
        for flow, entry in newest.items()
        if entry is not None
    ]


def status_of(flow: str, newest: HistoryEntry, waiting: list[Outage]) -> FlowStatus:
    """The status of a flow, from what its newest batch and its outages say."""
    rows = newest.total
    watermark = min(newest.watermarks.values(), default=BEGINNING)
    moment = EPOCH + timedelta(microseconds=watermark) if BEGINNING < watermark < END else None
    return FlowStatus(
        flow,
        newest.batch,
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
        rows.read_once,
        watermark == END,
    )


def status_view(flows: list[FlowStatus], *, width: int) -> Group:
    """What ``headrace status`` shows: the table, and below it what a flow waits for, and what it read twice."""
    lines = [f"[yellow]{flow.flow} is waiting: {escape(sink)}[/]" for flow in flows for sink in flow.waiting]
    again = ((flow.flow, source) for flow in flows for source, once in flow.read_once.items() if not once)
    lines += [f"[yellow]{flow} has read rows of {source} more than once; they count once[/]" for flow, source in again]
    return Group(status_table(flows, width=width), *lines)


def shown_status(flows: Mapping[str, FlowStatus | None], states: Mapping[str, str]) -> ShownTable:
    """A line for each flow, with what it is doing; the other columns are empty before its first batch."""
    cells = {
        name: {} if flow is None else {column: Text.from_markup(cell).plain for column, cell in _shown(flow).items()}
        for name, flow in flows.items()
    }
    columns = list(dict.fromkeys(["flow", "state", *(column for shown in cells.values() for column in shown)]))
    rows = [{"flow": name, "state": states[name], **shown} for name, shown in cells.items()]
    lines = [[row.get(column, "") for column in columns] for row in rows]
    return ShownTable(columns, lines, numbers=frozenset(columns[2:]))


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
        "batch": f"{flow.batch:,}",
        "read": f"{flow.read:,}",
        "unread": f"{flow.unread:,}",
        "dead": f"[red]{flow.dead:,}[/]" if flow.dead else "0",
        "late": f"[yellow]{flow.late:,}[/]" if flow.late else "0",
        "out": f"{flow.out:,}",
        "watermark (UTC)": flow.shown_watermark,
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
    return f"{EPOCH + timedelta(microseconds=moment):%Y-%m-%d %H:%M:%S}"


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
