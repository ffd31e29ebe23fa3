"""approx_count_distinct keeps the error that it states, and depends on the set of values alone."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.expressions import parse_aggregate
from headrace.expressions.aggregates.hyperloglog import HyperLogLog

TIME = pl.lit(0, pl.Int64)
SKETCHES = 300


def counted(frame: pl.DataFrame, text: str = "approx_count_distinct(x)") -> pl.DataFrame:
    """The estimate for each group."""
    aggregate = parse_aggregate(text, name="n")
    partials = frame.group_by("g").agg(**aggregate.partial(frame.schema, TIME))
    return partials.select("g", aggregate.result(frame.schema))


def error_of(values: pl.Series, different: int, text: str) -> tuple[float, float]:
    """The standard error and the bias, relative, over many sketches of so many different values each."""
    frame = pl.DataFrame({"g": np.arange(len(values)) // different, "x": values})
    off = counted(frame, text)["n"].to_numpy() / different - 1
    return float(np.sqrt((off**2).mean())), float(off.mean())


@pytest.mark.parametrize("different", [10, 100, 1_000, 3_000, 10_000])
def test_the_standard_error_is_below_two_per_cent_without_bias(different: int) -> None:
    error, bias = error_of(pl.Series(np.arange(SKETCHES * different)), different, "approx_count_distinct(x)")
    assert error < 0.02
    # A mean of so many has a standard error of its own: four times that is hardly ever passed by chance.
    assert abs(bias) < 4 * 0.02 / math.sqrt(SKETCHES)


@pytest.mark.parametrize("stated", [0.25, 0.05, 0.005])
@pytest.mark.parametrize("different", [100, 2_000])
def test_the_error_is_that_which_the_author_asks_for(stated: float, different: int) -> None:
    values = pl.Series(np.arange(SKETCHES * different))
    error, _ = error_of(values, different, f"approx_count_distinct(x, {stated})")
    assert error < stated


def test_strings_keep_the_error_too() -> None:
    different = 1_000
    values = pl.Series([f"user-{number}" for number in range(SKETCHES * different)])
    error, bias = error_of(values, different, "approx_count_distinct(x)")
    assert error < 0.02
    assert abs(bias) < 4 * 0.02 / math.sqrt(SKETCHES)


def test_few_values_are_counted_almost_exactly_and_none_as_none() -> None:
    frame = pl.DataFrame({"g": [0, 0, 0, 1, 1, 2], "x": ["a", "b", "a", "c", None, None]})
    assert counted(frame).sort("g")["n"].to_list() == [2, 1, 0]


def test_equal_floats_are_counted_once() -> None:
    frame = pl.DataFrame({"g": 0, "x": [0.0, -0.0, math.nan, -math.nan, 1.0]})
    assert counted(frame)["n"].item() == 3


sketches = HyperLogLog.within(0.02)


def sketch_of(values: np.ndarray) -> bytes:
    entries = sketches.entries(pl.Series(values, dtype=pl.Int64))
    return bytes(sketches.sketch(entries.implode())[0])


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 50, 1_100, 1_600, 20_000]), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_merged_sketches_are_the_sketch_of_all_values_byte_for_byte(sizes: list[int], seed: int) -> None:
    chance = np.random.default_rng(seed)
    parts = [chance.integers(0, 30_000, size) for size in sizes]
    other = [chance.integers(0, 30_000, 900) for _ in range(2)]
    merged = sketches.merge(pl.Series([[sketch_of(part) for part in parts], [], [sketch_of(part) for part in other]]))
    assert merged.to_list() == [sketch_of(np.concatenate(parts)), b"", sketch_of(np.concatenate(other))]


def test_a_sketch_takes_four_bytes_a_value_and_never_more_than_one_a_register() -> None:
    assert len(sketch_of(np.arange(10))) == 40
    assert len(sketch_of(np.arange(1_000_000))) == 4096


def plain_estimate(registers: list[int], highest: int) -> float:
    """Ertl's estimate as the paper writes it, one number at a time."""
    size = len(registers)
    share, power, factor = registers.count(0) / size, registers.count(0) / size, 1.0
    empty = share
    for _ in range(60):
        power, factor, empty = power**2, factor * 2, empty + power**2 * factor
    root, half, full = 1 - registers.count(highest) / size, 1.0, registers.count(highest) / size
    for _ in range(200):
        root, half = math.sqrt(root), half / 2
        full -= (1 - root) ** 2 * half
    total = size * (full / 3 if 0 < registers.count(highest) < size else 0.0)
    for rank in range(highest - 1, 0, -1):
        total = (total + registers.count(rank)) / 2
    return size**2 / (2 * math.log(2)) / (total + size * empty)


@settings(deadline=None, max_examples=60)
@given(
    filled=st.integers(1, 4096) | st.just(4096),
    seed=st.integers(0, 2**32),
    ranks=st.sampled_from([(1, 3), (1, 20), (40, 53)]),
)
def test_the_estimate_is_that_of_the_paper_for_any_ranks(filled: int, seed: int, ranks: tuple[int, int]) -> None:
    chance = np.random.default_rng(seed)
    registers = np.zeros(4096, dtype=np.int64)
    registers[chance.permutation(4096)[:filled]] = chance.integers(*ranks, filled, endpoint=True)
    entries = [(number << 6) | rank for number, rank in enumerate(registers.tolist()) if rank]
    found = sketches.count(sketches.sketch(pl.Series([entries], dtype=pl.List(pl.Int32)))).item()
    assert found == pytest.approx(plain_estimate(registers.tolist(), 53), rel=1e-9, abs=0.51)


def test_a_value_fills_one_register() -> None:
    registers = [0] * 4096
    for entry in sketches.entries(pl.Series(np.arange(5_000))).to_list():
        registers[entry >> 6] = max(registers[entry >> 6], entry & 63)
    assert list(sketch_of(np.arange(5_000))) == registers
    assert max(registers) <= 53
