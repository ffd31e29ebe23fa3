"""Playing a timeline: events, watermarks and crashes in; exact rows out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import DefinitionError
from headrace.event_time.strategy import TimeStrategy
from headrace.testing.comparison import equal, side_by_side
from headrace.testing.elements import At, Clock, Element, Expect, Row, Signal, Watermark
from headrace.testing.engine import BY_HAND, PARTITION, SOURCES, Setting, schema_of
from headrace.testing.inline import InlineEngine
from headrace.testing.on_spark import SparkEngine

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
) -> Played:
    """Play elements through a step, or a tuple of steps in a chain, and return the rows of each output.

    A timeline sets the watermark itself; with ``event_time`` it is computed from the rows as in a pipeline. With
    ``split`` the rows of one source are both inputs of the first step, as after ``hr.split``.

    >>> import headrace as hr
    >>> from headrace.testing import at, watermark
    >>> hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)").late(hr.drop())
    >>> [row["n"] for row in play(hourly, at("10:05", account="a"), watermark("11:00")).main]
    [1]
    """
    steps = step if isinstance(step, tuple) else (step,)
    rows = [element for element in elements if isinstance(element, At)]
    if not rows:
        raise DefinitionError("TIMELINE_EMPTY", "a timeline without at(...) has no rows. Add at least one.")
    strategy = event_time or BY_HAND
    schemas = {
        side: schema_of(given, partition=strategy.partition == PARTITION)
        for side in SOURCES
        if (given := [row for row in rows if row.side == side])
    }
    if split is not None and "right" in schemas:
        raise DefinitionError(
            "SPLIT_AND_SIDES",
            "split= makes both sides of the rows of one source, but some rows have side='right'. Leave the side out.",
        )
    setting = Setting(steps, strategy, schemas, split)
    is_inline = (engine or _ENGINE.get()) == "inline"
    runner = InlineEngine(setting) if is_inline else SparkEngine(setting)
    try:
        _Player(setting, runner, steps[-1].key).play(elements)
    finally:
        runner.close()
    return Played(setting.outputs)


def timeline(
    step: Any,
    *elements: Element,
    engine: EngineName | None = None,
    event_time: TimeStrategy | None = None,
    split: tuple[str, str] | None = None,
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
    play(step, *elements, engine=engine, event_time=event_time, split=split)


class _Player:
    """Goes through the elements in order; rows left at the end are run as a last batch."""

    def __init__(self, setting: Setting, engine: InlineEngine | SparkEngine, key: Sequence[str]) -> None:
        self._setting = setting
        self._engine = engine
        self._key = key
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

    def _one(self, element: Element) -> None:
        match element:
            case At():
                self._pending.append(element)
            case Signal.BATCH:
                self._run_pending(always=True)
            case Clock():
                self._setting.clock = element.time
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
