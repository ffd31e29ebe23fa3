"""The hash that sketches are made of is the same for ever: state holds what it gave."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.expressions.aggregates.stable_hash import stable_hash

WORD = 2**64
quietly = settings(deadline=None, max_examples=50)


def mixed(word: int) -> int:
    """SplitMix64 of one word, in plain Python."""
    word = (word + 0x9E3779B97F4A7C15) % WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def of_bytes(value: bytes) -> int:
    """Words of eight bytes, each mixed with its place, added, and mixed with the length."""
    words = [int.from_bytes(value[start : start + 8], "little") for start in range(0, max(len(value), 1), 8)]
    return mixed(sum(mixed(word ^ mixed(place)) for place, word in enumerate(words)) % WORD ^ len(value))


@quietly
@given(st.lists(st.binary(max_size=40) | st.binary(min_size=8, max_size=8)))
def test_bytes_are_hashed_as_in_plain_python(values: list[bytes]) -> None:
    assert stable_hash(pl.Series(values, dtype=pl.Binary)).tolist() == [of_bytes(value) for value in values]


@quietly
@given(st.lists(st.text(max_size=12)), st.integers(0, 5))
def test_strings_are_hashed_as_their_bytes_also_in_a_slice(values: list[str], start: int) -> None:
    column = pl.Series(values, dtype=pl.String)[start:]
    assert stable_hash(column).tolist() == [of_bytes(value.encode()) for value in values[start:]]


@quietly
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_hashed_as_words(values: list[int]) -> None:
    assert stable_hash(pl.Series(values, dtype=pl.Int64)).tolist() == [mixed(value % WORD) for value in values]


@quietly
@given(st.lists(st.floats(allow_nan=False)))
def test_floats_are_hashed_as_their_bits(values: list[float]) -> None:
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for value in values]
    assert stable_hash(pl.Series(values, dtype=pl.Float64)).tolist() == [mixed(word) for word in bits]


@quietly
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1)), st.integers(0, 3))
def test_decimals_are_hashed_as_two_words(values: list[int], start: int) -> None:
    column = pl.Series([Decimal(value) for value in values], dtype=pl.Decimal(38, 0))[start:]
    expected = [mixed(mixed(value % WORD) ^ (value // WORD % WORD)) for value in values[start:]]
    assert stable_hash(column).tolist() == expected


@pytest.mark.parametrize(
    ("values", "dtype", "hashes"),
    [
        (["a", ""], pl.String(), [10443419574614846231, 2558736989570252433]),
        ([0, -1], pl.Int8(), [16294208416658607535, 16490336266968443936]),
        ([True, False], pl.Boolean(), [10451216379200822465, 16294208416658607535]),
        ([1.5, float("nan")], pl.Float64(), [15481881892811333770, 14351126860892846918]),
        ([Decimal("1.50")], pl.Decimal(38, 2), [9645384392556871996]),
    ],
)
def test_hashes_never_change(values: list[Any], dtype: pl.DataType, hashes: list[int]) -> None:
    assert stable_hash(pl.Series(values, dtype=dtype)).tolist() == hashes
