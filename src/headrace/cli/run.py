"""``headrace run``."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.targets import Parameters, Target, find_pipeline, read_parameters
from headrace.errors import HeadraceError
from headrace.observe.status import FlowStatus, shown_moment, status_table, statuses
from headrace.runtime.modes import Mode, available_now, micro_batch

PROGRESS_SECONDS = 2.0


def run(
    target: Target,
    checkpoint: Annotated[Path, typer.Option(help="Where the pipeline keeps its state; created if missing.")],
    parameter: Parameters = None,
    once: Annotated[bool, typer.Option("--available-now", help="Read what is there, then stop.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="With --available-now: the end of the data is the end of time.")
    ] = False,
    interval: Annotated[str, typer.Option(help="How often to look for new rows.")] = "1 second",
    max_rows: Annotated[int | None, typer.Option(help="The most rows of a source that a batch takes.")] = None,
    keep_up: Annotated[
        bool, typer.Option("--keep-up", help="Let batches take as many rows as they can within the interval.")
    ] = False,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM, or over what is there now.

    Example: headrace run jobs/spend.py:spend --checkpoint checkpoints/spend -p folder=in --available-now
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    mode = _mode(once=once, drain=drain, interval=interval, max_rows=max_rows, keep_up=keep_up)
    ended = threading.Event()
    progress = threading.Thread(target=_print_progress, args=(checkpoint, ended), daemon=True)
    progress.start()
    try:
        pipeline.run(checkpoint=checkpoint, mode=mode, **parameters)
    finally:
        ended.set()
        progress.join()
    console = Console()
    console.print(status_table(statuses(checkpoint), width=console.width))


def _mode(*, once: bool, drain: bool, interval: str, max_rows: int | None, keep_up: bool) -> Mode:
    if drain and not once:
        raise HeadraceError(
            "DRAIN_WITHOUT_END", "--drain closes every window at the end of the data. Add --available-now."
        )
    if keep_up and once:
        raise HeadraceError(
            "KEEP_UP_WITHOUT_INTERVAL",
            "--keep-up fits batches to the interval, and --available-now has none. Use --max-rows.",
        )
    if once:
        return available_now(drain=drain, max_rows=max_rows)
    return micro_batch(interval, max_rows=max_rows, keep_up=keep_up)


def _print_progress(checkpoint: Path, ended: threading.Event) -> None:
    """Print a line on standard error for each flow that has made progress."""
    printed = {flow.flow: flow for flow in statuses(checkpoint)}
    while not ended.wait(PROGRESS_SECONDS):
        for flow in statuses(checkpoint):
            if printed.get(flow.flow) != flow:
                printed[flow.flow] = flow
                print(_line(flow), file=sys.stderr, flush=True)


def _line(flow: FlowStatus) -> str:
    return (
        f"{flow.flow}: batch {flow.batch}, {flow.read:,} rows read, {flow.dead:,} dead, {flow.late:,} late, "
        f"{flow.out:,} out, watermark {shown_moment(flow.watermark)}"
        + "".join(f", waiting: {sink}" for sink in flow.waiting)
    )
