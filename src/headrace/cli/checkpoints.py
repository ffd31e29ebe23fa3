"""The verbs for a checkpoint: ``headrace status``, ``log`` and ``dead-letters`` look, ``checkpoint`` changes."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from headrace.checkpoint.log import Entry, Log
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchOutcome, BatchRecord
from headrace.json_codec import decode
from headrace.observe import history
from headrace.observe.committed import committed_rows
from headrace.observe.status import shown_moment, shown_size, status_view, statuses
from headrace.plan.identity import rename_flow

LOOK_SECONDS = 1.0
RAW_CHARACTERS = 300
POSITION_CHARACTERS = 100
Checkpoint = Annotated[Path, typer.Argument(help="The folder given as checkpoint=... when the pipeline was started.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
FlowName = Annotated[str | None, typer.Option("--flow", help="Only the dead letters of this flow.")]

changes = typer.Typer(help="Change a checkpoint on which no pipeline runs.", no_args_is_help=True)
dead_letters = typer.Typer(help="Rows that could not be read, and why.", no_args_is_help=True)


def status(
    checkpoint: Checkpoint,
    watch: Annotated[bool, typer.Option("--watch", help="Keep the table up to date until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each flow of a pipeline is: rows, watermark, lag and state.

    Example: headrace status checkpoints/spend --watch
    """
    if not statuses(checkpoint):
        flows_of(checkpoint)
    if as_json:
        print(json.dumps([flow.to_json() for flow in statuses(checkpoint)], indent=2))
        return
    console = Console()

    def look() -> Group:
        return status_view(statuses(checkpoint), width=console.width)

    if not watch:
        console.print(look())
        return
    with suppress(KeyboardInterrupt), Live(look(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(LOOK_SECONDS)
            live.update(look(), refresh=True)


def log(
    checkpoint: Checkpoint,
    flow: Annotated[str | None, typer.Option("--flow", help="Only the log of this flow.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the log of each flow: who took over, what its last batches were to do, and what they have done.

    Example: headrace log checkpoints/spend
    """
    for name in flows_of(checkpoint, flow):
        entries = list(Log(LocalStorage(checkpoint / name)).retained())
        if as_json:
            print(json.dumps([{"flow": name, **asdict(entry)} for entry in entries], indent=2))
            continue
        table = Table(
            "entry", "kind", "batch", Column("what it says", overflow="fold"), title=name, header_style="bold"
        )
        for entry in entries:
            body = entry.body or {}
            table.add_row(str(entry.number), entry.kind, str(body.get("batch", "")), _said(entry))
        Console().print(table)


def _said(entry: Entry) -> str:
    """What an entry of the log says, in a line or two."""
    match entry.kind:
        case "record":
            record = decode(BatchRecord, entry.body)
            reads = [f"{source}: {_short(read.since)} to {_short(read.until)}" for source, read in record.reads.items()]
            times = [f"{source} at {shown_moment(time)}" for source, time in record.watermarks.items()]
            return "\n".join([*reads, *(["watermark of " + ", ".join(times)] if times else [])])
        case "outcome":
            outcome = decode(BatchOutcome, entry.body)
            slots = [slot for held in outcome.slots.values() for slot in held.values()]
            rows, size = sum(slot.rows for slot in slots), sum(slot.bytes for slot in slots)
            drained = ", drained" if outcome.drained else ""
            return f"state: {rows:,} rows, {shown_size(size)} in {len(outcome.files)} files{drained}"
        case _:
            return "a driver begins"


def _short(position: object) -> str:
    text = json.dumps(position)
    return text if len(text) <= POSITION_CHARACTERS else f"{text[:POSITION_CHARACTERS]}..."


@changes.command("rename-flow")
def rename(
    checkpoint: Checkpoint,
    old: Annotated[str, typer.Argument(help="The flow's name in the checkpoint.")],
    new: Annotated[str, typer.Argument(help="Its name in hr.write(...) from now on.")],
) -> None:
    """Give a flow another name: it goes on where it was, and sinks know its rows.

    Example: headrace checkpoint rename-flow checkpoints/spend spend hourly_spend
    """
    rename_flow(checkpoint, old, new)
    print(f"Flow {old!r} of checkpoint {str(checkpoint)!r} is now {new!r}.")


@dead_letters.command("list")
def list_letters(checkpoint: Checkpoint, flow: FlowName = None, as_json: AsJson = False) -> None:
    """Count dead letters by source and reason, with an example of each.

    Example: headrace dead-letters list checkpoints/spend
    """
    counted = (
        _letters(checkpoint, flow)
        .group_by("flow", "source", "reason", maintain_order=True)
        .agg(rows=pl.len(), detail=pl.col("detail").first(), example=pl.col("raw").first())
        .sort("flow", "source", "rows", descending=[False, False, True])
    )
    rows = [{**row, "example": _text(row["example"])} for row in counted.to_dicts()]
    if _printed(rows, as_json=as_json):
        return
    where = Column("flow", no_wrap=True), Column("source", style="cyan", no_wrap=True)
    why, count = Column("reason", style="red", no_wrap=True), Column("rows", justify="right")
    table = Table(*where, why, count, Column("example", overflow="fold"), header_style="bold")
    for row in rows:
        example = Text(row["example"]).append(f"\n{row['detail']}", style="dim")
        table.add_row(row["flow"], row["source"], row["reason"], f"{row['rows']:,}", example)
    Console().print(table)


@dead_letters.command("show")
def show_letters(
    checkpoint: Checkpoint,
    reason: Annotated[str | None, typer.Option("--reason", help="Only this reason, as NOT_JSON.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, the newest.")] = 20,
    flow: FlowName = None,
    as_json: AsJson = False,
) -> None:
    """Show dead letters one by one: where each came from, why it is dead, and what it held.

    Example: headrace dead-letters show checkpoints/spend --reason NOT_JSON --limit 5
    """
    letters = _letters(checkpoint, flow)
    chosen = letters if reason is None else letters.filter(pl.col("reason") == reason)
    newest = chosen.tail(limit).to_dicts()
    rows = [{**row, "raw": _text(row["raw"]), "read_at": row["read_at"].isoformat()} for row in newest]
    if _printed(rows, as_json=as_json):
        return
    console = Console()
    for row in rows:
        line = Text(f"{row['flow']}  ").append(f"{row['origin']}:{row['position']}  ", style="cyan")
        line.append(row["reason"], style="red").append(f"  {row['detail']}\n    {row['raw']}", style="default")
        console.print(line, soft_wrap=True)


def _printed(rows: list[dict[str, Any]], *, as_json: bool) -> bool:
    """Print letters as JSON, or that there are none; whether that was all to be printed."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        print("No dead letters.")
    return as_json or not rows


def _letters(checkpoint: Path, flow: str | None) -> pl.DataFrame:
    """All dead letters in the order in which their batches were read, with the flow of each."""
    schema = {"flow": pl.String, "source": pl.String, "reason": pl.String, "detail": pl.String, "raw": pl.Binary}
    frames = [pl.DataFrame(schema=schema)]
    for name in flows_of(checkpoint, flow):
        rows = committed_rows(checkpoint / name / "dead_letters")
        if not rows.is_empty():
            frames.append(rows.sort("batch", "origin", "position").with_columns(flow=pl.lit(name)))
    return pl.concat(frames, how="diagonal")


def _text(raw: bytes) -> str:
    text = raw.decode(errors="backslashreplace")
    return text if len(text) <= RAW_CHARACTERS else f"{text[:RAW_CHARACTERS]}... ({len(text)} characters)"


def flows_of(checkpoint: Path, flow: str | None = None) -> list[str]:
    """The flows of a checkpoint that have run, or the one that was asked for; a folder without any is a mistake."""
    flows = history.flows(checkpoint)
    given = f"checkpoint {str(checkpoint)!r}"
    if not checkpoint.is_dir():
        advice = "Give the folder that the pipeline was started with."
        raise HeadraceError("CHECKPOINT_EMPTY", f"{given} does not exist. {advice}")
    if not flows:
        advice = "Give the pipeline's checkpoint folder, not one inside it, and wait for its first batch."
        raise HeadraceError("CHECKPOINT_EMPTY", f"{given} holds no flow that has run a batch. {advice}")
    if flow is not None and flow not in flows:
        raise HeadraceError("FLOW_UNKNOWN", f"{given} has no flow {flow!r}. Existing flows: {', '.join(flows)}.")
    return flows if flow is None else [flow]
