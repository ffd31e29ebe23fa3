"""A definition can be explained, drawn and checked without reading any data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.runtime.pipeline import Pipeline

pytestmark = pytest.mark.spark


@pytest.fixture
def spend(tmp_path: Path) -> Pipeline:
    """Hourly spend with corrections, its late rows and its console."""
    (tmp_path / "in").mkdir()

    @hr.pipeline
    def spend(spark: SparkSession) -> None:
        payments = hr.read_files(
            spark, tmp_path / "in", format="json", schema="account STRING, at TIMESTAMP", name="payments"
        ).transform(hr.event_time("at", out_of_order="10 seconds"))
        hourly = (
            hr.tumbling("hourly", size="1 hour", key="account")
            .agg(n="count(*)")
            .late(hr.update_for("5 minutes"))
            .outputs(payments)
        )
        hr.write("spend", (hourly.main, hr.to_files("out"), hr.to_console()), (hourly.late, hr.to_memory("late")))

    return spend


def test_explain_tells_time_state_and_guarantees(spend: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    assert spend.explain(spark=spark).splitlines() == [
        "pipeline spend",
        "  flow spend",
        f"    source payments: {tmp_path}/in, hr.event_time('at', out_of_order='10 seconds')",
        "      watermark: highest time seen - 10 seconds, one for the whole source; "
        "more than 5 minutes ahead is a dead letter",
        "    step hourly: hr.tumbling('hourly', size='1 hour', key='account').agg(n='count(*)')"
        ".emit(hr.on_close()).late(hr.update_for('5 minutes'))",
        "      reads source.payments; columns account, window, n, pane, revision",
        "      state: a row for each key and open window, until the window closes and 5 minutes longer; "
        "in 128 key groups",
        "    main -> hr.to_files('out', format='parquet'): exactly_once",
        "    main -> hr.to_console(): at_least_once",
        "    hourly.late -> hr.to_memory('late'): exactly_once",
        "    dead letters -> <checkpoint>/spend/dead_letters: exactly_once",
    ]


def test_explain_tells_how_long_expected_partitions_hold_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    def told(**time: Any) -> str:
        @hr.pipeline
        def spend(session: SparkSession) -> None:
            rows = hr.read_files(session, tmp_path, format="json", schema="k STRING, at TIMESTAMP", name="in")
            hr.write("spend", rows.transform(hr.event_time("at", partition="k", **time)), hr.to_console())

        return spend.explain(spark=spark).splitlines()[4].strip()

    held = "expected values holds the watermark before its first row, for"
    assert told(partitions=["north", "south"]) == f"each of 2 {held} 1 minute at most"
    assert told(partitions=1000, idle=None) == f"each of 1,000 {held} ever, because idle=None"
    assert "expected" not in told()


def test_explain_tells_that_a_step_without_a_key_runs_in_one_slot(spark: SparkSession, tmp_path: Path) -> None:
    class Nothing(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            """Emit nothing."""

    @hr.pipeline
    def watched(session: SparkSession) -> None:
        rows = hr.read_files(session, tmp_path, format="json", schema="k STRING, at TIMESTAMP", name="in")
        step = hr.process("all", Nothing, key=None, output="k STRING").late(hr.drop())
        hr.write("watched", rows.transform(hr.event_time("at")).transform(step), hr.to_console())

    told = "state: its timers, rows until event time has passed them; in one slot: the whole stream is one key"
    assert told in watched.explain(spark=spark)


def test_draw_shows_every_output_of_a_step(spend: Pipeline, spark: SparkSession) -> None:
    assert spend.draw(spark=spark).splitlines() == [
        "flowchart LR",
        '    source.payments[("payments")]',
        '    step.hourly["hourly<br/>tumbling"]',
        "    source.payments --> step.hourly",
        "    step.hourly --> flow.spend.0[\"hr.to_files('out', format='parquet')\"]",
        '    step.hourly --> flow.spend.1["hr.to_console()"]',
        "    step.hourly -. late .-> flow.spend.hourly.late.0[\"hr.to_memory('late')\"]",
    ]


def test_draw_names_a_sink_and_its_server_without_password_and_shortens_what_is_long(
    spark: SparkSession, tmp_path: Path
) -> None:
    servers = ",".join(f"broker-{number}.kafka.internal:9092" for number in range(5))

    @hr.pipeline
    def spend(session: SparkSession) -> None:
        rows = hr.read_files(session, tmp_path, format="json", schema="id STRING", name="rows")
        table = hr.to_postgres("spend", dsn="postgresql://ann:hunter2@db:5433/shop", upsert_on="id")
        cache = hr.to_redis("redis://:hunter2@cache:6379/0", key="spend:{id}")
        hr.write("spend", rows, table, cache, hr.to_kafka("spend", servers=servers), hr.to_files(f"/{'deep/' * 20}out"))

    drawn = spend.draw(spark=spark)
    assert [line.partition("--> ")[2] for line in drawn.splitlines() if "-->" in line] == [
        "flow.spend.0[\"postgres table 'spend' at db:5433/shop\"]",
        "flow.spend.1[\"redis keys 'spend:{id}' at redis://:***@cache:6379/0\"]",
        "flow.spend.2[\"kafka topic 'spend' at broker-...2,broker-4.kafka.internal:9092\"]",
        "flow.spend.3[\"hr.to_files('/deep/deep/deep/d...p/deep/out', format='parquet')\"]",
    ]
    assert "hunter2" not in drawn + spend.explain(spark=spark)


def test_check_warns_of_a_sink_that_may_show_a_batch_twice(spend: Pipeline, spark: SparkSession) -> None:
    assert [(found.id, found.severity) for found in spend.check(spark=spark)] == [("SINK_AT_LEAST_ONCE", "warning")]


def test_check_tells_what_becomes_of_late_rows_that_nobody_takes(spark: SparkSession, tmp_path: Path) -> None:
    @hr.pipeline
    def spend(session: SparkSession) -> None:
        for flow, late in (("kept", hr.side_output()), ("lost", hr.drop())):
            frame = hr.read_files(session, tmp_path, format="json", schema="k STRING, at TIMESTAMP", name=flow)
            step = hr.tumbling(f"{flow}_hourly", size="1 hour", key="k").agg(n="count(*)").late(late)
            hr.write(flow, frame.transform(hr.processing_time()).transform(step), hr.to_memory(flow))

    found = {(finding.id, finding.step) for finding in spend.check(spark=spark)}
    assert found == {
        ("LATE_ROWS_IN_CHECKPOINT", "kept_hourly"),
        ("LATE_ROWS_DROPPED", "lost_hourly"),
        ("ARRIVAL_TIME_IN_WINDOW", "kept_hourly"),
        ("ARRIVAL_TIME_IN_WINDOW", "lost_hourly"),
    }


def test_looking_leaves_nothing_behind(spend: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    spend.explain(spark=spark)
    assert sorted(tmp_path.rglob("*")) == before


class Remembers(hr.KeyedProcess):
    """Keeps something for an hour, and something else for three."""

    short = hr.value_state("INT", ttl="1 hour")
    long = hr.value_state("INT", ttl="3 hours")
    by_clock = hr.value_state("INT", ttl="1 second", ttl_time="clock")

    def on_row(self, row: object, context: object) -> None:
        """Nothing."""


def test_check_tells_a_time_to_live_that_is_shorter_than_rows_that_belong_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    @hr.pipeline
    def watched(session: SparkSession) -> None:
        frame = hr.read_files(session, tmp_path, format="json", schema="k STRING, at TIMESTAMP", name="rows")
        timed = frame.transform(hr.event_time("at", out_of_order="10 minutes"))
        hourly = hr.tumbling("hourly", size="1 hour", key="k").agg(n="count(*)").late(hr.update_for("20 minutes"))
        process = hr.process("watch", Remembers, key="k", output="k STRING").late(hr.side_output())
        hr.write("watched", process(hourly(timed)), hr.to_memory("watched"))

    (found,) = [finding for finding in watched.check(spark=spark) if finding.id == "TTL_SHORT"]
    assert (found.severity, found.step) == ("warning", "watch")
    assert found.message == (
        "state 'short' of step 'watch' lives 1 hour, but rows of this flow may belong together over 1 hour 20 minutes "
        "and come 10 minutes out of order, so it may be forgotten while it is still needed. The least safe ttl is 1.5 "
        "times both: ttl='2 hours 15 minutes'."
    )
