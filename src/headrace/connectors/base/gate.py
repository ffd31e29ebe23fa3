"""The gate right behind a source: decodes, checks types and time, counts, and hands on good rows only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import polars as pl
import pyarrow as pa

from headrace.connectors.base.decoding import (
    EVENT_TIME_IN_FUTURE,
    EVENT_TIME_TOO_OLD,
    NO_EVENT_TIME,
    POSITION,
    Decoded,
    readable,
)
from headrace.event_time.strategy import TimeStrategy
from headrace.event_time.tracker import WHOLE
from headrace.node_id import NodeId
from headrace.reports import SourceReport
from headrace.schemas import MOMENT, from_arrow
from headrace.wheel.side_rows import DEAD_LETTERS, letters, write_side_rows
from headrace.wheel.task import Task

ROW_POSITION = "_position"
"""A column that a schema may declare: where a row came from, ``<topic>/<partition>:<offset>`` or ``<file>:<line>``."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A chunk of rows as a reader hands them over: decoded, with where they came from and when they arrived."""

    decoded: Decoded
    origin: str
    arrived: int | pl.Series
    """When, in microseconds: all of them, or each of the decoded rows."""
    partition: str = WHOLE
    """The source's own partition, where it has any: each has a watermark."""
    unread: int = 0
    """Rows of the partition that wait behind this chunk."""
    lost: int = 0
    """Rows in front of this chunk that the source no longer has."""


class Reader(Protocol):
    """How tasks turn what Spark hands them (file names, positions) into rows."""

    def read(self, raw: pl.DataFrame, task: Task) -> Iterator[Arrived]:
        """The rows behind the names or positions of one frame."""


@runtime_checkable
class TellsArrival(Protocol):
    """A reader that tells only where it is asked to when each row arrived, because it costs something."""

    def with_arrival(self) -> Reader:
        """The same, telling it."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Judges the rows of one source."""

    source: str
    reader: Reader
    time: TimeStrategy | None
    tells_position: bool = False
    """Whether rows have a column that says where they came from."""

    def timed(self, time: TimeStrategy) -> Gate:
        """The same gate, which gives rows their time."""
        reader = self.reader
        if time.kind == "ingestion" and isinstance(reader, TellsArrival):
            reader = reader.with_arrival()
        return replace(self, time=time, reader=reader)

    def read(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pl.DataFrame]:
        """In a Spark task: the rows that pass."""
        chunks = (arrived for batch in batches for arrived in self.reader.read(from_arrow(batch), task))
        return self.admit(chunks, task)

    def admit(self, chunks: Iterable[Arrived], task: Task) -> Iterator[pl.DataFrame]:
        """Hand on good rows chunk by chunk; report counts, dead letters and the highest times at the end."""
        read = handed_on = lost = skipped = 0
        highest: dict[str, int] = {}
        unread: dict[str, int] = {}
        dead: list[pl.DataFrame] = []
        origins: set[str] = set()
        for chunk in chunks:
            rows = chunk.decoded.rows
            origins.add(chunk.origin)
            lost += chunk.lost
            skipped += chunk.decoded.skipped
            unread[chunk.partition] = chunk.unread
            read += rows.height + chunk.decoded.dead.height
            if not chunk.decoded.dead.is_empty():
                dead.append(letters(chunk.decoded.dead, source=self.source, origin=chunk.origin, task=task))
            if self.time is not None:
                rows, refused = self._judge(chunk, self.time, task)
                if not refused.is_empty():
                    dead.append(letters(refused, source=self.source, origin=chunk.origin, task=task))
                self._raise_highest(highest, rows, self.time, chunk.partition)
            handed_on += rows.height
            if self.tells_position:
                place = pl.concat_str(pl.lit(f"{chunk.origin}:"), pl.col(POSITION).cast(pl.String))
                rows = rows.with_columns(place.alias(ROW_POSITION))
            if not rows.is_empty():
                yield rows.drop(POSITION)
        files = write_side_rows(task, self.source, DEAD_LETTERS, dead)
        task.report(
            NodeId("source", self.source),
            SourceReport(
                read=read,
                handed_on=handed_on,
                dead=sum(rows for _, rows in files),
                lost=lost,
                skipped=skipped,
                origins=len(origins),
                unread=unread,
                highest=highest,
                side={DEAD_LETTERS: files},
            ),
        )

    def _judge(self, chunk: Arrived, time: TimeStrategy, task: Task) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Give rows their time; those with none or an unbelievable one are refused."""
        rows = chunk.decoded.rows
        if time.kind != "event":
            moment = chunk.arrived if time.kind == "ingestion" else task.record.clock
            literal = pl.lit(moment, pl.Int64) if isinstance(moment, int) else pl.lit(moment)
            return rows.with_columns(literal.cast(MOMENT).alias(time.column)), pl.DataFrame()
        event_time = pl.col(time.column).cast(pl.Int64)
        reasons = [pl.when(event_time.is_null()).then(pl.lit(NO_EVENT_TIME))]
        if time.accept.max_future is not None:
            latest = task.record.clock + time.accept.max_future
            reasons.append(pl.when(event_time > latest).then(pl.lit(EVENT_TIME_IN_FUTURE)))
        if time.accept.not_before is not None:
            reasons.append(pl.when(event_time < time.accept.not_before).then(pl.lit(EVENT_TIME_TOO_OLD)))
        reason = rows.select(pl.coalesce(reasons).alias("reason")).to_series()
        if reason.null_count() == rows.height:
            return rows, pl.DataFrame()
        refused = rows.with_columns(reason).filter(reason.is_not_null())
        found = readable(pl.col(time.column), rows.schema[time.column])
        dead = refused.select(
            pl.col(POSITION).alias("position"),
            "reason",
            pl.format(f"{time.column} = {{}}", found.fill_null("null")).alias("detail"),
            chunk.decoded.raw(refused).alias("raw"),
        )
        return rows.filter(reason.is_null()), dead

    def _raise_highest(self, highest: dict[str, int], rows: pl.DataFrame, time: TimeStrategy, partition: str) -> None:
        if rows.is_empty():
            return
        event_time = pl.col(time.column).cast(pl.Int64).max().alias("highest")
        if time.partition is None:
            found = [(partition, rows.select(event_time).item())]
        else:
            names = pl.col(time.partition).cast(pl.String).fill_null("null").alias("partition")
            found = rows.group_by(names).agg(event_time).rows()
        for name, newest in found:
            highest[name] = max(newest, highest.get(name, newest))
