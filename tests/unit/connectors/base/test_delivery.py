"""Batches divided among writers, each part delivered once whatever the server does meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.lease import Lease
from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base import delivery
from headrace.connectors.base.delivery import DeliveryContext, deliver, flat_paths
from headrace.connectors.base.sink import BatchIdentity, Guarantee, TaskSink, Written
from headrace.errors import HeadraceError
from headrace.event_time.record import MarkedBatch
from headrace.schemas import parse_ddl
from tests.writers import Writer

BATCH = BatchIdentity("spend", 0, 4, "main", "spend-1f0c", epoch=2)


def _context(root: Path, *, writers: int = 3, marks: Mapping[int, MarkedBatch] | None = None) -> DeliveryContext:
    return DeliveryContext(
        writers, marks or {}, 1_767_268_800_000_000, LocalStorage(root / "flow"), Lease(LocalStorage(root), 1)
    )


def _folder_sink(
    root: Path,
    *,
    dealt: tuple[str, ...] = ("account",),
    failures: int = 0,
    promise: Guarantee = "exactly_once",
) -> TaskSink:
    """A sink that puts each part into a file; made in a function so that it travels to tasks by value."""

    class FolderSink:
        target = "folder"
        place = "folder at home"
        guarantee = promise
        why = ""
        changelog_mode = "log"
        writers = None
        partition_by = dealt

        def prepare(self, columns: Mapping[str, Any], writers: Sequence[str], epoch: int) -> None:
            """Nothing to prepare."""

        def deliver(self, rows: Any, part: Any) -> Any:
            from headrace.checkpoint.outages import outages
            from headrace.connectors.base.sink import Delivered, Unreachable
            from headrace.rendering import refused_rows

            tries = root / f"{part.number}.tries"
            tries.parent.mkdir(parents=True, exist_ok=True)
            with tries.open("a") as stream:
                stream.write(f"{part.last and part.last.number} {len(outages(LocalStorage(root / 'flow')))}\n")
            if len(tries.read_text().splitlines()) <= failures:
                raise Unreachable("folder at home: away")
            bad = rows["amount"].is_null()
            rows.filter(~bad).write_parquet(root / f"{part.number}.parquet")
            return Delivered(int((~bad).sum()), refused=refused_rows(rows.filter(bad), "AMOUNT", "is null"))

    return FolderSink()  # type: ignore[return-value]


def _frame(spark: SparkSession, partitions: int) -> DataFrame:
    rows = [(f"account {number % 20}", number) for number in range(200)]
    return spark.createDataFrame(rows, "account STRING, amount BIGINT").repartition(partitions)


def _delivered(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {file.name: sorted(pl.read_parquet(file).rows()) for file in root.glob("*.parquet")}


@pytest.mark.spark
@pytest.mark.parametrize("dealt", [("account",), ()])
def test_a_row_has_the_same_writer_whatever_partition_it_comes_from(
    spark: SparkSession, tmp_path: Path, dealt: tuple[str, ...]
) -> None:
    found = []
    for partitions in (1, 4):
        root = tmp_path / str(partitions)
        written = deliver(_frame(spark, partitions), _folder_sink(root, dealt=dealt), BATCH, _context(root))
        assert written == Written(200, 200, marked=frozenset({0, 1, 2}))
        found.append(_delivered(root))
    assert found[0] == found[1]
    assert sum(map(len, found[0].values())) == 200
    if dealt:
        accounts = [{row[0] for row in rows} for rows in found[0].values()]
        assert sum(map(len, accounts)) == 20


@pytest.mark.spark
def test_a_batch_without_rows_leaves_no_mark(spark: SparkSession, tmp_path: Path) -> None:
    written = deliver(_frame(spark, 2).where("amount < 0"), _folder_sink(tmp_path), BATCH, _context(tmp_path))
    assert written == Written(0, 0)
    assert _delivered(tmp_path) == {}


@pytest.mark.spark
def test_a_sink_without_marks_takes_rows_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    sink = _folder_sink(tmp_path, promise="at_least_once")
    written = deliver(_frame(spark, 2), sink, BATCH, _context(tmp_path, writers=1))
    assert written == Written(200, 200)
    assert len(_delivered(tmp_path)) == 2


@pytest.mark.spark
def test_a_server_that_is_away_is_asked_again_with_a_sign_out_and_refused_rows_are_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = _frame(spark, 2).selectExpr("account", "if(amount = 7, null, amount) AS amount")
    sink = _folder_sink(tmp_path, failures=2)
    written = deliver(frame, sink, BATCH, _context(tmp_path, writers=1, marks={0: MarkedBatch(3)}))
    assert (written.out, written.rows, written.refused) == (200, 199, 1)
    assert (tmp_path / "0.tries").read_text().splitlines() == ["3 0", "3 1", "3 1"]
    assert outages(LocalStorage(tmp_path / "flow")) == []
    [(file, rows)] = written.letters.items()
    assert rows == 1
    letter = pl.read_ipc(tmp_path / "flow" / file).row(0, named=True)
    assert (letter["source"], letter["origin"], letter["reason"], letter["batch"]) == (
        "spend.main",
        "folder at home",
        "AMOUNT",
        4,
    )


def test_a_driver_that_loses_its_lease_while_it_waits_stops_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.0)

    class Lost:
        """A lease that is lost after the first look."""

        looks = 0

        def check(self) -> None:
            self.looks += 1
            if self.looks > 1:
                raise HeadraceError("LEASE_LOST", "another took over")

    sink = _folder_sink(tmp_path, failures=100)
    part = Writer("spend-1f0c", epoch=2).batch(0, 4, None)
    with pytest.raises(HeadraceError, match="LEASE_LOST"):
        delivery._deliver_when_reachable(
            sink,
            pl.DataFrame({"amount": [1]}),
            part,
            replace(_context(tmp_path), lease=Lost()),  # type: ignore[arg-type]
        )
    assert (tmp_path / "0.tries").read_text().count("\n") == 1


@pytest.mark.parametrize("schema", ["at_n INT, at STRUCT<n: INT>", "at STRUCT<n: INT>, at_n INT"])
def test_a_column_is_found_by_its_name_before_a_field(schema: str) -> None:
    assert flat_paths(parse_ddl(schema))["at_n"] == "`at_n`"


def test_every_column_and_field_has_a_path_that_spark_reads_whatever_is_in_its_name() -> None:
    schema = parse_ddl("`a.b` INT, `c``d` STRUCT<`e f`: STRUCT<g: INT>>")
    assert flat_paths(schema) == {
        "a.b": "`a.b`",
        "c`d": "`c``d`",
        "c`d_e f": "`c``d`.`e f`",
        "c`d_e f_g": "`c``d`.`e f`.`g`",
    }
