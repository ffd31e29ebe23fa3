"""``hr.to_delta`` and ``hr.read_delta`` with real tables: what is in them, whatever is run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from polars import read_parquet
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.sink import BatchIdentity, Written
from headrace.connectors.delta.sink import to_delta
from headrace.connectors.delta.source import DeltaEnumerator, read_delta
from headrace.connectors.delta.table import DeltaLog, DeltaWriter
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, MarkedBatch
from headrace.json_codec import decode
from headrace.observe.account import Account, SourceCounts
from headrace.observe.status import statuses
from headrace.storage import local_path

pytestmark = pytest.mark.spark


def _batch(
    number: int, last: MarkedBatch | None = None, *, generation: int = 0, token: str = "", changelog: bool = False
) -> BatchIdentity:
    which = ("spend", generation, number, "main", "spend-1f0c", 1, token, last)
    return BatchIdentity(*which, changelog=changelog)


def _rows(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


def _versions(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


class Counted:
    """A frame whose rows are counted whenever it runs."""

    def __init__(self, spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> None:
        ran = spark.sparkContext.accumulator(0)

        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                ran.add(batch.num_rows)
                yield batch

        given = spark.createDataFrame(rows, schema).coalesce(1)
        # A name that SQL text cannot hold as it is, and mapInArrow not at all.
        self.frame: DataFrame = given.mapInArrow(count, given.schema).withColumnRenamed("label", "odd.`label")
        self._ran = ran

    @property
    def rows_run(self) -> int:
        return int(self._ran.value)


def test_a_batch_is_appended_once_and_its_frame_runs_once_each_time(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "it's a `table`"
    sink = to_delta(path)
    first = Counted(spark, [(1, "a"), (2, None)], "n BIGINT, s STRING")
    sink.check_target(first.frame)
    assert sink.write(first.frame, _batch(0)) == Written(2, 2)
    assert first.rows_run == 2
    assert sink.write(first.frame, _batch(0)) == Written(2, 0, already_marked=2)
    assert first.rows_run == 4
    assert _rows(spark, path) == [(1, "a"), (2, None)]
    versions = _versions(path)
    nothing = Counted(spark, [], "n BIGINT, s STRING")
    assert sink.write(nothing.frame, _batch(1, MarkedBatch(0))) == Written(0, 0)
    assert _versions(path) == versions
    assert sink.write(first.frame, _batch(2, MarkedBatch(0))) == Written(2, 2)
    assert sink.write(first.frame, _batch(0, generation=1)) == Written(2, 2)
    assert len(_rows(spark, path)) == 6


@pytest.mark.full
def test_the_last_change_of_a_key_is_merged_once(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id BIGINT, place STRUCT<x: INT, y: STRING>, label STRING, change STRING"
    path = tmp_path / "merged `x`"
    sink = to_delta(path, upsert_on=["id", "place"])
    first = Counted(
        spark,
        [
            (1, (1, None), "old", "insert"),
            (1, (1, None), "old", "update_before"),
            (1, (1, None), "new", "update_after"),
            (None, None, "nothing", "insert"),
            (2, (2, "b"), "kept", None),
            (3, (3, "c"), "gone at once", "insert"),
            (3, (3, "c"), "gone at once", "delete"),
        ],
        schema,
    )
    sink.check_target(first.frame.drop("change"))
    assert sink.write(first.frame, _batch(0, changelog=True)) == Written(7, 4, superseded=3)
    assert first.rows_run == 7
    expected = {(1, "new"), (None, "nothing"), (2, "kept")}
    table = spark.read.format("delta").load(str(path))
    assert table.columns == ["id", "place", "odd.`label"]
    assert {(row[0], row[2]) for row in table.collect()} == expected
    versions = _versions(path)
    assert sink.write(first.frame, _batch(0, changelog=True)) == Written(7, 0, already_marked=7)
    assert first.rows_run == 14
    nothing = Counted(spark, [], schema)
    assert sink.write(nothing.frame, _batch(1, MarkedBatch(0), changelog=True)) == Written(0, 0)
    assert _versions(path) == versions
    second = Counted(spark, [(None, None, "", "delete"), (2, (2, "b"), "changed", "update_after")], schema)
    assert sink.write(second.frame, _batch(2, MarkedBatch(0), changelog=True)) == Written(2, 2)
    assert {(row[0], row[2]) for row in spark.read.format("delta").load(str(path)).collect()} == {
        (1, "new"),
        (2, "changed"),
    }
    for left_over in ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"):
        assert spark.conf.get(left_over, None) is None
    assert not [view.name for view in spark.catalog.listTables() if view.name.startswith("headrace_")]


@pytest.mark.parametrize("upsert_on", [None, "n"])
def test_of_two_copies_of_a_checkpoint_only_one_can_write_however_their_batches_are_cut(
    spark: SparkSession, tmp_path: Path, upsert_on: str | None
) -> None:
    sink, frame = to_delta(tmp_path / "t", upsert_on=upsert_on), spark.createDataFrame([(1,), (2,)], "n BIGINT")
    last = MarkedBatch(2, "common")
    assert sink.write(frame, _batch(2, token="common")) == Written(2, 2)
    assert sink.write(frame, _batch(4, last, token="one")) == Written(2, 2)
    versions = _versions(tmp_path / "t")
    for batch in (3, 4, 5):
        with pytest.raises(HeadraceError, match=r"CHECKPOINT_FORKED.* has written batch 4, which the log"):
            sink.write(frame, _batch(batch, last, token="other"))
    assert _versions(tmp_path / "t") == versions
    assert sink.write(frame, _batch(4, last, token="one")) == Written(2, 0, already_marked=2)
    assert sink.write(frame, _batch(6, MarkedBatch(4, "one"), token="six")) == Written(2, 2)
    assert len(_rows(spark, tmp_path / "t")) == (6 if upsert_on is None else 2)
    with pytest.raises(HeadraceError, match=r"MARK_LOST.* should be batch 9 or 10, found batch 6"):
        sink.write(frame, _batch(10, MarkedBatch(9, "nine"), token="ten"))


def test_a_merge_that_was_begun_by_one_copy_is_not_done_by_another(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = to_delta(tmp_path / "t", upsert_on="id")
    given, other = (spark.createDataFrame([(1, n)], "id BIGINT, n BIGINT") for n in (1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaWriter, "_merge", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.write(given, _batch(0, token="one"))
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.write(other, _batch(0, token="other"))
    assert sink.write(given, _batch(0, token="one")) == Written(1, 1)
    assert _rows(spark, tmp_path / "t") == [(1, 1)]


@pytest.mark.parametrize("upsert_on", [None, "n"])
def test_a_copy_that_writes_between_our_look_at_the_mark_and_our_commit_keeps_us_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upsert_on: str | None
) -> None:
    sink, frame = to_delta(tmp_path / "t", upsert_on=upsert_on), spark.createDataFrame([(1,), (2,)], "n BIGINT")
    looks = DeltaWriter.is_written

    def look_too_early(writer: DeltaWriter) -> bool:
        monkeypatch.setattr(DeltaWriter, "is_written", looks)
        assert sink.write(frame, _batch(1, token="other")) == Written(2, 2)
        return False

    monkeypatch.setattr(DeltaWriter, "is_written", look_too_early)
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.write(frame, _batch(0, token="one"))
    assert _rows(spark, tmp_path / "t") == [(1,), (2,)]


@pytest.mark.full
def test_a_merge_that_another_driver_has_done_meanwhile_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "t", upsert_on="id")
    frame = spark.createDataFrame([(1, 1)], "id BIGINT, n BIGINT")
    later = spark.createDataFrame([(1, 2)], "id BIGINT, n BIGINT")
    sink.write(frame, _batch(0))
    table = DeltaWriter(DeltaLog(spark, str(tmp_path / "t")), _batch(0))
    with pytest.raises(HeadraceError, match=r"\[FENCED\].* another driver has written batch 0"):
        table.upsert(later, ["id"])
    assert _rows(spark, tmp_path / "t") == [(1, 1)]


@pytest.mark.full
def test_of_two_drivers_that_append_a_batch_at_the_same_time_one_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    signal, go = tmp_path / "signal", tmp_path / "go"
    signals = (str(signal), str(go))
    rows = spark.createDataFrame([(1,), (2,)], "n BIGINT").coalesce(1)

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pathlib
        import time

        pathlib.Path(signals[0]).touch()
        while not pathlib.Path(signals[1]).exists():
            time.sleep(0.02)
        yield from batches

    sink = to_delta(tmp_path / "t")
    with ThreadPoolExecutor(1) as drivers:
        zombie = drivers.submit(sink.write, rows.mapInArrow(slow, rows.schema), _batch(0))
        while not signal.exists():
            time.sleep(0.02)
        assert sink.write(rows, _batch(0)) == Written(2, 2)
        go.touch()
        with pytest.raises(hr.HeadraceError, match=r"\[FENCED\].* another driver has written batch 0"):
            zombie.result()
    assert _rows(spark, tmp_path / "t") == [(1,), (2,)]


def test_a_table_is_made_with_the_folders_that_were_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "day STRING, n BIGINT")
    assert to_delta(tmp_path / "t", partition_by="day").write(frame, _batch(0)) == Written(2, 2)
    assert sorted(folder.name for folder in (tmp_path / "t").glob("day=*")) == ["day=a", "day=b"]
    with pytest.raises(hr.DefinitionError) as raised:
        to_delta(tmp_path / "t", partition_by="n").check_target(frame)
    assert raised.value.id == "DELTA_SCHEMA"


def test_what_does_not_fit_is_found_before_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    sink = to_delta(tmp_path / "t")
    sink.write(spark.createDataFrame([(1,)], "n BIGINT"), _batch(0))
    with pytest.raises(hr.DefinitionError, match=r"\[DELTA_SCHEMA\].* column 'n' is BIGINT, the rows have STRING"):
        sink.check_target(spark.createDataFrame([("1",)], "n STRING"))
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\].* needs column 'id', but the rows have n"):
        to_delta(tmp_path / "t", upsert_on="id").check_columns(spark.createDataFrame([(1,)], "n BIGINT").schema)


def _land(spark: SparkSession, path: Path, *rows: tuple[str | None, ...]) -> None:
    payments = spark.createDataFrame(list(rows), "account STRING, at STRING, amount STRING")
    typed = payments.selectExpr("account", "cast(amount AS BIGINT) AS amount", "cast(at AS TIMESTAMP) AS at")
    typed.coalesce(1).write.format("delta").mode("append").save(str(path))


def _windows(spark: SparkSession, path: Path) -> list[tuple[str, int, int]]:
    rows = spark.read.format("delta").load(str(path)).collect()
    return sorted((row["account"], row["window"]["start"].hour, row["spent"]) for row in rows)


@pytest.mark.full
def test_a_table_runs_through_windows_into_a_table_until_its_rows_are_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    _land(spark, tmp_path / "in", ("a", "2025-01-01 10:05:00", "5"), ("b", "2025-01-01 10:30:00", "1"))
    _land(spark, tmp_path / "in", ("a", "2025-01-01 11:30:00", "7"), ("c", None, "3"))

    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        payments = read_delta(spark, tmp_path / "in", name="payments")
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
        out = to_delta(tmp_path / "out")
        hr.write("spend", payments.transform(hr.event_time("at")).transform(hourly), out)

    spend.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
    assert _windows(spark, tmp_path / "out") == [("a", 10, 5), ("b", 10, 1)]
    letters = read_parquet(sorted((tmp_path / "checkpoint" / "spend" / "dead_letters").glob("*/*.parquet")))
    assert letters["reason"].to_list() == ["NO_EVENT_TIME"]
    assert json.loads(letters["raw"][0]) == {"account": "c", "amount": 3, "at": None}
    assert local_path(letters["origin"][0]) in list((tmp_path / "in").glob("*.parquet"))
    spark.sql(f"UPDATE delta.`{tmp_path}/in` SET amount = 6 WHERE account = 'b'")
    with pytest.raises(hr.HeadraceError) as raised:
        spend.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
    assert raised.value.id == "DELTA_NOT_APPEND_ONLY"
    assert "changes=True" in str(raised.value)


def _until(said: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not said():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def test_a_table_that_is_away_for_a_moment_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    spark.range(1).coalesce(1).write.format("delta").save(str(table))

    @hr.pipeline(name="away")
    def away(spark: SparkSession) -> None:
        hr.write("away", read_delta(spark, table), hr.to_memory("delta_away"))

    def waiting() -> list[str]:
        return [text for flow in statuses(checkpoint) for text in flow.waiting]

    running = away.start(checkpoint=checkpoint, mode=hr.micro_batch("100 milliseconds"), spark=spark)
    try:
        _until(lambda: len(hr.memory("delta_away")) == 1)
        elsewhere = table.rename(tmp_path / "elsewhere")
        _until(lambda: [f"Delta table {table}" in text for text in waiting()] == [True])
        elsewhere.rename(table)
        spark.range(1, 3).coalesce(1).write.format("delta").mode("append").save(str(table))
        _until(lambda: sorted(row["id"] for row in hr.memory("delta_away")) == [0, 1, 2])
        assert waiting() == []
    finally:
        running.stop()


@pytest.mark.full
def test_a_table_that_goes_away_while_spark_reads_a_batch_is_waited_for_and_read_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, elsewhere, checkpoint = tmp_path / "in", tmp_path / "elsewhere", tmp_path / "checkpoint"
    _land(spark, table, *((account, "2025-01-01 10:05:00", "1") for account in "aab"))
    planned, reads = DeltaEnumerator.frame, []

    def frame(self: DeltaEnumerator, since: dict[str, Any], until: dict[str, Any]) -> DataFrame:
        reads.append(planned(self, since, until))
        if len(reads) == 1:
            table.rename(elsewhere)
        return reads[-1]

    @hr.pipeline(name="gone")
    def gone(spark: SparkSession) -> None:
        payments = read_delta(spark, table, name="payments").transform(hr.event_time("at"))
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
        hr.write("gone", payments.transform(hourly), hr.to_memory("delta_gone"))

    monkeypatch.setattr(DeltaEnumerator, "frame", frame)
    running = gone.start(checkpoint=checkpoint, mode=hr.available_now(drain=True), spark=spark)
    try:
        _until(lambda: [each.sink for each in outages(LocalStorage(checkpoint / "gone"))] == [f"Delta table {table}"])
        assert len(reads) == 1
        elsewhere.rename(table)
        assert running.wait(60)
    finally:
        running.stop()
    assert len(reads) == 2
    assert sorted((row["account"], row["spent"]) for row in hr.memory("delta_gone")) == [("a", 2), ("b", 1)]
    outcome = BatchLog(LocalStorage(checkpoint / "gone")).outcome
    assert outcome is not None
    account = decode(Account, outcome.total)
    assert account.sources == {"payments": SourceCounts(read=3, handed_on=3)}


@pytest.mark.full
def test_what_a_table_was_given_comes_back_as_a_changelog(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id BIGINT, n BIGINT, change STRING"
    empty = spark.createDataFrame([], "id BIGINT, n BIGINT").write.format("delta")
    empty.option("delta.enableChangeDataFeed", "true").save(str(tmp_path / "t"))
    sink = to_delta(tmp_path / "t", upsert_on="id")
    sink.write(spark.createDataFrame([(1, 1, "insert"), (2, 2, "insert")], schema), _batch(0, changelog=True))
    changes = spark.createDataFrame([(1, 5, "update_after"), (2, 2, "delete")], schema)
    sink.write(changes, _batch(1, MarkedBatch(0), changelog=True))

    @hr.pipeline(name="mirror")
    def mirror(spark: SparkSession) -> None:
        hr.write("mirror", read_delta(spark, tmp_path / "t", changes=True, start=1), hr.to_memory("delta_mirror"))

    mirror.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
    found = hr.memory("delta_mirror")
    assert sorted((row["_commit_version"], row["id"], row["change"], row["n"]) for row in found) == [
        (2, 1, "insert", 1),
        (2, 2, "insert", 2),
        (4, 1, "update_after", 5),
        (4, 1, "update_before", 1),
        (4, 2, "delete", 2),
    ]


@pytest.mark.parametrize(
    ("columns", "options", "id"),
    [
        (None, {}, "SOURCE_MISSING"),
        ("n BIGINT", {"changes": True}, "CHANGE_FEED_OFF"),
        ("n BIGINT", {"start": 7}, "START_UNKNOWN"),
        ("n BIGINT", {"start": "tomorrow"}, "START_UNKNOWN"),
        ("n MAP<STRING, INT>", {}, "SCHEMA_UNSUPPORTED"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_the_definition(
    spark: SparkSession, tmp_path: Path, columns: str | None, options: dict[str, Any], id: str
) -> None:
    if columns is not None:
        spark.createDataFrame([], columns).write.format("delta").save(str(tmp_path / "t"))

    @hr.pipeline(name="refused")
    def refused(spark: SparkSession) -> None:
        hr.write("refused", read_delta(spark, tmp_path / "t", **options), hr.to_memory("refused"))

    with pytest.raises(hr.DefinitionError) as raised:
        refused.start(checkpoint=tmp_path / "checkpoint", spark=spark)
    assert raised.value.id == id
