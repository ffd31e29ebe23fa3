"""The hash of a key, by which its rows find their key group and their state.

The hash is Spark's own ``xxhash64``, computed over whole frames: the hash so far is the seed of the next column and a
null leaves it unchanged, so the same number comes out of ``SELECT xxhash64(a, b)``. The encoding of each type is
written down in docs/design/2026-11-15-key-encoding.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.errors import DefinitionError

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
_Word = TypeVar("_Word", bound=np.generic)

_SEED = np.uint64(42)
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
# The starting lanes of a stripe are the seed plus these; the sums wrap at 64 bits.
_LANES = np.array([0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579], dtype=np.uint64)
_LARGEST_LONG_DECIMAL = 18
# Rows hashed together: small enough for the temporary arrays to stay in the processor's cache.
_BLOCK = 1 << 15


def hashes_of(frame: pl.DataFrame, key: Sequence[str]) -> Words:
    """The 64-bit hash of every row's key: Spark's ``xxhash64`` of the same columns, without a sign.

    >>> hashes_of(pl.DataFrame({"account": ["a", None]}), ["account"]).view(np.int64).tolist()
    [-8582455328737087284, 42]
    """
    hashes = np.full(frame.height, _SEED, dtype=np.uint64)
    for name in key:
        _fold(hashes, frame.get_column(name))
    return hashes


def canonical(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """The frame with equal float keys made identical: -0.0 becomes 0.0 and every NaN the one NaN.

    >>> canonical(pl.DataFrame({"level": [-0.0]}), ["level"])["level"].to_list()
    [0.0]
    """
    floats = [name for name in dict.fromkeys(key) if frame.schema[name].is_float()]
    if not floats:
        return frame
    return frame.with_columns(canonical_value(pl.col(name), frame.schema[name]).alias(name) for name in floats)


def canonical_value(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A value with one zero and one NaN, so that equal floats have the same bits.

    >>> pl.select(canonical_value(pl.lit(-0.0), pl.Float64())).item()
    0.0
    """
    if not dtype.is_float():
        return value
    # Adding 0.0 would turn -0.0 into 0.0 too, but Polars returns the column unchanged when the other side is zero.
    zero, nan = pl.lit(0.0, dtype=dtype), pl.lit(float("nan"), dtype=dtype)
    return pl.when(value == 0.0).then(zero).when(value.is_nan()).then(nan).otherwise(value)


def _fold(hashes: Words, column: pl.Series) -> None:
    """Replace each hash by the hash of the column's value seeded with it."""
    dtype = column.dtype
    seeds = hashes.copy() if column.null_count() else None
    if dtype in (pl.String, pl.Binary):
        _fold_text(hashes, column)
    elif isinstance(dtype, pl.Decimal) and dtype.precision > _LARGEST_LONG_DECIMAL:
        _fold_large_decimals(hashes, column)
    else:
        words, width = _words(column)
        mix = _mix_long if width == 8 else _mix_int
        for start in range(0, len(hashes), _BLOCK):
            block = slice(start, start + _BLOCK)
            hashes[block] = _avalanche(mix(hashes[block] + _PRIME_5 + np.uint64(width), words[block]))
    if seeds is not None:
        np.copyto(hashes, seeds, where=column.is_null().to_numpy())


def _words(column: pl.Series) -> tuple[npt.NDArray[np.unsignedinteger], int]:
    """A fixed-width column as unsigned words, and the number of bytes Spark hashes for each."""
    dtype = column.dtype
    if isinstance(dtype, pl.Decimal):
        return _unscaled(column)[:, 0], 8
    if dtype in (pl.Float32, pl.Float64):
        values = column.fill_null(0.0).to_numpy().copy()
        values[np.isnan(values)] = np.nan
        values += 0.0  # -0.0 becomes 0.0
        width = values.dtype.itemsize
        return values.view(np.uint32 if width == 4 else np.uint64), width
    if dtype in (pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Date):
        return column.to_physical().cast(pl.Int32).fill_null(0).to_numpy().view(np.uint32), 4
    if isinstance(dtype, pl.Datetime | pl.Duration):
        column = column.dt.cast_time_unit("us")
    elif dtype != pl.Int64:
        raise DefinitionError(
            "KEY_TYPE",
            f"key column '{column.name}' is {dtype}, which has no key encoding. Use a boolean, number, date, "
            "timestamp, string or binary column.",
        )
    return column.to_physical().fill_null(0).to_numpy().view(np.uint64), 8


def _unscaled(column: pl.Series) -> Words:
    """The unscaled values of a decimal column as pairs of words, the low one first; nulls are zero."""
    array = column.fill_null(0).to_arrow()
    words: Words = _view(array.buffers()[1], np.uint64).reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def _view(buffer: pa.Buffer | None, word: type[_Word]) -> npt.NDArray[_Word]:
    return np.empty(0, dtype=word) if buffer is None else np.frombuffer(memoryview(buffer), dtype=word)


def _fold_large_decimals(hashes: Words, column: pl.Series) -> None:
    """Decimals of more than 18 digits are hashed as the shortest big-endian two's complement bytes."""
    words = _unscaled(column)
    sign = words[:, 1].view(np.int64) >> 63
    magnitude = words ^ sign.view(np.uint64)[:, None]
    # One bit more than the magnitude is needed, for the sign.
    shifted = np.empty((len(words), 2), dtype=">u8")
    shifted[:, 0] = (magnitude[:, 1] << np.uint64(1)) | (magnitude[:, 0] >> np.uint64(63))
    shifted[:, 1] = magnitude[:, 0] << np.uint64(1)
    used = shifted.view(np.uint8).reshape(-1, 16) != 0
    lengths = np.where(used.any(axis=1), 16 - used.argmax(axis=1), 1).astype(np.int64)
    data = np.zeros(16 * len(words) + 8, dtype=np.uint8)
    data[: 16 * len(words)] = words[:, ::-1].astype(">u8").view(np.uint8).reshape(-1)
    starts = 16 * np.arange(1, len(words) + 1, dtype=np.int64) - lengths
    _fold_bytes(hashes, data, starts, lengths)


def _fold_text(hashes: Words, column: pl.Series) -> None:
    array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offset_buffer, data_buffer = array.buffers()
    offsets = _view(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if len(array) == 0:
        return
    first, last = int(offsets[0]), int(offsets[-1])
    # Eight bytes of padding let the last bytes be read as a whole word.
    data = np.zeros(last - first + 8, dtype=np.uint8)
    data[:-8] = _view(data_buffer, np.uint8)[first:last]
    _fold_bytes(hashes, data, offsets[:-1] - first, np.diff(offsets))


def _fold_bytes(hashes: Words, data: npt.NDArray[np.uint8], starts: Positions, lengths: Positions) -> None:
    # Words are read in place at any byte: no padding per row, so one huge key costs only its own bytes.
    words: Words = np.ndarray(len(data) - 7, dtype="<u8", buffer=data, strides=(1,))
    for start in range(0, len(hashes), _BLOCK):
        block = slice(start, start + _BLOCK)
        _fold_block(hashes[block], words, starts[block].copy(), lengths[block])


def _fold_block(hashes: Words, words: Words, position: Positions, lengths: Positions) -> None:
    """XXH64 of one block of byte strings, walking all of them together; ``position`` is advanced."""
    seeds = hashes.copy()
    hashes += _PRIME_5
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        hashes[long] = _stripes(seeds[long], words, position, lengths, long)
    hashes += lengths.view(np.uint64)
    rest = lengths & 31
    for lane in range(1, 4):
        for rows in _rows_where(rest >= 8 * lane):
            hashes[rows] = _mix_long(hashes[rows], words[position[rows]])
            position[rows] += 8
    for rows in _rows_where((lengths & 4) != 0):
        hashes[rows] = _mix_int(hashes[rows], words[position[rows]] & np.uint64(0xFFFFFFFF))
        position[rows] += 4
    for byte in range(1, 4):
        for rows in _rows_where((lengths & 3) >= byte):
            mixed = hashes[rows] ^ ((words[position[rows]] & np.uint64(0xFF)) * _PRIME_5)
            hashes[rows] = _rotate(mixed, 11) * _PRIME_1
            position[rows] += 1
    hashes[:] = _avalanche(hashes)


def _rows_where(mask: npt.NDArray[np.bool_]) -> list[slice | Positions]:
    """The chosen rows, as a slice when that is all of them and as nothing when it is none."""
    chosen = np.flatnonzero(mask)
    if len(chosen) == len(mask):
        return [slice(None)]
    return [chosen] if len(chosen) else []


def _stripes(seeds: Words, words: Words, position: Positions, lengths: Positions, rows: Positions) -> Words:
    """Fold all whole 32-byte stripes of the given rows; rows leave as they run out of stripes."""
    lanes = seeds[:, None] + _LANES
    steps = np.array([0, 8, 16, 24])
    active, left = np.arange(len(rows)), lengths[rows] >> 5
    while len(active):
        here = rows[active]
        lanes[active] = _round(lanes[active], words[position[here][:, None] + steps])
        position[here] += 32
        left[active] -= 1
        active = active[left[active] > 0]
    folded = _rotate(lanes[:, 0], 1) + _rotate(lanes[:, 1], 7) + _rotate(lanes[:, 2], 12) + _rotate(lanes[:, 3], 18)
    for lane in range(4):
        folded = (folded ^ _round(np.zeros_like(folded), lanes[:, lane])) * _PRIME_1 + _PRIME_4
    return folded


def _round(lane: Words, word: Words) -> Words:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


def _mix_long(hashes: Words, words: npt.NDArray[np.unsignedinteger]) -> Words:
    return _rotate(hashes ^ (_rotate(words * _PRIME_2, 31) * _PRIME_1), 27) * _PRIME_1 + _PRIME_4


def _mix_int(hashes: Words, words: npt.NDArray[np.unsignedinteger]) -> Words:
    return _rotate(hashes ^ (words * _PRIME_1), 23) * _PRIME_2 + _PRIME_3


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _avalanche(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    return hashes ^ (hashes >> np.uint64(32))
