"""Two tables followed by their changes: orders, and the customers they belong to, joined into a view."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from benchmarks.discard import Discard

FLOW = "view"
FILES_PER_BATCH = 2
FIRST_TIME = 1_767_225_600_000_000
"""2026-01-01 in microseconds."""
SECOND = 1_000_000
CHANGELOG = "change STRING, position STRING, ts TIMESTAMP"

Columns = Mapping[str, npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Order:
    """What one run is asked to do."""

    folder: str
    """Where the changes of both tables are."""
    checkpoint: str


@hr.pipeline
def view(spark: SparkSession, order: Order) -> None:
    """Headrace's job."""

    def changes(table: str, columns: str) -> DataFrame:
        schema = f"{columns}, {CHANGELOG}"
        rows = hr.read_files(
            spark,
            f"{order.folder}/{table}",
            format="parquet",
            schema=schema,
            name=table,
            files_per_batch=FILES_PER_BATCH,
        )
        return rows.transform(hr.event_time("ts"))

    orders = changes("orders", "order_id BIGINT, customer BIGINT, amount BIGINT")
    customers = changes("customers", "id BIGINT, credit BIGINT")
    step = hr.table_join("joining", on={"customer": "id"}, left_key="order_id", right_key="id")
    hr.write(FLOW, step(orders, customers), Discard(None))


def run_headrace(spark: SparkSession, order: Order) -> None:
    """Headrace."""
    view.run(checkpoint=order.checkpoint, mode=hr.available_now(), spark=spark, order=order)


RUNS: Mapping[str, Callable[[SparkSession, Order], None]] = {"headrace": run_headrace}


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of both tables as files: first every row is inserted, then each batch updates some of them.

    An update is two rows, the old one and the new one; one order in ten moves to another customer. No row changes
    twice in a batch. There are as many orders as customers.
    """

    rows: int
    """Of each table."""
    changed: int
    """Rows of each table that a batch updates."""
    batches: int

    def write(self, root: Path) -> Path:
        """Write the files, two for each batch and table, dated so that they are taken in order."""
        folder = root / f"tables_{self.rows}"
        oldest = int(time.time()) - self.batches - 60
        for table, frames in (("orders", self._orders()), ("customers", self._customers())):
            (folder / table).mkdir(parents=True)
            for batch, frame in enumerate(frames):
                for part in range(FILES_PER_BATCH):
                    file = folder / table / f"{batch:05d}-{part}.parquet"
                    half = -(-frame.height // FILES_PER_BATCH)
                    # Both rows of an update are in one file.
                    frame.slice(part * half, half).write_parquet(file)
                    os.utime(file, (oldest + batch, oldest + batch))
        return folder

    def _orders(self) -> Iterator[pl.DataFrame]:
        random = np.random.default_rng(7)
        number = np.arange(self.rows)
        customer, amount = random.permutation(self.rows), random.integers(0, 1_000, self.rows)
        yield _inserted({"order_id": number, "customer": customer, "amount": amount})
        for batch in range(1, 1 + self.batches):
            places = random.choice(self.rows, self.changed, replace=False)
            before = {"order_id": places, "customer": customer[places], "amount": amount[places]}
            amount[places] += 1
            moving = places[::10]
            customer[moving] = random.integers(0, self.rows, moving.size)
            after = {"order_id": places, "customer": customer[places], "amount": amount[places]}
            yield _updated(before, after, batch)

    def _customers(self) -> Iterator[pl.DataFrame]:
        random = np.random.default_rng(8)
        credit = random.integers(0, 1_000, self.rows)
        yield _inserted({"id": np.arange(self.rows), "credit": credit})
        for batch in range(1, 1 + self.batches):
            places = random.choice(self.rows, self.changed, replace=False)
            before = {"id": places, "credit": credit[places]}
            credit[places] += 1
            yield _updated(before, {"id": places, "credit": credit[places]}, batch)


def _inserted(columns: Columns) -> pl.DataFrame:
    return _changelog(pl.DataFrame(columns).with_columns(change=pl.lit("insert")), 0)


def _updated(before: Columns, after: Columns, batch: int) -> pl.DataFrame:
    sides = (
        pl.DataFrame(columns).with_columns(change=pl.lit(change)).with_row_index("place")
        for columns, change in ((before, "update_before"), (after, "update_after"))
    )
    return _changelog(pl.concat(sides).sort("place", maintain_order=True).drop("place"), batch)


def _changelog(rows: pl.DataFrame, batch: int) -> pl.DataFrame:
    moment = pl.lit(FIRST_TIME + batch * SECOND).cast(pl.Datetime("us", "UTC"))
    return rows.with_columns(position=pl.lit(f"{batch:010d}"), ts=moment)
