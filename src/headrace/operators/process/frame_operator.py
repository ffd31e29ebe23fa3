"""The operator of a frame process: it stores what that of a row-wise process does, without an object for each row."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.operators.event_time_buffer import Released, TouchedKeys, event_time_order
from headrace.operators.process.context import RuleHistory
from headrace.operators.process.frame_process import FrameProcess
from headrace.operators.process.frame_runner import FrameRunner
from headrace.operators.process.operator import ROW, ProcessOperator
from headrace.operators.rows import KEY_NUMBER, TIME, with_schema
from headrace.wheel.operator import Applied


@dataclass(frozen=True)
class FrameProcessOperator(ProcessOperator):
    """Calls a process with the rows of all keys, and with the timers of all keys."""

    process: FrameProcess

    def _processed(
        self, buffered: Released, touched: TouchedKeys, due: Set[int], bounds: TimeBounds, rules: RuleHistory | None
    ) -> Applied:
        released = buffered.rows
        runner = FrameRunner(self.process, bounds, self.outputs["main"], touched, step=self.name, key=self.key)
        order = event_time_order(released, touched.numbers)
        rows = released[order]
        others = rows[ROW].struct.unnest()
        given = pl.DataFrame([(rows if name in self.key else others)[name] for name in self.rows.schema])
        runner.run(given, touched.numbers[order], rows[TIME].to_numpy())
        columns, is_stored = runner.stored()
        stored = pl.Series(is_stored, dtype=pl.Boolean)
        upserts = with_schema(touched.keys.with_columns(**columns).filter(stored), self.state_schema)
        gone = touched.states.filter(~stored[touched.states[KEY_NUMBER]])
        return Applied(
            pl.concat([upserts, buffered.stored]),
            gone.select(self.identity),
            runner.output(self.output_time),
            waiting=replace(buffered.counts, handled=released.height),
        )
