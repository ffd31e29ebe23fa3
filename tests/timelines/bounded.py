"""Whatever a timeline does to a step, one bounded batch over all its rows gives the answers of the drained stream."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from headrace.changelog import CHANGE, REMOVING
from headrace.operators.step import Step
from headrace.testing.comparison import plain
from headrace.testing.elements import At
from headrace.testing.engine import Setting
from headrace.testing.inline import Frames, InlineEngine
from headrace.wheel.operator import AnyOperator
from headrace.wheel.side_rows import DEAD_LETTERS

HISTORY = ("pane", "revision", CHANGE, "position", "changed_at", "session_id")
"""Columns that tell how an answer came about, and not what it is."""


class AlsoBounded(InlineEngine):
    """Plays a timeline; at its end it drains the stream, and compares it with one batch over the same rows.

    A bounded batch knows no late rows, so timelines with any are left out.
    """

    def __init__(self, setting: Setting) -> None:
        self._rows: list[At] = []
        self._has_late_rows = False
        super().__init__(setting)

    def run(self, rows: Sequence[At], *, commit: bool = True, drain: bool = False) -> None:
        super().run(rows, commit=commit, drain=drain)
        if commit:
            self._rows += rows

    def _step(self, operator: AnyOperator, frames: Frames, second: Frames, task: Any) -> Frames:
        if operator is self._stateful[0]:
            late = task(0).record.time_bounds[operator.name].late
            time = pl.col(self._setting.strategy.column).cast(pl.Int64)
            given = (frame for each in (*frames.values(), *second.values()) for frame in each)
            self._has_late_rows |= any((frame.select(time) < late).to_series().any() for frame in given)
        return super()._step(operator, frames, second, task)

    def close(self) -> None:
        # A timeline that has failed says why itself.
        failed = sys.exc_info()[0] is not None
        try:
            if not (failed or self._has_late_rows or self.planner.runs_again):
                self._compare()
        finally:
            super().close()

    def _compare(self) -> None:
        setting = self._setting
        played = setting.outputs
        setting.outputs = {name: [*rows] for name, rows in played.items()}
        self.run([], drain=True)
        bounded = Setting(setting.steps, setting.strategy, setting.schemas, setting.split, setting.clock)
        engine = InlineEngine(bounded)
        engine.run(self._rows, drain=True)
        engine.close()
        streamed, setting.outputs = setting.outputs, played
        for output, rows in streamed.items():
            of_stream, of_batch = (answers(output, each, setting.steps[-1]) for each in (rows, bounded.outputs[output]))
            assert of_stream == of_batch, (
                f"output {output!r}: only the drained stream gives {of_stream - of_batch}, only the bounded batch "
                f"{of_batch - of_stream}"
            )


def answers(output: str, rows: Iterable[Mapping[str, Any]], step: Step) -> Counter[tuple[str, ...]]:
    """What an output says in the end: of rows that were corrected the last revision, of a changelog its table."""
    if output == DEAD_LETTERS:
        # Their details hold the lines of tracebacks.
        return Counter((row["reason"],) for row in rows)
    standing: dict[int, Mapping[str, Any]] = {}
    places: dict[tuple[str, ...], int] = {}
    for place, row in enumerate(rows):
        identity = _identity(row, step)
        corrects = row[CHANGE] is not None if CHANGE in row else row.get("revision", 0) > 0
        if corrects:
            standing.pop(places.pop(identity, -1), None)
        if row.get(CHANGE) not in REMOVING:
            standing[place] = row
            places[identity] = place
    kept = [{name: value for name, value in row.items() if name not in HISTORY} for row in standing.values()]
    return Counter(tuple(f"{name}={plain(value)}" for name, value in row.items()) for row in kept)


def _identity(row: Mapping[str, Any], step: Step) -> tuple[str, ...]:
    """By what a correction finds the row that it replaces."""
    if step.kind == "table_join":
        names: Iterable[str] = (name for name in row if name not in HISTORY)
    else:
        names = (*step.key, "session_id" if "session_id" in row else "window")
    return tuple(plain(row[name]) for name in names if name in row)
