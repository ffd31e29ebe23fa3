"""The regular join: rows of two streams with equal keys, whenever they come, for as long as the state keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.durations import Duration, spoken
from headrace.errors import check_choice
from headrace.expressions.operands import Schema
from headrace.operators.joins.interval_join import EVENT_TIME, IntervalJoinOperator
from headrace.operators.joins.join_columns import JoinedColumns, OnColumns, join_key
from headrace.operators.joins.match_strategies import FOREVER, AllMatches, emits_unmatched
from headrace.operators.joins.stream_join import JoinInput, StreamJoin
from headrace.operators.process.state import TtlConfig, check_ttl
from headrace.schemas import MOMENT
from headrace.stability import stable

RegularHow = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, kw_only=True, repr=False)
class RegularJoin(StreamJoin):
    """A join of two streams without bounds, but for a time to live; call ``.late()`` before use."""

    kind = "regular_join"

    ttl_config: TtlConfig

    def _operator(self, left: JoinInput, right: JoinInput, columns: JoinedColumns, own: Schema) -> IntervalJoinOperator:
        return IntervalJoinOperator(self.name, left, right, columns, own, self.on, self._strategy)

    @property
    def _own_columns(self) -> dict[str, pl.DataType]:
        return {EVENT_TIME: MOMENT}

    @property
    def _strategy(self) -> AllMatches:
        # A row is invisible from ``ttl`` after its time on.
        reach = FOREVER if self.ttl_config.ttl is None else self.ttl_config.ttl - 1
        return AllMatches(self.how, -reach, reach, at_once=True)

    @property
    def retracts(self) -> bool:
        return any(emits_unmatched(self.how))

    @property
    def horizon(self) -> int:
        return self.ttl_config.ttl or 0

    @property
    def state_description(self) -> str:
        if self.ttl_config.ttl is None:
            return "every row of both sides, for ever; at most all rows that ever came"
        kept = self.ttl_config.ttl + self.retention
        return (
            f"rows of both sides until event time is {spoken(kept)} behind them; at most (left rate + right rate) x "
            f"({spoken(kept)} + lag) rows, where lag is how far the slower input's watermark is behind the newest row; "
            f"with 1,000 rows/s on each side and no lag {2 * kept // 1_000:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        return {**self.on.arguments, "how": self.how, **self.ttl_config.arguments}


@stable
def regular_join(
    name: str,
    *,
    on: OnColumns,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    how: RegularHow = "inner",
    nulls_equal: bool = False,
) -> RegularJoin:
    """Join rows of two frames with equal ``on`` whatever their times, as long as a row lives: less than ``ttl``.

    Rows without a match are emitted when they arrive, and taken back when a match comes.

    >>> regular_join("shipped", on="order_id", ttl="30 days", how="left")
    hr.regular_join('shipped', on='order_id', how='left', ttl='30 days')
    """
    check_choice(RegularHow, step=name, how=how)
    key = join_key(on, step=name, nulls_equal=nulls_equal)
    life = check_ttl(ttl, keep_forever, label=f"step {name!r}")
    return RegularJoin(name=name, key=key.left, on=key, how=how, ttl_config=life)
