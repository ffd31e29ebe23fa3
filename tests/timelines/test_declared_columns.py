"""Timelines that declare their columns, and tables that change in the middle of them: the same on both engines."""

from __future__ import annotations

import polars as pl
import pytest

import headrace as hr
from headrace.operators.joins.broadcast_join import BroadcastJoin
from headrace.testing import at, batch, clock, crash, expect, row, table, timeline, watermark

PAYMENTS = "id BIGINT, paid DOUBLE, note STRING"
joined = hr.interval_join("joined", on="id", between=("0 seconds", "1 hour"), how="full").late(hr.drop())


@pytest.mark.spark
def test_a_side_without_rows_has_the_columns_that_are_declared() -> None:
    timeline(
        joined,
        at("10:05", id=7),
        watermark("12:00"),
        expect(id=7, paid=None, note=None),
        right_schema=PAYMENTS,
    )


def test_the_first_side_may_be_without_rows_too() -> None:
    timeline(
        joined,
        at("10:05", id=7, paid=1.5, side="right"),
        watermark("12:00"),
        expect(id=7, paid=1.5, name=None),
        schema="id BIGINT, name STRING",
    )


@pytest.mark.spark
def test_a_timeline_may_have_no_rows_at_all() -> None:
    counted = hr.tumbling("counted", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())
    timeline(
        counted,
        batch(),
        watermark("11:00"),
        crash(),
        batch(),
        expect(),
        expect(output="late"),
        schema="account STRING",
    )


@pytest.mark.spark
def test_a_column_of_nulls_keeps_its_declared_type() -> None:
    """By its values it would be text, which cannot be summed."""
    spent = hr.tumbling("spent", size="1 hour", key="account").agg(spent="sum(amount)", n="count(amount)")
    timeline(
        spent.late(hr.drop()),
        at("10:05", account="a", amount=None),
        watermark("11:00"),
        expect(account="a", spent=None, n=0),
        schema="account STRING, amount DOUBLE",
    )


class Nowhere:
    """A table whose server a test does not have."""

    def columns(self) -> dict[str, pl.DataType]:
        raise ConnectionError

    def read(self) -> pl.DataFrame:
        raise ConnectionError


def rated(name: str = "rates") -> BroadcastJoin:
    return hr.broadcast_join(name, Nowhere(), on="currency", refresh="1 minute", how="left")


@pytest.mark.spark
@pytest.mark.streamed
def test_a_table_that_changes_is_seen_once_the_join_reads_it_again() -> None:
    timeline(
        rated(),
        table("rates", row(currency="EUR", rate=1.1)),
        at("10:00", currency="EUR", n=1),
        table("rates", row(currency="EUR", rate=1.2), row(currency="GBP", rate=1.3)),
        expect(n=1, rate=1.1, rates_version=1),
        clock("2026-01-02T00:00:59"),
        at("10:01", currency="EUR", n=2),
        clock("2026-01-02T00:01:00"),
        expect(n=2, rate=1.1, rates_version=1),
        at("10:02", currency="EUR", n=3),
        at("10:02", currency="GBP", n=4),
        crash(),
        table("rates"),
        batch(),
        expect(row(n=3, rate=1.2, rates_version=2), row(n=4, rate=1.3, rates_version=2)),
        at("10:03", currency="EUR", n=5),
        batch(),
        expect(n=5, rate=None, rates_version=3),
    )


@pytest.mark.streamed
def test_a_table_that_is_empty_at_first_has_the_columns_of_its_later_rows() -> None:
    timeline(
        rated(),
        table("rates"),
        at("10:00", currency="EUR", n=1),
        batch(),
        expect(n=1, rate=None),
        clock("2026-01-02T00:01:00"),
        table("rates", row(currency="EUR", rate=1.2)),
    )


def test_a_table_without_rows_has_the_columns_that_are_declared() -> None:
    spent = hr.tumbling("spent", size="1 hour", key="currency").agg(most="max(rate)").late(hr.drop())
    timeline(
        (rated("today"), rated("rates"), spent),
        table("today", row(currency="EUR", day=1)),
        table("rates", schema="currency STRING, rate DOUBLE"),
        at("10:00", currency="EUR"),
        watermark("11:00"),
        expect(currency="EUR", most=None),
    )
