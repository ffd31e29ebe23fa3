"""A million rows, a tenth of them broken in twelve ways: the flow never stops, and every broken row is told apart."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import headrace as hr
from headrace.generator.payments import FAULTS, ID_IN_RAW, Payments
from headrace.json_codec import encode
from headrace.observe import history

ROWS = 1_000_000
PAYMENTS = Payments(seed=12, broken=0.1)

pytestmark = [pytest.mark.spark, pytest.mark.full]


def _listed(root: Path) -> pl.DataFrame:
    commits = [json.loads(commit.read_text()) for commit in sorted((root / "_commits").iterdir())]
    return pl.concat([pl.read_parquet(root / file) for commit in commits for file in commit["files"]])


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame]:
    """The place where the million rows went through a flow, and the truth about each of them."""
    root = tmp_path_factory.mktemp("million")
    start = datetime(2025, 1, 1, tzinfo=UTC)
    truth = PAYMENTS.write(root / "in", rows=ROWS, files=16, start=start, rate=500.0)

    @hr.pipeline(name="million")
    def million(session: SparkSession) -> None:
        payments = hr.read_files(
            session, root / "in", format="json", schema=PAYMENTS.schema, name="payments", files_per_batch=4
        ).transform(hr.event_time("at", out_of_order="1 hour"))
        step = hr.tumbling("spend", size="5 minutes", key="account").agg(spent="sum(amount)", n="count(*)")
        hr.write("spend", payments.transform(step.late(hr.side_output())), hr.to_files(root / "out"))

    million.run(checkpoint=root / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    return root, pl.read_parquet(truth)


def test_the_dead_letters_are_the_broken_rows_by_id_and_reason(finished: tuple[Path, pl.DataFrame]) -> None:
    root, truth = finished
    broken = truth.filter(pl.col("reason").is_not_null())
    letters = _listed(root / "checkpoint" / "spend" / "dead_letters")
    # Latin-1 reads any bytes; the id in them is plain letters and digits.
    raw = pl.Series("raw", [line.decode("latin-1") for line in letters["raw"]])
    found = letters.select(raw.str.extract(f"({ID_IN_RAW})").alias("id"), "reason").sort("id")
    assert ROWS * 0.095 < broken.height < ROWS * 0.105
    assert_frame_equal(found, broken.select("id", "reason").sort("id"))


def test_every_one_of_the_twelve_ways_is_among_the_dead_letters(finished: tuple[Path, pl.DataFrame]) -> None:
    root, _ = finished
    assert len(FAULTS) == 12
    # The generator chooses among the faults evenly, so a reason comes as often as faults have it.
    shares = Counter(fault.reason for fault in FAULTS)
    counts = dict(_listed(root / "checkpoint" / "spend" / "dead_letters")["reason"].value_counts().rows())
    assert counts.keys() == shares.keys()
    for reason, share in shares.items():
        assert counts[reason] == pytest.approx(ROWS * 0.1 * share / 12, rel=0.1)


def test_a_dead_letter_says_where_its_row_stood(finished: tuple[Path, pl.DataFrame]) -> None:
    root, _ = finished
    letters = _listed(root / "checkpoint" / "spend" / "dead_letters")
    for (origin,), group in letters.partition_by("origin", as_dict=True).items():
        lines = (root / "in" / Path(str(origin)).name).read_bytes().split(b"\n")
        for position, raw, detail in group.select("position", "raw", "detail").rows():
            assert lines[position - 1] == raw
            assert detail


def test_the_windows_hold_exactly_the_good_rows(finished: tuple[Path, pl.DataFrame]) -> None:
    root, truth = finished
    micros, size = pl.col("at").cast(pl.Int64), 300_000_000
    expected = (
        truth.filter(pl.col("reason").is_null())
        .group_by("account", (micros - micros % size).alias("start"))
        .agg(pl.col("amount").sum().alias("spent"), pl.len().cast(pl.Int64).alias("n"))
        .sort("account", "start")
    )
    start = pl.col("window").struct.field("start").cast(pl.Int64).alias("start")
    found = _listed(root / "out").select("account", start, "spent", "n").sort("account", "start")
    assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6, rel_tol=0)


def test_the_account_of_the_whole_history_adds_up(finished: tuple[Path, pl.DataFrame]) -> None:
    root, truth = finished
    totals: Counter[str] = Counter()
    for entry in history.read(root / "checkpoint" / "spend"):
        account = encode(entry.account)
        assert account.pop("read_once") == {"payments": True}
        for kind, nodes in account.items():
            for node, numbers in nodes.items():
                totals.update({f"{kind}.{node}.{name}": number for name, number in numbers.items()})
    broken = truth["reason"].is_not_null().sum()
    windows = _listed(root / "out").height
    assert totals == Counter(
        {
            "sources.payments.read": ROWS,
            "sources.payments.handed_on": ROWS - broken,
            "sources.payments.dead": broken,
            "steps.spend.in": ROWS - broken,
            "steps.spend.accepted": ROWS - broken,
            "steps.spend.late": 0,
            "sinks.main.out": windows,
            "sinks.main.written": windows,
            "sinks.main.already_marked": 0,
            "sinks.payments.dead_letters.out": broken,
            "sinks.payments.dead_letters.written": broken,
            "sinks.payments.dead_letters.already_marked": 0,
        }
    )
