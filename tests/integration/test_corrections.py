"""Late rows correct tables: after all of them PostgreSQL and Delta hold what one computation over all rows gives."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import polars as pl
import psycopg
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.files.results import Results
from headrace.operators.windows.window_step import WindowStep
from headrace.services.service import Service
from tests.models import fixed_windows as model
from tests.models import session as session_model
from tests.models.fixed_windows import MINUTE, Answer, Covering
from tests.models.rows import Event

pytestmark = [pytest.mark.spark, pytest.mark.full]


def in_windows(covering: Covering) -> Callable[[list[Event]], Answer]:
    return lambda events: model.answer(events, covering)


SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"
STEPS: dict[str, tuple[WindowStep, Callable[[list[Event]], Answer], tuple[str, ...]]] = {
    "tumbling": (
        hr.tumbling("spend", size="10 minutes", key="account"),
        in_windows(model.tumbling(10 * MINUTE)),
        ("postgres", "delta"),
    ),
    "previews of hopping windows": (
        hr.hopping("spend", size="10 minutes", every="5 minutes", key="account").emit(hr.on_update()),
        in_windows(model.hopping(10 * MINUTE, 5 * MINUTE)),
        ("postgres",),
    ),
    "retracting": (
        hr.tumbling("spend", size="10 minutes", key="account").panes(hr.retracting()),
        in_windows(model.tumbling(10 * MINUTE)),
        ("postgres",),
    ),
    "sessions that merge": (
        hr.session("spend", gap="10 minutes", key="account"),
        lambda events: session_model.answer(events, 10 * MINUTE),
        ("postgres", "delta"),
    ),
}


@pytest.mark.parametrize("kind", STEPS)
def test_a_corrected_table_equals_the_batch_computation(
    kind: str, place: Any, postgres: Service, spark: SparkSession
) -> None:
    window, answer_to, sinks = STEPS[kind]
    step = window.agg(spent="sum(amount)", payments="count(*)").late(hr.update_for("3 hours"))
    name, table = f"t{uuid.uuid4().hex[:8]}", place.root / "table"
    chance = random.Random(5)
    events = []
    for file in range(3):
        rows = []
        for number in range(40):
            # Up to two hours behind: most windows are closed when some of their rows come.
            second = max(0, (file * 40 + number) * 60 - chance.randrange(7200))
            account, amount = chance.choice("abc"), chance.randrange(100)
            clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            rows.append((f"{file}-{number}", account, amount, clock))
            events.append(Event(account, 1_735_689_600_000_000 + second * 1_000_000, amount))
        place.land(f"{file}", *rows)

    @hr.pipeline(name="corrected")
    def corrected(spark: SparkSession) -> None:
        payments = hr.read_files(
            spark, place.landing, format="json", schema=SCHEMA, name="payments", files_per_batch=1
        ).transform(hr.event_time("at"))
        # A session is known by its id: late rows may move its start and its end.
        key = ["account", "session_id" if kind.startswith("sessions") else "window"]
        kinds = {
            "postgres": hr.to_postgres(name, dsn=postgres.dsn, upsert_on=key),
            "delta": hr.to_delta(str(table), upsert_on=key),
        }
        log = hr.to_files(place.root / "log")
        hr.write("spend", (payments.transform(step), log, *(kinds[sink] for sink in sinks)))

    corrected.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=True), spark=spark)
    answer = answer_to(events)
    truth = {(account, start): (values[2], values[0]) for (account, start, _), values in answer.items()}
    with psycopg.connect(postgres.dsn) as connection:
        query = f'select account, extract(epoch from window_start) * 1000000, spent, payments, revision from "{name}"'
        stored = connection.execute(query).fetchall()
    assert _latest(stored) == truth
    assert any(row[4] > 0 for row in stored)
    tables = [hr.read_results(spark, place.root / "log", latest=True)]
    tables += [spark.read.format("delta").load(str(table))] if "delta" in sinks else []
    for each in tables:
        found = each.selectExpr("account", "unix_micros(window.start)", "spent", "payments", "revision").collect()
        assert _latest([tuple(row) for row in found]) == truth
    shown = Results(place.root / "log").latest().sort("account", "window")
    read = pl.DataFrame(tables[0].toArrow()).sort("account", "window")
    assert_frame_equal(shown, read, check_dtypes=False)


def _latest(rows: list[Any]) -> dict[tuple[str, int], tuple[int, int]]:
    found = {(account, int(start)): (int(spent), payments) for account, start, spent, payments, _ in rows}
    assert len(found) == len(rows)
    return found


def test_a_table_that_only_grows_is_refused_where_results_are_taken_back(
    place: Any, postgres: Service, spark: SparkSession
) -> None:
    step = hr.tumbling("spend", size="1 hour", key="account").agg(n="count(*)").late(hr.side_output())

    def pipeline(*sinks: Any) -> Callable[[SparkSession], None]:
        def define(spark: SparkSession) -> None:
            rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA, name="payments")
            timed = rows.transform(hr.event_time("at"))
            hr.write("spend", (timed.transform(step.panes(hr.retracting())), *sinks))

        return define

    table = hr.to_postgres("spend", dsn=postgres.dsn)
    (finding,) = hr.pipeline(name="p")(pipeline(table)).check(spark=spark)
    assert (finding.id, finding.severity) == ("SINK_CANNOT_DELETE", "error")
    assert "upsert_on" in finding.message
    keyed = hr.to_postgres("spend", dsn=postgres.dsn, upsert_on=["account", "window"])
    found = hr.pipeline(name="p")(pipeline(keyed, hr.to_files(str(place.root / "out")))).check(spark=spark)
    assert [each.severity for each in found] == ["note"]
