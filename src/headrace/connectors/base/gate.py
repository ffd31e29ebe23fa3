"""The gate behind a source: checks event time, counts rows, writes dead letters and passes good rows on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import polars as pl
import pyarrow as pa

from headrace.connectors.base.decoding import POSITION, Decoded, readable
from headrace.event_time.strategy import TimeStrategy
from headrace.nodes import NodeId
from headrace.reports import SourceReport
from headrace.schemas import MOMENT, from_arrow
from headrace.wheel.side_rows import DEAD_LETTERS, dead_letters, write_side_rows
from headrace.wheel.task import Task

ROW_POSITION = "_position"
"""A column that a schema may declare: where a row came from, ``<topic>/<partition>:<offset>`` or ``<file>:<line>``."""


class Reader(Protocol):
    """Turns what Spark hands to a task (file names, positions) into rows."""

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Decoded]: ...


@dataclass(frozen=True, slots=True)
class Gate:
    """Checks the rows of one source."""

    source: str
    reader: Reader
    time: TimeStrategy | None
    adds_position: bool = False
    """Whether rows have a column that says where they came from."""
    ingestion_reader: Reader | None = None
    """The reader for ingestion time, where each row's arrival time costs something extra."""

    def timed(self, time: TimeStrategy) -> Gate:
        reader = self.ingestion_reader if time.kind == "ingestion" else None
        return replace(self, time=time, reader=reader or self.reader)

    def read(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        """In a Spark task: the rows that pass."""
        return self.admit((chunk for batch in batches for chunk in self.reader.read(from_arrow(batch), task)), task)

    def admit(self, chunks: Iterable[Decoded], task: Task) -> Iterator[pl.DataFrame]:
        """Pass good rows on chunk by chunk; at the end report counts, dead letters and the highest event times."""
        counts: Counter[str] = Counter()
        origins, unread, highest = set[str](), dict[str, int](), dict[str, int]()
        dead: list[pl.DataFrame] = []
        for chunk in chunks:
            rows, refused = (chunk.rows, None) if self.time is None else self._judge(chunk, self.time, task)
            for letters in (chunk.dead, refused):
                if letters is not None and not letters.is_empty():
                    where = {"source": self.source, "origin": chunk.origin}
                    dead.append(dead_letters(letters, **where, batch=task.record.batch, clock=task.record.clock))
            if self.time is not None and not rows.is_empty():
                for partition, newest in _highest(rows, self.time, chunk.partition):
                    highest[partition] = max(newest, highest.get(partition, newest))
            read = chunk.rows.height + chunk.dead.height
            counts.update(read=read, handed_on=rows.height, lost=chunk.lost, skipped=chunk.skipped)
            origins.add(chunk.origin)
            unread[chunk.partition] = chunk.unread
            if self.adds_position:
                place = pl.concat_str(pl.lit(f"{chunk.origin}:"), pl.col(POSITION).cast(pl.String))
                rows = rows.with_columns(place.alias(ROW_POSITION))
            if not rows.is_empty():
                yield rows.drop(POSITION)
        files = write_side_rows(task, self.source, DEAD_LETTERS, dead)
        task.report(
            NodeId("source", self.source),
            SourceReport(
                **counts,
                dead=sum(rows for _, rows in files),
                origins=len(origins),
                unread=unread,
                highest=highest,
                side={DEAD_LETTERS: files},
            ),
        )

    def _judge(self, chunk: Decoded, time: TimeStrategy, task: Task) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with their time, and as dead rows those without one or with one out of bounds."""
        rows = chunk.rows
        if time.kind != "event":
            moment = chunk.arrived if time.kind == "ingestion" else task.record.clock
            literal = pl.lit(moment, pl.Int64) if isinstance(moment, int) else pl.lit(moment)
            return rows.with_columns(literal.cast(MOMENT).alias(time.column)), None
        event_time = pl.col(time.column).cast(pl.Int64)
        reasons = [pl.when(event_time.is_null()).then(pl.lit("NO_EVENT_TIME"))]
        if time.accept.max_future is not None:
            latest = task.record.clock + time.accept.max_future
            reasons.append(pl.when(event_time > latest).then(pl.lit("EVENT_TIME_IN_FUTURE")))
        if time.accept.not_before is not None:
            reasons.append(pl.when(event_time < time.accept.not_before).then(pl.lit("EVENT_TIME_TOO_OLD")))
        reason = rows.select(pl.coalesce(reasons).alias("reason")).to_series()
        if reason.null_count() == rows.height:
            return rows, None
        refused = rows.with_columns(reason).filter(reason.is_not_null())
        found = readable(pl.col(time.column), rows.schema[time.column])
        dead = refused.select(
            pl.col(POSITION).alias("position"),
            "reason",
            pl.format(f"{time.column} = {{}}", found.fill_null("null")).alias("detail"),
            chunk.raw(refused).alias("raw"),
        )
        return rows.filter(reason.is_null()), dead


def _highest(rows: pl.DataFrame, time: TimeStrategy, partition: str) -> Iterable[tuple[str, int]]:
    event_time = pl.col(time.column).cast(pl.Int64).max()
    if time.partition is None:
        return [(partition, rows.select(event_time).item())]
    names = pl.col(time.partition).cast(pl.String).fill_null("null").alias("partition")
    return rows.group_by(names).agg(event_time).rows()
