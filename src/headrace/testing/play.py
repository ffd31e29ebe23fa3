"""Playing a timeline: events, watermarks and crashes in; exact rows out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.strategy import TimeStrategy
from headrace.operators.step import Step
from headrace.testing.comparison import equal, side_by_side
from headrace.testing.elements import At, Clock, Element, Expect, Row, Side, Signal, TableContent, Watermark
from headrace.testing.engine import AFTER_EVERYTHING, BY_HAND, PARTITION, Setting, schema_of
from headrace.testing.inline import InlineEngine
from headrace.testing.on_spark import SparkEngine
from headrace.testing.tables import TableByHand, tables_of, with_tables

EngineName = Literal["inline", "spark"]
_ENGINE: ContextVar[EngineName] = ContextVar("headrace_timeline_engine", default="inline")


@contextmanager
def use_engine(name: EngineName) -> Iterator[None]:
    """Play timelines on this engine unless they name one themselves.

    >>> with use_engine("inline"):
    ...     pass
    """
    token = _ENGINE.set(name)
    try:
        yield
    finally:
        _ENGINE.reset(token)


@dataclass(frozen=True, slots=True)
class Played:
    """The rows of each output, in the order in which they were emitted: ``.main``, ``.late``, ``.timed_out``..."""

    outputs: Mapping[str, list[dict[str, Any]]]

    def __getattr__(self, name: str) -> list[dict[str, Any]]:
        if name not in self.outputs:
            raise AttributeError(f"there is no output {name!r}. The outputs are {', '.join(self.outputs)}.")
        return self.outputs[name]


def play(
    step: Any,
    *elements: Element,
    engine: EngineName | None = None,
    event_time: TimeStrategy | None = None,
    split: tuple[str, str] | None = None,
    schema: str | None = None,
    right_schema: str | None = None,
) -> Played:
    """Play elements through a step, or a tuple of steps in a chain, and return the rows of each output.

    A timeline sets the watermark itself; with ``event_time`` it is computed from the rows as in a pipeline. With
    ``split`` the rows of one source are both inputs of the first step, as after ``hr.split``.

    The columns of the rows have the types of their values. ``schema`` declares them instead, as for a source; a column
    without a value then has its type, and the timeline needs no row. ``right_schema`` is that of a second input.

    >>> import headrace as hr
    >>> from headrace.testing import at, watermark
    >>> hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.drop())
    >>> [row["n"] for row in play(hourly, at("10:05", account="a"), watermark("11:00")).main]
    [1]
    >>> join = hr.interval_join("paid", on="id", between=("0 seconds", "1 hour"), how="left").late(hr.drop())
    >>> unpaid = play(join, at("10:05", id=7), watermark("12:00"), right_schema="id BIGINT, paid DOUBLE")
    >>> [(row["id"], row["paid"]) for row in unpaid.main]
    [(7, None)]
    """
    tables = tables_of([element for element in elements if isinstance(element, TableContent)])
    steps = with_tables(step if isinstance(step, tuple) else (step,), tables)
    strategy = event_time or BY_HAND
    schemas = _schemas(elements, strategy, {"left": schema, "right": right_schema})
    if split is not None and "right" in schemas:
        raise DefinitionError(
            "SPLIT_AND_SIDES",
            "split= makes both sides of the rows of one source, but side='right' or right_schema= names another. Leave "
            "that out.",
        )
    _check_sides(steps[0], schemas, is_split=split is not None)
    begins = elements[0].time if elements and isinstance(elements[0], Clock) else AFTER_EVERYTHING
    setting = Setting(steps, strategy, schemas, split, begins)
    is_inline = (engine or _ENGINE.get()) == "inline"
    runner = InlineEngine(setting) if is_inline else SparkEngine(setting)
    try:
        _Player(setting, runner, tables).play(elements)
    finally:
        runner.close()
    return Played(setting.outputs)


def timeline(
    step: Any,
    *elements: Element,
    engine: EngineName | None = None,
    event_time: TimeStrategy | None = None,
    split: tuple[str, str] | None = None,
    schema: str | None = None,
    right_schema: str | None = None,
) -> None:
    """Play elements through a step, or a tuple of steps in a chain, and demand every ``expect`` on the way.

    >>> import headrace as hr
    >>> from headrace.testing import at, expect, watermark
    >>> hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.drop())
    >>> timeline(
    ...     hourly,
    ...     at("10:05", account="a"),
    ...     watermark("11:00"),
    ...     expect(account="a", window="10:00/11:00", n=1, pane="on_time", revision=0),
    ... )
    """
    play(
        step,
        *elements,
        engine=engine,
        event_time=event_time,
        split=split,
        schema=schema,
        right_schema=right_schema,
    )


def _schemas(
    elements: Sequence[Element], strategy: TimeStrategy, declared: Mapping[Side, str | None]
) -> dict[Side, dict[str, pl.DataType]]:
    """The columns of each side that has rows or a declaration."""
    rows = [element for element in elements if isinstance(element, At)]
    schemas = {
        side: schema_of(given, partition=strategy.partition == PARTITION, declared=text)
        for side, text in declared.items()
        if (given := [row for row in rows if row.side == side]) or text is not None
    }
    if not schemas:
        raise DefinitionError(
            "TIMELINE_EMPTY",
            "a timeline without at(...) has no rows, so their columns are not known. Add a row, or declare the columns "
            "as in schema='account STRING, amount DOUBLE'.",
        )
    return schemas


def _check_sides(step: Step, schemas: Mapping[Side, object], *, is_split: bool) -> None:
    """Every input of a step has columns."""
    inputs = 1 if is_split else len(step.inputs)
    for side, argument in [("left", "schema"), ("right", "right_schema")][:inputs]:
        if side not in schemas:
            raise DefinitionError(
                "TIMELINE_SIDE_EMPTY",
                f"step {step.name!r} takes {inputs} inputs, but no row has side={side!r}, so the columns of that side "
                f"are not known. Add such a row, or declare the columns as in {argument}='account STRING, "
                "amount DOUBLE'.",
            )


class _Player:
    """Goes through the elements in order; rows left at the end are run as a last batch."""

    def __init__(self, setting: Setting, engine: InlineEngine | SparkEngine, tables: Mapping[str, TableByHand]) -> None:
        self._setting = setting
        self._engine = engine
        self._tables = tables
        self._key = setting.steps[-1].key
        self._pending: list[At] = []
        self._seen: dict[str, int] = {}
        self._lines: list[str] = []

    def play(self, elements: Sequence[Element]) -> None:
        for element in elements:
            self._lines.append(str(element))
            self._one(element)
        self._run_pending()

    def _run_pending(self, *, always: bool = False) -> None:
        """Finish an interrupted batch; then run the rows so far, or if there are none and ``always`` an empty batch."""
        finished = self._engine.finish()
        if self._pending or (always and not finished):
            rows, self._pending = self._pending, []
            self._engine.run(rows)

    def _run_waiting(self) -> None:
        """Run the rows so far, if there are any; a batch that a crash interrupted may run again later."""
        if self._pending:
            self._run_pending()

    def _one(self, element: Element) -> None:
        match element:
            case At():
                self._pending.append(element)
            case Signal.BATCH:
                self._run_pending(always=True)
            case Clock():
                self._run_waiting()
                self._setting.clock = element.time
            case TableContent():
                self._run_waiting()
                self._tables[element.step].rows = element.rows
            case Watermark():
                self._run_pending()
                watermarks = self._setting.watermarks
                for side in watermarks if element.side is None else (element.side,):
                    watermarks[side] = max(watermarks[side], element.time)
                self._engine.run([])
            case Signal.CRASH:
                if self._pending:
                    self._engine.finish()
                self._engine.crash(self._pending)
                self._pending = []
            case Expect():
                self._expect(element.rows, element.output)

    def _expect(self, expected: tuple[Row, ...], output: str) -> None:
        rows = self._setting.rows_of(output)
        actual = rows[self._seen.get(output, 0) :]
        self._seen[output] = len(rows)
        if not equal(expected, actual, self._key):
            difference = side_by_side(expected, actual, self._key, self._lines)
            raise AssertionError(f"output {output!r} is not what the timeline expects:\n{difference}")
