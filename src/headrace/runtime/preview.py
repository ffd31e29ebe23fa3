"""``hr.preview``: the first rows of each source, and what every step makes of them; no sink is touched."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.lease import Renewal, take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.sink import AnySink, BatchIdentity, DriverSink, Guarantee, Written
from headrace.errors import DefinitionError
from headrace.graph import FlowNode, Graph, MainOutput, SideOutput
from headrace.observe.committed import committed_rows
from headrace.observe.shown import ShownTable, as_html, as_text
from headrace.redaction import redacting
from headrace.runtime.flow import Flow, brings_rows
from headrace.runtime.modes import BOUNDED
from headrace.runtime.pipeline import Pipeline, session_for, system_clock
from headrace.runtime.write import sources_read
from headrace.schemas import from_arrow
from headrace.stability import experimental
from headrace.wheel.side_rows import DEAD_LETTERS
from headrace.wheel.task import reports_of

PATIENCE_SECONDS = 10.0
"""How long a preview waits for the first row."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PreviewTable:
    """The rows of a source, a step or an output."""

    name: str
    about: str
    rows: pl.DataFrame


@dataclass(frozen=True, slots=True, repr=False)
class Preview:
    """What ``hr.preview`` found; shows itself as text, and as HTML in a notebook."""

    tables: tuple[PreviewTable, ...]
    most: int
    """How many rows of each table are shown."""

    def __getitem__(self, name: str) -> pl.DataFrame:
        """All rows of a source, a step, a side output (``hourly.late``), an output or of the ``dead_letters``."""
        found = {table.name: table.rows for table in self.tables}
        if name not in found:
            raise KeyError(f"the preview has no {name!r}; it has {', '.join(found)}")
        return found[name]

    def __repr__(self) -> str:
        return as_text(self._shown())

    def _repr_html_(self) -> str:
        return as_html(self._shown())

    def _shown(self) -> Iterator[ShownTable]:
        for table in self.tables:
            height = table.rows.height
            count = f"{height:,} row{'' if height == 1 else 's'}"
            shown = count if height <= self.most else f"the first {self.most:,} of {count}"
            title, note = table.name, f"{table.about}, {shown}"
            first = table.rows.head(self.most)
            yield ShownTable.of(first, title=title, note=note) if height else ShownTable((), (), title, note)


@dataclass(frozen=True, slots=True)
class Captured(DriverSink):
    """Takes the place of sinks, and keeps the rows that they would get."""

    guarantee: ClassVar[Guarantee] = "at_least_once"
    name: str
    found: dict[str, PreviewTable]

    @property
    def target(self) -> str:
        return f"preview of {self.name!r}"

    def write(self, frame: DataFrame, batch: BatchIdentity) -> Written:
        table = frame.toArrow()
        rows = pl.concat([*map(from_arrow, table.to_batches())] or [pl.DataFrame(pl.from_arrow(table))])
        self.found[self.name] = replace(self.found[self.name], rows=rows)
        return Written(rows.height, rows.height)


@experimental
@redacting()
def preview(pipeline: Pipeline, rows: int = 20, *, spark: SparkSession | None = None, **parameters: Any) -> Preview:
    """Run the first rows of each source through a pipeline, and show what every step gives.

    The stream ends after these rows, so every window closes. Nothing is written but a temporary checkpoint: sinks get
    no row, and runs of the pipeline go on as if there had been no preview.

    >>> import headrace as hr
    >>> def look(spend):
    ...     found = hr.preview(spend, rows=5)  # shows itself in a notebook
    ...     return found["hourly_spend"]  # the rows of a source, step or output as a Polars frame
    """
    if rows < 1:
        raise DefinitionError("ROWS_TOO_FEW", f"hr.preview: rows={rows} must be at least 1.")
    session = session_for(pipeline.name, spark)
    with tempfile.TemporaryDirectory(prefix="headrace-preview-") as folder:
        graph = Graph(pipeline.name, Path(folder), reports_of(session.sparkContext), first_rows=rows)
        pipeline.define_in(graph, session, parameters)
        fed = [name for name, node in graph.sources.items() if node.feed is not None]
        if fed:
            raise DefinitionError(
                "PREVIEW_UNSUPPORTED",
                f"source {fed[0]!r} takes rows away from its server, so a preview would take them from the pipeline's "
                "runs. Use hr.over(frame, step, time='at') with a table of such rows.",
            )
        renewal = Renewal(take_lease(LocalStorage(graph.checkpoint)))
        try:
            flows = [_run(graph, node, session, renewal) for node in list(graph.flows.values())]
        finally:
            renewal.release()
        return Preview(tuple(table for tables in flows for table in tables), rows)


def _run(graph: Graph, node: FlowNode, session: SparkSession, renewal: Renewal) -> list[PreviewTable]:
    found: dict[str, PreviewTable] = {}
    flow = Flow(graph, _captured(graph, node, found), session, system_clock, BOUNDED, renewal.lease)
    batches = flow.batches
    try:
        flow.prepare()
        batches.begin()
        until = time.monotonic() + PATIENCE_SECONDS
        reads = batches.look()
        while not brings_rows(reads) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            reads = batches.look()
        batches.run(reads, drain=True)
    finally:
        batches.reads.close()
    letters = committed_rows(flow.folder / DEAD_LETTERS)
    if not letters.is_empty():
        shown = letters.select("source", "reason", "detail", "raw")
        found[DEAD_LETTERS] = replace(found[DEAD_LETTERS], rows=shown)
    return [table for table in found.values() if table.name != DEAD_LETTERS or table.rows.height]


def _captured(graph: Graph, node: FlowNode, found: dict[str, PreviewTable]) -> FlowNode:
    """The flow with all that its sources and steps give as its outputs, and with none of its sinks.

    ``found`` gets a table for each, in the order in which they are shown.
    """
    written = {id(main.frame): _to(main.sinks) for main in node.mains}
    beside = {(side.step, side.name): _to(sinks) for side, sinks in node.side_sinks}
    mains: list[MainOutput] = []
    sides: list[tuple[SideOutput, tuple[AnySink, ...]]] = []

    def expect(name: str, about: str, columns: Any = None) -> tuple[AnySink, ...]:
        found[name] = PreviewTable(name, about, pl.DataFrame(schema=columns))
        return (Captured(name, found),)

    def show(name: str, about: str, frame: DataFrame) -> None:
        mains.append(MainOutput(name, frame, expect(name, about + written.pop(id(frame), "")), False))

    for name, origin in dict(pair for main in node.mains for pair in sources_read(graph, main.frame)).items():
        if (frame := graph.frame_of_origin(origin)) is not None:
            show(name, "source", frame)
    expect(DEAD_LETTERS, "rows that could not be read or processed")
    for name in node.steps:
        step = graph.steps[name]
        show(name, "step", graph.main_outputs[name] if step.passed is None else step.passed.frame)
        for side, columns in step.side_outputs.items():
            sinks = expect(f"{name}.{side}", f"side output{beside.get((name, side), '')}", columns)
            sides.append((SideOutput(name, side, graph.main_outputs[name]), sinks))
    for main in node.mains:
        if id(main.frame) in written:
            show(f"{node.name}.{main.name}", "output", main.frame)
    return replace(node, mains=tuple(mains), side_sinks=tuple(sides))


def _to(sinks: Iterable[AnySink]) -> str:
    places = ", ".join(sink.place for sink in sinks)
    return f" to {places}" if places else ""
