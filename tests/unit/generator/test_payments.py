"""Generated payments: the same rows whatever the split, and a truth that the decoder confirms."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from headrace.connectors.base.decoding import Columns
from headrace.connectors.base.json_lines import JsonLines
from headrace.errors import DefinitionError
from headrace.generator.payments import FAULTS, ID_IN_RAW, Payments
from tests.reasons import REASONS

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = Columns(
    {
        **dict.fromkeys(("id", "account", "shop", "gateway"), pl.String()),
        "amount": pl.Float64(),
        "at": pl.Datetime("us", "UTC"),
    }
)
TROUBLE = Payments(late=0.05, duplicates=0.1, broken=0.1, future=0.02, idle_gateways=1, silent_after=500)


def rows_of(payments: Payments, count: int) -> pl.DataFrame:
    return payments.lines(np.arange(count), start=START, rate=100.0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 2_000), max_size=5))
def test_any_split_gives_the_same_rows(cuts: list[int]) -> None:
    parts = np.split(np.arange(2_000), sorted(cuts))
    split = pl.concat([TROUBLE.lines(part, start=START, rate=100.0) for part in parts])
    assert_frame_equal(split, rows_of(TROUBLE, 2_000))


def test_another_seed_gives_other_rows() -> None:
    assert not rows_of(Payments(seed=1), 50)["line"].equals(rows_of(Payments(seed=2), 50)["line"])


def test_the_truth_is_what_the_decoder_finds(tmp_path: Path) -> None:
    truth = pl.read_parquet(TROUBLE.write(tmp_path / "in", rows=50_000, files=4, start=START, rate=100.0))
    files = sorted((tmp_path / "in").iterdir())
    assert [file.name for file in files] == [f"part-0000{number}.json" for number in range(4)]
    chunks = [chunk for file in files for chunk in JsonLines(COLUMNS).decode(str(file))]
    dead = pl.concat([chunk.dead for chunk in chunks]).select(
        id=pl.col("raw").map_elements(lambda raw: re.search(ID_IN_RAW.encode(), raw)[0].decode(), pl.String),  # type: ignore[index]
        reason="reason",
    )
    assert truth.height == 50_000
    left_to_the_gate = ["NO_EVENT_TIME", "EVENT_TIME_IN_FUTURE"]
    expected = truth.filter(~pl.col("reason").is_in(left_to_the_gate)).select("id", "reason").drop_nulls("reason")
    assert_frame_equal(dead, expected)
    assert set(expected["reason"]) == {fault.reason for fault in FAULTS} - set(left_to_the_gate)
    read = pl.concat([chunk.rows for chunk in chunks]).drop("__position")
    good = truth.filter(pl.col("reason").is_null()).drop("reason")
    ahead = pl.col("at").is_null() | (pl.col("at") > START + timedelta(days=365))
    assert_frame_equal(read.filter(~ahead), good)
    assert read.height - good.height == truth["reason"].is_in(left_to_the_gate).sum()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_keeps_the_id_readable_and_has_a_known_reason(fault: object) -> None:
    line = rows_of(Payments(), 1)["line"].item().decode()
    (chosen,) = (known for known in FAULTS if known is fault)
    assert re.findall(ID_IN_RAW.encode(), chosen.broken(line)) == [b"p000000000"]
    assert chosen.broken(line) != line.encode()
    assert chosen.reason in REASONS


def test_there_are_twelve_faults_and_all_occur() -> None:
    assert len({fault.name for fault in FAULTS}) == 12
    lines = rows_of(Payments(broken=1.0), 2_000)
    assert set(lines["reason"]) == {fault.reason for fault in FAULTS}


def test_a_duplicate_repeats_an_earlier_row_exactly() -> None:
    rows = rows_of(Payments(duplicates=0.2, late=0.1, broken=0.1), 5_000)
    assert 0.18 < 1 - rows["id"].n_unique() / rows.height < 0.22
    assert rows.unique("id").height == rows.unique().height
    own = pl.Series([f"p{number:09}" for number in range(5_000)])
    assert (rows["id"] <= own).all()


def test_rows_are_out_of_order_by_no_more_than_disorder() -> None:
    rows = rows_of(Payments(disorder="2 seconds"), 5_000)
    behind = _behind(rows)
    assert behind.min() >= timedelta(0)  # type: ignore[operator]
    assert timedelta(seconds=1.9) < behind.max() <= timedelta(seconds=2)  # type: ignore[operator]


def test_late_rows_are_older_than_disorder_and_no_older_than_delay() -> None:
    behind = _behind(rows_of(Payments(late=0.1, delay="1 minute"), 5_000))
    late = behind.filter(behind > timedelta(seconds=2))
    assert 0.08 < len(late) / 5_000 < 0.12
    assert timedelta(seconds=55) < late.max() <= timedelta(minutes=1)  # type: ignore[operator]


def test_idle_gateways_fall_silent() -> None:
    rows = rows_of(Payments(gateways=3, idle_gateways=2, silent_after=1_000), 2_000)
    assert rows[:1_000]["gateway"].n_unique() == 3
    assert rows[1_000:]["gateway"].unique().to_list() == ["gateway-0"]


def test_a_time_far_ahead_is_part_of_the_truth() -> None:
    rows = rows_of(Payments(future=0.1), 2_000)
    assert set(rows["reason"].drop_nulls()) == {"EVENT_TIME_IN_FUTURE"}
    assert 0.07 < rows["reason"].count() / 2_000 < 0.13


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        ({"late": 1.5}, "PAYMENTS_SHARES"),
        ({"late": 0.6, "broken": 0.6}, "PAYMENTS_SHARES"),
        ({"duplicates": 0.9}, "PAYMENTS_SHARES"),
        ({"idle_gateways": 3}, "PAYMENTS_COUNTS"),
        ({"accounts": 0}, "PAYMENTS_COUNTS"),
        ({"disorder": "soon"}, "DURATION_UNREADABLE"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(arguments: dict[str, float], id: str) -> None:
    with pytest.raises(DefinitionError) as error:
        Payments(**arguments)  # type: ignore[arg-type]
    assert error.value.id == id


def _behind(rows: pl.DataFrame) -> pl.Series:
    nominal = pl.Series(np.arange(rows.height) * 10_000).cast(pl.Duration("us")) + START
    return nominal - rows["at"]
