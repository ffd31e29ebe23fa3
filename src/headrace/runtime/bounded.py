"""``hr.over``: a step over tables, once, with the results that a stream would have at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType, TimestampType

from headrace.checkpoint.storage import MemoryStorage
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.record import BatchRecord, TimeBounds
from headrace.event_time.strategy import BEGINNING, END, tagged, time_fields
from headrace.graph import comes_from_source
from headrace.nodes import NodeId
from headrace.operators.placement import shuffled
from headrace.operators.step import Step
from headrace.reports import Report, ReportKey, StateReport, StepReport
from headrace.runtime.broadcast_tables import BroadcastTables
from headrace.schemas import from_arrow, polars_schema, spark_schema
from headrace.stability import stable
from headrace.state.group_range import KEY_GROUPS, MOST_KEY_GROUPS
from headrace.state.segment import OpenSegments
from headrace.wheel.operator import AnyOperator
from headrace.wheel.pack import Input
from headrace.wheel.side_rows import DEAD_LETTERS, read_rows
from headrace.wheel.spark import ThisTask, gathered, mapped, packed, passed, rows_in_order, turned
from headrace.wheel.stateless import Stateless
from headrace.wheel.task import SIDE, Task, TaskState

MAIN = "main"
BYTES_OF_A_SLOT = 64 << 20
"""About this much of a table goes to one task at once."""


@stable
def over(
    frames: DataFrame | Sequence[DataFrame],
    step: Step,
    *,
    time: str | Sequence[str] | None = None,
    output: str = MAIN,
    key_groups: int | None = None,
) -> DataFrame:
    """What a step makes of a table, or of two if it takes two: the same as of a stream that has come to its end.

    ``time`` names the column with the event time of each table; results of ``hr.over`` know theirs. ``output`` chooses
    a side output of the step. ``key_groups`` is the most tasks that share the rows, 128 unless given: more than 8 GiB
    need more. Nothing is computed before the result is used, and no state is kept.

    >>> import headrace as hr
    >>> def hourly(spark):
    ...     payments = spark.read.parquet("archive/payments")
    ...     step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
    ...     return hr.over(payments, step, time="at")
    """
    check_key_groups(f"step {step.name!r}", key_groups)
    tables = list(frames) if isinstance(frames, Sequence) else [frames]
    named = [time] * len(tables) if time is None or isinstance(time, str) else list(time)
    step.check_inputs(len(tables))
    if any(table.isStreaming or comes_from_source(table) for table in tables):
        raise DefinitionError(
            "OVER_A_STREAM",
            f"step {step.name!r}: hr.over runs once over tables, and this frame is a stream. In a pipeline apply the "
            "step itself, as in frame.transform(step); hr.source(frame, name=...) reads a stream of Spark.",
        )
    if len(named) != len(tables):
        raise DefinitionError(
            "INPUTS_MISMATCH",
            f"step {step.name!r}: time={time!r} names {len(named)} columns for {len(tables)} tables. Name one of each.",
        )
    times = [_time_of(table, name, step) for table, name in zip(tables, named, strict=True)]
    inputs = [part for table, at in zip(tables, times, strict=True) for part in (polars_schema(table.schema), at)]
    operator: AnyOperator | Stateless = step.bind(*inputs)
    groups = key_groups or KEY_GROUPS
    slots = slots_for(tables[0].sparkSession, tables, groups)
    storage = MemoryStorage()
    record = _record(step, slots, BroadcastTables(storage, [step]).versions(0))
    this_task = partial(_task, record, storage, step.name, groups)
    reads = [partial(_timely, time=at, step=step.name) for at in times]
    if isinstance(operator, Stateless):
        return _passed(tables[0], reads[0], operator, times[0], this_task)
    if output != MAIN and output not in operator.side_schemas:
        known = ", ".join((MAIN, *operator.side_schemas))
        raise DefinitionError("OUTPUT_UNKNOWN", f"step {step.name!r} has no output {output!r}. It has {known}.")
    blobs = [
        packed(table, read, [Input(operator, second=number > 0)], this_task, name=f"headrace.step.{step.name}")
        for number, (table, read) in enumerate(zip(tables, reads, strict=True))
    ]
    by_slot = shuffled(blobs, slots)
    label = f"headrace.state.{step.name}"
    if output != MAIN:
        results = partial(_side_rows, operator=operator, output=output)
        return mapped(by_slot, results, spark_schema(operator.side_schemas[output]), this_task, name=label)
    schema = tagged(spark_schema(operator.output_schema).fields, operator.output_time, NodeId("step", step.name))
    return mapped(by_slot, partial(turned, operator=operator), schema, this_task, name=label)


def _side_rows(
    batches: Iterator[pa.RecordBatch], task: Task, operator: AnyOperator, output: str
) -> Iterator[pl.DataFrame]:
    for _ in turned(batches, task, operator):
        pass
    storage = task.state.storage
    return (read_rows(storage, file) for file in storage.list(SIDE) if f"/{operator.name}/{output}/" in file)


def _passed(
    table: DataFrame, read: Callable[..., Any], operator: Stateless, time: str | None, this_task: ThisTask
) -> DataFrame:
    label = f"headrace.step.{operator.name}"
    if operator.gathered_by:
        table, read = gathered(table, read, operator.gathered_by, this_task, name=label), rows_in_order
    schema = spark_schema(operator.output_schema)
    if time is not None:
        schema = tagged(schema.fields, time, NodeId("step", operator.name))
    return mapped(table, partial(passed, read=read, operator=operator), schema, this_task, name=label)


def _time_of(table: DataFrame, given: str | None, step: Step) -> str | None:
    """The column with a table's event time; a step without state needs none."""
    if given is not None and given not in table.columns:
        raise DefinitionError(
            "COLUMN_UNKNOWN",
            f"step {step.name!r}: time={given!r} is not a column. Existing columns: {', '.join(table.columns)}.",
        )
    tags = [field.name for field in time_fields(table.schema)]
    if given is None and not tags and not step.stateless:
        raise DefinitionError(
            "EVENT_TIME_MISSING",
            f"step {step.name!r} needs event time. Name its column, as in hr.over(frame, step, time='at').",
        )
    column = given or next(iter(tags), None)
    if column is not None and not _is_time(kind := table.schema[column].dataType):
        raise DefinitionError(
            "EVENT_TIME_TYPE",
            f"step {step.name!r}: event time column {column!r} is {kind.simpleString()}. Make it a TIMESTAMP.",
        )
    return column


def _is_time(kind: DataType) -> bool:
    """Whether values are moments, or windows as steps give them."""
    if isinstance(kind, StructType):
        return kind.names == ["start", "end"] and all(isinstance(each.dataType, TimestampType) for each in kind.fields)
    return isinstance(kind, TimestampType)


def check_key_groups(where: str, key_groups: int | None) -> None:
    """Refuse an impossible number of key groups."""
    if key_groups is not None and not 1 <= key_groups <= MOST_KEY_GROUPS:
        raise DefinitionError(
            "KEY_GROUPS_INVALID",
            f"{where}: key_groups={key_groups} must be from 1 to {MOST_KEY_GROUPS:,}. This is a step's maximum "
            f"parallelism and cannot change later. Omit it for {KEY_GROUPS}.",
        )


def slots_for(spark: SparkSession, tables: Iterable[DataFrame], key_groups: int) -> int:
    """Enough that what a task holds of these tables at once stays small, and all cores have some.

    At most as many as there are key groups: a join multiplies what Spark believes of the size of a table.
    """
    size = sum(int(str(table._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) for table in tables)
    least = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(least, min(key_groups, -(-size // BYTES_OF_A_SLOT)))


def _record(step: Step, slots: int, tables: Mapping[str, int]) -> BatchRecord:
    """One batch for all, at the end of time: no row is late, and everything is due."""
    now = time.time_ns() // 1000
    bounds = TimeBounds(BEGINNING, END, BEGINNING, now)
    return BatchRecord(0, now, {}, {step.name: bounds}, {step.name: ()}, drain=True, slots=slots, tables=tables)


def _task(record: BatchRecord, storage: MemoryStorage, step: str, key_groups: int) -> Task:
    """In a task: what it knows. State lives as long as the task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None

    def refuse_failures(_key: ReportKey, report: Report) -> None:
        failed = report.failed if isinstance(report, StepReport | StateReport) else 0
        letters = [file for file, _ in report.side.get(DEAD_LETTERS, ())]
        if failed or letters:
            detail = read_rows(storage, letters[0])["detail"][0] if letters else ""
            raise HeadraceError(
                "ROW_FAILED",
                f"step {step!r} cannot take {max(failed, 1)} rows of the table; the first: {detail}. Filter them, or "
                "correct the code. In a stream they would be dead letters.",
            )

    state = TaskState(storage, OpenSegments(), key_groups, 1, {})
    return Task(record, "over", context.partitionId(), refuse_failures, state)


def _timely(batches: Iterator[pa.RecordBatch], _task: Task, *, time: str | None, step: str) -> Iterator[pl.DataFrame]:
    """The rows of a table, all of which have their event time."""
    for batch in batches:
        rows = from_arrow(batch)
        if time is not None and rows[time].null_count():
            raise HeadraceError(
                "NO_EVENT_TIME",
                f"step {step!r}: {rows[time].null_count()} rows of the table have no event time in {time!r}. Filter "
                "them first. In a stream they would be dead letters.",
            )
        yield rows
