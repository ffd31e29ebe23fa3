"""A batch on its way into a sink that tasks write to: dealt out to writers, each share written with its mark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa

from headrace.connectors.base.sink import BatchIdentity, Delivered, Share, TaskSink, Unreachable, Writer, Written
from headrace.schemas import MOMENT, from_arrow
from headrace.waiting import Sign
from headrace.wheel.side_rows import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
_RESULT = (
    "writer INT, out BIGINT, written BIGINT, superseded BIGINT, already_marked BIGINT, refused BIGINT, letters STRING"
)


class Held(Protocol):
    """A lease that can be asked whether it still holds."""

    def check(self) -> None:
        """Fail when another driver has taken over."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the tasks of a batch need to know beside its identity."""

    writers: int
    marks: Mapping[int, int]
    """The last batch of this generation that each writer marked."""
    clock: int
    flow_folder: str
    side_folder: str
    lease: Held


def deliver(frame: DataFrame, sink: TaskSink, batch: BatchIdentity, terms: Terms) -> Written:
    """Run the frame once and write every row to the sink."""
    exactly_once = sink.guarantee == "exactly_once"
    dealt = _dealt(frame, sink.dealt_by, terms.writers) if exactly_once else frame
    shares = dealt.mapInArrow(_writing(sink, batch, terms), _RESULT).collect()
    return Written(
        sum(share.out for share in shares),
        sum(share.written for share in shares),
        sum(share.already_marked for share in shares),
        sum(share.superseded for share in shares),
        sum(share.refused for share in shares),
        {share.letters: share.refused for share in shares if share.refused > 0},
        {share.writer: batch.batch for share in shares} if exactly_once else {},
    )


def _dealt(frame: DataFrame, columns: tuple[str, ...], writers: int) -> DataFrame:
    """Each writer's rows in a partition with its number, whatever partitions they come from."""
    from pyspark.sql import functions as F  # noqa: N812

    paths = flat_paths(frame.schema)
    chosen = [F.col(paths[column]) for column in columns] or [F.col(_quoted(column)) for column in frame.columns]
    return frame.repartitionById(writers, F.pmod(F.xxhash64(*chosen), F.lit(writers)).cast("int"))


def flat_paths(schema: StructType, prefix: str = "", inside: str = "") -> dict[str, str]:
    """How Spark writes each column and each field of a struct, by the name it has when it is flat.

    >>> from headrace.schemas import parse_ddl
    >>> flat_paths(parse_ddl("n INT, window STRUCT<start: DATE>"))
    {'n': '`n`', 'window': '`window`', 'window_start': '`window`.`start`'}
    """
    from pyspark.sql.types import StructType

    paths: dict[str, str] = {}
    for field in schema.fields:
        name, path = f"{prefix}{field.name}", f"{inside}{_quoted(field.name)}"
        paths[name] = path
        if isinstance(field.dataType, StructType):
            paths |= flat_paths(field.dataType, f"{name}_", f"{path}.")
    return paths


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _writing(
    sink: TaskSink, batch: BatchIdentity, terms: Terms
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write_share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        frames = [from_arrow(each) for each in batches if each.num_rows > 0]
        if not frames or context is None:
            return
        rows = pl.concat(frames)
        number = context.partitionId()
        writer = Writer(batch.id, batch.output, number, batch.epoch)
        share = Share(writer, batch.generation, batch.batch, terms.marks.get(number))
        delivered = _patiently(sink, rows, share, terms)
        # Several sinks of one output have writers of the same number.
        letters = f"{terms.side_folder}/{batch.batch}/sink.{batch.output}/{uuid.uuid4().hex}.arrow"
        refused = 0 if delivered.refused is None else delivered.refused.height
        if delivered.refused is not None and refused > 0:
            write_rows(letters, _letters(delivered.refused, sink.place, batch, terms.clock))
        counts = (rows.height, delivered.written, delivered.superseded, delivered.already_marked, refused)
        values = [[value] for value in (number, *counts, letters)]
        names = ["writer", "out", "written", "superseded", "already_marked", "refused", "letters"]
        types = [pa.int32(), *[pa.int64()] * 5, pa.string()]
        yield pa.record_batch([pa.array(v, t) for v, t in zip(values, types, strict=True)], names)

    return write_share


def _letters(refused: pl.DataFrame, place: str, batch: BatchIdentity, clock: int) -> pl.DataFrame:
    """Refused rows as dead letters: where a source's have their file or topic, these have the sink."""
    return refused.with_row_index("position").select(
        pl.lit(f"{batch.flow}.{batch.output}").alias("source"),
        pl.lit(place).alias("origin"),
        pl.col("position").cast(pl.Int64),
        "reason",
        "detail",
        "raw",
        pl.lit(batch.batch, pl.Int64).alias("batch"),
        pl.lit(clock).cast(MOMENT).alias("read_at"),
    )


def _patiently(sink: TaskSink, rows: pl.DataFrame, share: Share, terms: Terms) -> Delivered:
    """Write a share as soon as the server takes it; each attempt begins with the mark, so none writes twice."""
    sign = Sign(terms.flow_folder, share.writer.name, sink.place)
    pause = FIRST_PAUSE
    while True:
        terms.lease.check()
        try:
            delivered = sink.deliver(rows, share)
        except Unreachable as problem:
            sign.set_up(str(problem))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            sign.take_down()
            return delivered
