"""``hr.preview``: what the first rows become, without a checkpoint of the user's and without any sink."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.runtime.pipeline import Pipeline

pytestmark = pytest.mark.spark

HOUR = datetime(2026, 1, 5, 10, tzinfo=UTC)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Payments, among them a broken line, in two files."""
    folder = tmp_path / "payments"
    folder.mkdir()
    times = [("ann", 20.0, "10:05"), ("<b>bob</b>", 7.5, "10:20"), ("ann", 5.0, "10:40"), ("ann", -1.0, "10:45")]
    lines = [json.dumps({"account": who, "amount": much, "at": f"2026-01-05T{at}:00Z"}) for who, much, at in times]
    (folder / "1.json").write_text("\n".join([*lines[:2], "not a payment", *lines[2:]]) + "\n")
    (folder / "2.json").write_text("\n".join(lines * 1000) + "\n")
    return folder


def spending(landing: Path, out: Path) -> Pipeline:
    step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())

    @hr.pipeline
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, landing, format="json", schema="account STRING, amount DOUBLE, at TIMESTAMP")
        windows = step.outputs(rows.transform(hr.event_time("at")).where("amount > 0"))
        big = windows.main.where("spent > 10").select("account", "spent")
        hr.write("spend", (windows.main, hr.to_files(out / "all")), (big, hr.to_files(out / "big")))

    return spend


def test_the_first_rows_go_through_every_step(landing: Path, tmp_path: Path, spark: SparkSession) -> None:
    found = hr.preview(spending(landing, tmp_path / "out"), rows=5, spark=spark)
    assert found["payments"]["account"].to_list() == ["ann", "<b>bob</b>", "ann", "ann"]
    assert found["dead_letters"].select("reason", "raw").rows() == [("NOT_JSON", b"not a payment")]
    windows = sorted(found["hourly"].select("account", "spent").rows())
    assert windows == [("<b>bob</b>", 7.5), ("ann", 25.0)]
    assert found["hourly"]["window"][0] == {"start": HOUR, "end": HOUR.replace(hour=11)}
    assert found["hourly.late"].is_empty()
    assert found["spend.hourly.main.1"].rows() == [("ann", 25.0)]
    assert not (tmp_path / "out").exists()
    assert found["payments"].height + found["dead_letters"].height == 5
    text, html = repr(found), found._repr_html_()
    for shown in ("payments  source, 4 rows", "hourly  step to folder", "2026-01-05 10:00 to 11:00", "not a payment"):
        assert shown in text
    assert "hourly.late  side output, 0 rows" in text
    assert "<td>&lt;b&gt;bob&lt;/b&gt;</td>" in html
    with pytest.raises(KeyError, match=r"it has payments, dead_letters, hourly, hourly\.late, spend"):
        found["hourly.main"]


def test_a_preview_takes_no_more_rows_than_it_is_told_and_changes_nothing_for_a_run(
    landing: Path, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = spending(landing, tmp_path / "out")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert hr.preview(pipeline, rows=1, spark=spark)["payments"].height == 1
    assert hr.preview(pipeline, rows=100, spark=spark)["payments"].height == 99
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_an_endless_source_a_stream_of_spark_and_two_flows_are_shown_too(
    landing: Path, tmp_path: Path, spark: SparkSession
) -> None:
    counted = hr.tumbling("counted", size="1 day", key=None).agg(n="count(*)").late(hr.drop())
    totals = hr.process("totals", Doubled, key="account", output="account STRING, n BIGINT").late(hr.drop())

    @hr.pipeline
    def both(spark: SparkSession) -> None:
        payments = hr.generate(spark, hr.Payments(), rate=1000, name="made").transform(hr.event_time("at"))
        hr.write("made", payments.transform(counted), hr.to_memory("never"))
        read = spark.readStream.schema("account STRING, amount DOUBLE, at TIMESTAMP").json(str(landing))
        rows = hr.source(read, name="streamed").transform(hr.event_time("at", accept=hr.valid_times(max_future=None)))
        hr.write("streamed", rows.where("account = 'ann'").transform(totals), hr.to_memory("never"))

    found = hr.preview(both, rows=7, spark=spark)
    assert 0 < found["counted"]["n"].sum() == found["made"].height <= 7
    dead = sum(table.rows.height for table in found.tables if table.name == "dead_letters")
    assert found["streamed"].height + dead == 7
    assert found["totals"].height == (found["streamed"]["account"] == "ann").sum() > 0
    assert hr.memory("never") == []


class Doubled(hr.KeyedProcess):
    """Gives a row for each row."""

    def on_row(self, row: Any, context: Any) -> Any:
        return [{"account": context.key, "n": 2}]


def test_a_source_that_hands_each_row_out_once_and_a_preview_of_nothing_are_refused(spark: SparkSession) -> None:
    @hr.pipeline
    def heat(spark: SparkSession) -> None:
        rows = hr.read_mqtt(spark, "heat", servers="127.0.0.1:1", schema="celsius DOUBLE")
        hr.write("heat", rows, hr.to_memory("never"))

    with pytest.raises(hr.DefinitionError, match=r"\[PREVIEW_UNSUPPORTED\] source 'heat'"):
        hr.preview(heat, spark=spark)
    with pytest.raises(hr.DefinitionError, match=r"\[ROWS_TOO_FEW\]"):
        hr.preview(heat, rows=0, spark=spark)
