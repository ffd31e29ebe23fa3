"""The demonstration: a pipeline as any user would write it, run from a cold start to an account that adds up."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from rich.live import Live
from rich.markup import escape

import headrace as hr
from headrace.demo.screen import Feed, Screen, account_table
from headrace.runtime.session import spark_session

if TYPE_CHECKING:
    from rich.console import Console

LOG, CHECKPOINT = "spark.log", "checkpoint"
LOOK_SECONDS = 0.25
FIRST_WINDOWS_WITHIN = 180.0
SPEED = 60
PAYMENTS = hr.Payments(
    accounts=500,
    shops=8,
    disorder="20 seconds",
    late=0.003,
    delay="6 minutes",
    duplicates=0.01,
    broken=0.004,
    future=0.0005,
)


@hr.pipeline
def takings(spark: SparkSession, folder: str) -> None:
    """What each shop takes in a minute; a second by the clock brings a minute of payments."""
    payments = hr.generate(spark, PAYMENTS, rate=1000, speed=SPEED).transform(
        hr.event_time("at", out_of_order="30 seconds")
    )
    minutes = (
        hr.tumbling("minutes", size="1 minute", key="shop")
        .agg(payments="count(*)", spent="sum(amount)", largest="max(amount)")
        .late(hr.side_output())
        .outputs(payments)
    )
    hr.write(
        "takings",
        (minutes.main, hr.to_files(Path(folder) / "windows")),
        (minutes.late, hr.to_files(Path(folder) / "late")),
    )


def play(folder: Path, *, seconds: float | None, console: Console) -> bool:
    """Run the demonstration for so long after its first windows (None: until Ctrl-C); whether its account adds up."""
    folder.mkdir(parents=True, exist_ok=True)
    feed = Feed(folder, folder / CHECKPOINT / "takings")
    screen = Screen(feed)
    if console.is_terminal:
        with Live(screen, console=console, refresh_per_second=4):
            first = _run(folder, screen, seconds, plain=False)
    else:
        print(screen.doing, flush=True)
        first = _run(folder, screen, seconds, plain=True)
        console.print(screen)
    account, adds_up = account_table(feed)
    console.print(account)
    verdict = "[green]Every row is accounted for.[/]" if adds_up else "[bold red]The account does not add up.[/]"
    place = escape(str(folder / CHECKPOINT))
    started = "" if first is None else f" First windows after {first:.1f} s."
    for line in (
        f"{verdict}{started} Results, checkpoint and Spark's log: {escape(str(folder))}",
        f"Look closer: [bold]headrace status {place}[/]",
        f"             [bold]headrace dead-letters list {place}[/]",
    ):
        console.print(line, soft_wrap=True, highlight=False)
    return adds_up


def _run(folder: Path, screen: Screen, seconds: float | None, *, plain: bool) -> float | None:
    """Run the pipeline and look at it until the time is up; how long the first windows took, if any came."""
    began = time.monotonic()
    spark = spark_session("headrace-demo", master="local[2]", quick_start=True, log=folder / LOG)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    screen.doing = "Spark is up; the first batches start its Python workers ..."
    mode = hr.micro_batch("500 milliseconds")
    running = takings.start(checkpoint=folder / CHECKPOINT, mode=mode, spark=spark, folder=str(folder))
    first: float | None = None
    feed = screen.feed
    # An earlier demonstration in the same folder may have left windows.
    feed.look()
    before = feed.windows.rows
    while not stop.is_set() and not running.wait(LOOK_SECONDS):
        feed.look()
        if plain:
            screen.print_news()
        elapsed = time.monotonic() - began
        if first is None and feed.windows.rows > before:
            first = elapsed
        if first is None and elapsed > FIRST_WINDOWS_WITHIN:
            running.stop()
            raise hr.HeadraceError(
                "DEMO_WITHOUT_WINDOWS",
                f"no window closed within {FIRST_WINDOWS_WITHIN:.0f} seconds. See {folder / LOG} for what Spark said.",
            )
        if first is not None and seconds is not None and elapsed > first + seconds:
            break
    running.stop()
    feed.look()
    spark.stop()
    return first
