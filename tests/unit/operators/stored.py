"""The state of an operator between batches, as segments keep it: what is there, and when it is due."""

from __future__ import annotations

import polars as pl

from headrace.event_time.record import TimeBounds
from headrace.wheel.operator import AnyOperator, Applied


def stored(operator: AnyOperator, state: pl.DataFrame, applied: Applied, bounds: TimeBounds) -> pl.DataFrame:
    """The state after a batch: what it wrote over what was there, without what was removed or has lived out."""
    identity = list(operator.identity)
    assert dict(applied.upserts.schema) == dict(operator.state_schema)
    assert applied.removed.columns == identity
    changed = pl.concat([applied.upserts.select(identity), applied.removed])
    assert not changed.is_duplicated().any()
    rows = pl.concat([state.join(changed, on=identity, how="anti", nulls_equal=True), applied.upserts])
    return living(operator, rows, bounds)


def living(operator: AnyOperator, state: pl.DataFrame, bounds: TimeBounds) -> pl.DataFrame:
    """What is left of a state after a batch that does not concern it."""
    dead_at = operator.due(bounds).dead_at
    return state if dead_at is None else state.filter((dead_at > bounds.fire).fill_null(True))


def looked_up(operator: AnyOperator, state: pl.DataFrame, bounds: TimeBounds, *frames: pl.DataFrame) -> pl.DataFrame:
    """Which rows of its keys a batch with these partial results gets."""
    due = operator.due(bounds)
    assert due.order is not None
    assert due.ranges is not None
    orders, ranges = state.select(due.order).to_series().to_numpy()[:, None], due.ranges(frames)
    return state.filter(pl.Series(((orders >= ranges.first) & (orders <= ranges.last)).any(axis=1)))


def next_due(operator: AnyOperator, state: pl.DataFrame, bounds: TimeBounds) -> tuple[int | None, int | None]:
    """When a batch without rows concerns a state first, by event time and by the clock."""
    due = operator.due(bounds)
    event = _least(state, due.event, bounds.fire - due.reach)
    if event is not None and due.following is not None:
        event = due.following(max(event - 1, bounds.fire))
    return event, _least(state, due.clock, bounds.clock)


def _least(state: pl.DataFrame, time: pl.Expr | None, after: int) -> int | None:
    times = [] if time is None else state.select(time).to_series().drop_nulls().to_list()
    return min((each for each in times if each > after), default=None)
