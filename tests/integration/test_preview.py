"""``hr.preview``: what the first rows become, without a checkpoint of the user's and without any sink."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

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
    assert found["spend.main.1"].rows() == [("ann", 25.0)]
    assert not (tmp_path / "out").exists()
    assert found["payments"].height + found["dead_letters"].height == 5
    print(found)
    Path("/tmp/w/preview-out/preview.html").write_text(found._repr_html_())
