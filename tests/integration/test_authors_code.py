"""The author's own ``where`` and ``select`` before, between and after steps change neither time nor what is kept."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import headrace as hr
from headrace.observe import history
from headrace.observe.status import statuses

hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())
daily = hr.tumbling("daily", size="1 day", key="account").agg(total="sum(spent)", hours="count(*)").late(hr.drop())


def before(rows: DataFrame) -> DataFrame:
    """Renames the event time, drops a column and some rows."""
    return rows.where("amount > 0").select(F.col("at").alias("happened"), "account", "amount")


def between(windows: DataFrame) -> DataFrame:
    """Drops results of one account and the columns that the next step does not need."""
    return windows.where("account != 'c'").select("window", "account", "spent")


@hr.pipeline
def shaped(spark: SparkSession, folder: Path) -> None:
    """Hours into days, with the author's own code everywhere."""
    rows = hr.read_files(
        spark, folder, format="json", schema="account STRING, amount DOUBLE, note STRING, at TIMESTAMP"
    )
    hours = hourly.outputs(before(rows.transform(hr.event_time("at"))))
    days = between(hours.main).transform(daily).where("total > 100").select("account", "total")
    hr.write("shaped", (days, hr.to_memory("shaped_days")), (hours.late, hr.to_memory("shaped_late")))


def drop_file(folder: Path, name: str, *rows: tuple[str, float, str]) -> None:
    """A file of rows (account, amount, time) that appears at once."""
    lines = [json.dumps({"account": a, "amount": n, "note": "x", "at": f"2026-01-{t}:00Z"}) for a, n, t in rows]
    unfinished = folder.parent / name
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(folder / name)


@pytest.mark.full
@pytest.mark.spark
def test_the_authors_own_code_changes_neither_time_nor_late_rows_nor_the_account(
    tmp_path: Path, spark: SparkSession
) -> None:
    landing, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    landing.mkdir()

    def run(*, drain: bool = False) -> None:
        shaped.run(checkpoint=checkpoint, mode=hr.available_now(drain=drain), spark=spark, folder=landing)

    drop_file(landing, "1.json", ("a", 200.0, "01T10:05"), ("b", 5.0, "01T10:10"), ("c", 900.0, "01T10:20"))
    # Moves time though the filter removes it: the hour of ten is closed for the next file.
    drop_file(landing, "2.json", ("a", -1.0, "01T11:30"))
    run()
    drop_file(landing, "3.json", ("a", 7.0, "01T10:59"), ("a", 300.0, "01T11:45"))
    run(drain=True)
    assert [(row["account"], row["total"]) for row in hr.memory("shaped_days")] == [("a", 500.0)]
    assert [(row["account"], row["amount"]) for row in hr.memory("shaped_late")] == [("a", 7.0)]
    entries = [entry.account for entry in history.read(checkpoint / "shaped")]
    read = sum(entry.sources["in"].read for entry in entries if entry.sources)
    hours = [entry.steps["hourly"] for entry in entries if entry.steps]
    days = [entry.steps["daily"] for entry in entries if entry.steps]
    assert (read, sum(n.in_ for n in hours), sum(n.late for n in hours)) == (6, 5, 1)
    assert (sum(n.in_ for n in days), sum(n.accepted for n in days)) == (3, 3)


FIRST, SECOND = (round(datetime(2026, 3, day, 12, tzinfo=UTC).timestamp()) for day in (1, 2))
"""The clock of the run that fails, and of the one that repeats its batch."""
ASKED = {
    "current_timestamp()": "2026-03-01 12:00:00",
    "now()": "2026-03-01 12:00:00",
    "localtimestamp()": "2026-03-01 12:00:00",
    "current_date()": "2026-03-01",
    "curdate()": "2026-03-01",
    "unix_timestamp()": str(FIRST),
    "(SELECT max(now()) FROM VALUES (1))": "2026-03-01 12:00:00",
}
"""What asks for the time, and what it gets."""
COLUMNS = [f"CAST({text} AS STRING) AS asked{number}" for number, text in enumerate(ASKED)]


class Repeated:
    """A sink that keeps what every batch wrote each time, and may fail the first time that it gets rows."""

    guarantee = "exactly_once"

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.batches: dict[int, list[list[tuple[object, ...]]]] = {}

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Keep the rows, then fail or not."""
        rows = [tuple(row) for row in frame.collect()]
        self.batches.setdefault(batch.batch, []).append(rows)
        if rows and self.fails:
            self.fails = False
            raise ConnectionError("the sink is away")
        return hr.Written(len(rows), len(rows))


@pytest.mark.spark
def test_a_batch_that_runs_again_gets_the_same_time_before_and_after_a_step_and_in_a_side_output(
    tmp_path: Path, spark: SparkSession
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    drop_file(landing, "1.json", ("a", 1.0, "01T10:05"), ("a", 1.0, "01T11:30"))
    drop_file(landing, "2.json", ("a", 2.0, "01T10:59"))
    main, late = Repeated(fails=False), Repeated(fails=True)

    @hr.pipeline
    def asked(spark: SparkSession) -> None:
        schema = "account STRING, amount DOUBLE, at TIMESTAMP"
        rows = hr.read_files(spark, landing, format="json", schema=schema, files_per_batch=1)
        hours = hourly.outputs(rows.transform(hr.event_time("at")).selectExpr("account", "amount", "at", *COLUMNS))
        kept = hours.late.transform(lambda late: late.selectExpr("asked0 AS before", *COLUMNS))
        hr.write("asked", (hours.main.selectExpr("account", *COLUMNS), main), (kept, late))

    def run(clock: int) -> None:
        running = asked.start(
            checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark, clock=lambda: clock * 1_000_000
        )
        assert running.wait(120)

    with pytest.raises(ConnectionError):
        run(FIRST)
    run(SECOND)
    [again] = [number for number, written in late.batches.items() if len(written) > 1]
    moments = tuple(ASKED.values())
    assert main.batches[again] == [[("a", *moments)]] * 2
    assert late.batches[again] == [[(moments[0], *moments)]] * 2


@F.udf(returnType=DoubleType(), useArrow=False)
def inverse(amount: float) -> float:
    """Fails at zero."""
    return 1 / amount


class Inverse(hr.KeyedProcess):
    """Fails at zero as well."""

    def on_row(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        """Give the inverse of an amount."""
        yield {"k": row.account, "n": 1 / row.amount}


def by_udf(rows: DataFrame) -> DataFrame:
    """Calls the function in a frame."""
    return rows.select(inverse("amount"))


def by_step(rows: DataFrame) -> DataFrame:
    """Calls it in a step, which stops by default."""
    return hr.process("inverse", Inverse, key="account", output="k STRING, n DOUBLE").late(hr.drop())(rows)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("calls", "begins", "frame"),
    [
        (by_udf, "[BATCH_FAILED] flow 'fails', batch 0: a task failed", "in inverse\n    return 1 / amount\n"),
        (
            by_step,
            "[PROCESS_FAILED] step 'inverse', key 'a': Inverse.on_row failed: ZeroDivisionError: float division",
            'in on_row\n    yield {"k": row.account, "n": 1 / row.amount}\n',
        ),
    ],
)
def test_an_error_in_the_authors_function_is_shown_as_their_traceback(
    calls: Callable[[DataFrame], DataFrame], begins: str, frame: str, tmp_path: Path, spark: SparkSession
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    drop_file(landing, "1.json", ("a", 0.0, "01T10:05"))

    @hr.pipeline
    def fails(spark: SparkSession) -> None:
        rows = hr.read_files(spark, landing, format="json", schema="account STRING, amount DOUBLE, at TIMESTAMP")
        hr.write("fails", calls(rows.transform(hr.event_time("at"))), hr.to_memory("fails"))

    with pytest.raises(hr.HeadraceError) as raised:
        fails.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    said = str(raised.value)
    assert said.startswith(begins)
    assert said.count('  File "') == 1
    assert frame in said
    assert said.endswith("ZeroDivisionError: float division by zero")
    screen = "".join(traceback.format_exception(raised.value))
    assert [line for line in screen.splitlines() if "Py4J" in line or line.startswith("\tat ")] == []


@pytest.mark.spark
def test_files_that_a_batch_may_not_take_yet_are_unread_and_a_run_shows_its_progress(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    landing, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    landing.mkdir()
    for number in range(5):
        drop_file(landing, f"{number}.json", ("a", 1.0, "01T10:05"))

    @hr.pipeline
    def capped(spark: SparkSession) -> None:
        schema = "account STRING, amount DOUBLE, at TIMESTAMP"
        rows = hr.read_files(spark, landing, format="json", schema=schema, files_per_batch=2)
        hr.write("capped", rows, hr.to_memory("capped"))

    capped.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark)
    assert [entry.unread["in"] for entry in history.read(checkpoint / "capped")] == [3, 1, 0]
    assert capfd.readouterr().err.splitlines()[-1].startswith("capped: batch 2, 5 rows read, ")
    drop_file(landing, "5.json", ("a", 1.0, "01T10:05"))
    capped.run(checkpoint=checkpoint, mode=hr.available_now(), spark=spark, progress=False)
    assert [flow.read for flow in statuses(checkpoint)] == [6]
    assert "capped" not in capfd.readouterr().err
