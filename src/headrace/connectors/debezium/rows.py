"""From change events to the rows of a changelog: one or two rows an event, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from headrace.changelog import CHANGE, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.changelog import POSITION as PLACE
from headrace.connectors.base.decoding import NOT_A_CHANGE, POSITION, TABLE_TRUNCATED
from headrace.connectors.debezium.changes import OnTruncate
from headrace.errors import HeadraceError

ORDER = "__order"
"""Of the two rows of an update, the one before comes first."""

_SETTING = ("c", "r", "u")
_MESSAGE = "m"
_op = pl.col("op")


def says_nothing() -> pl.Expr:
    """Whether an event is none of the table: a message that the database's own code put into the log."""
    return (_op == _MESSAGE).fill_null(False)


def refused(events: pl.DataFrame, on_truncate: OnTruncate) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events that give rows, and the problems of the others."""
    setting, removing = _op.is_in(_SETTING), _op == "d"
    reason = (
        pl.when(_op == "t")
        .then(pl.lit(TABLE_TRUNCATED))
        .when(setting & pl.col("after").is_null() | removing & pl.col("before").is_null())
        .then(pl.lit(NOT_A_CHANGE))
        .when(~(setting | removing).fill_null(False))
        .then(pl.lit(NOT_A_CHANGE))
    )
    detail = (
        pl.when(_op == "t")
        .then(pl.lit("the table was truncated"))
        .when(setting)
        .then(pl.format("op {} has no row after it", _op))
        .when(removing)
        .then(pl.lit("op d has neither a row before it nor a key"))
        .otherwise(pl.format("op {} is not known", _op.fill_null("null")))
    )
    judged = events.with_columns(reason.alias("reason"))
    bad = judged.filter(pl.col("reason").is_not_null())
    truncated = bad.filter(pl.col("reason") == TABLE_TRUNCATED)
    if on_truncate == "stop" and not truncated.is_empty():
        raise HeadraceError(
            TABLE_TRUNCATED,
            f"the table was truncated at {truncated[PLACE][0]}, and no row of a changelog can say so. Empty what "
            "follows it, then read on with on_truncate='dead_letter'.",
        )
    good = judged.filter(pl.col("reason").is_null()).drop("reason")
    return good, bad.select(pl.col(POSITION).alias("position"), "reason", detail.alias("detail"))


def changelog_rows(events: pl.DataFrame, key: Sequence[str], about: Sequence[str]) -> pl.DataFrame:
    """The rows of good events, their values as text; ``about`` are columns that both rows of an update have."""
    before, after = pl.col("before").struct, pl.col("after").struct
    moved = pl.any_horizontal(before.field(name).ne_missing(after.field(name)) for name in key)
    both = (_op == "u") & pl.col("before").is_not_null()
    judged = events.with_columns((both & moved).alias("moved"))
    new, gone = _op.is_in(("c", "r")) | pl.col("moved"), (_op == "d") | pl.col("moved")
    put = judged.filter(_op.is_in(_SETTING)).select(
        _kind(new, INSERT, UPDATE_AFTER), pl.lit(1).alias(ORDER), pl.col("after").alias("row"), *about, POSITION
    )
    taken = judged.filter(both | (_op == "d")).select(
        _kind(gone, DELETE, UPDATE_BEFORE), pl.lit(0).alias(ORDER), pl.col("before").alias("row"), *about, POSITION
    )
    return pl.concat([taken, put]).unnest("row")


def _kind(whole: pl.Expr, one: str, other: str) -> pl.Expr:
    return pl.when(whole).then(pl.lit(one)).otherwise(pl.lit(other)).alias(CHANGE)
