"""ISO 8601 text to times: exact about what a time is, and several times faster than a general parser."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

# Date, optional time with optional seconds and fraction, optional zone. Years have four digits.
_DATE = r"(\d{4}-\d\d-\d\d)"
_TIME = r"(?:[T ](\d\d:\d\d)(:[0-5]\d)?(\.\d{1,9})?)?"
_ZONE = r"(Z|[+-]\d\d(?::?\d\d)?)?"
_ANY_TIME = f"^{_DATE}{_TIME}{_ZONE}$"
_SECONDS_LENGTH = len("2026-01-02T03:04:05")
_DIGITS = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]


def parse_dates(text: pl.Series) -> pl.Series:
    """Dates of ``YYYY-MM-DD`` texts; null where the text is something else.

    >>> parse_dates(pl.Series(["2026-02-28", "2026-02-30", "26-2-1"])).is_null().to_list()
    [False, True, True]
    """
    exact = text.to_frame("text").select(pl.when(pl.col("text").str.contains(f"^{_DATE}$")).then(pl.col("text")))
    return exact.to_series().str.to_date("%Y-%m-%d", strict=False)


def parse_timestamps(text: pl.Series, *, zoned: bool) -> pl.Series:
    """Times in UTC, or local times without a zone; null where the text is not one.

    A zoned column takes text without a zone as UTC; a column without a zone refuses text that names one.

    >>> times = parse_timestamps(pl.Series(["2026-01-02 03:04:05+01:00", "yesterday"]), zoned=True)
    >>> [None if time is None else time.isoformat() for time in times]
    ['2026-01-02T02:04:05+00:00', None]
    """
    lengths = text.str.len_bytes().fill_null(0).to_numpy()
    shapes = [int(length) for length in np.unique(lengths) if _SECONDS_LENGTH <= length <= _SECONDS_LENGTH + 11]
    moments = np.full(len(text), np.datetime64("NaT"), dtype="datetime64[us]")
    for length in shapes:
        chosen = np.flatnonzero(lengths == length)
        same_length = text if len(chosen) == len(text) else text.gather(chosen)
        moments[chosen] = _uniform(_matrix(same_length, length), zoned=zoned)
    times = pl.Series(text.name, moments, dtype=pl.Datetime("us"))
    times = times.dt.replace_time_zone("UTC") if zoned else times
    unsure = np.isnat(moments) & text.is_not_null().to_numpy()
    if not unsure.any():
        return times
    rows = np.flatnonzero(unsure)
    return times.scatter(rows, _general(text.gather(rows), zoned=zoned))


def _matrix(text: pl.Series, length: int) -> npt.NDArray[np.uint8]:
    """Texts of one length as rows of characters."""
    array = text.to_arrow().cast(pa.large_string())
    combined = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    offsets, characters = (memoryview(buffer) for buffer in combined.buffers()[1:] if buffer is not None)
    first = int(np.frombuffer(offsets, dtype=np.int64)[combined.offset])
    everything: npt.NDArray[np.uint8] = np.frombuffer(characters, dtype=np.uint8)
    return everything[first : first + len(text) * length].reshape(len(text), length)


def _uniform(rows: npt.NDArray[np.uint8], *, zoned: bool) -> npt.NDArray[np.datetime64]:
    """Texts of one length read by column; NaT for a row that does not look like the first one."""
    columns = np.ascontiguousarray(rows.T)
    length = len(columns)
    named_zone = zoned and columns[-1, 0] == ord("Z")
    fraction = range(_SECONDS_LENGTH + 1, length - named_zone)
    fits = (columns[4] == ord("-")) & (columns[7] == ord("-")) & (columns[13] == ord(":")) & (columns[16] == ord(":"))
    fits &= (columns[10] == ord("T")) | (columns[10] == ord(" "))
    if named_zone:
        fits &= columns[-1] == ord("Z")
    if length - named_zone > _SECONDS_LENGTH:
        fits &= (columns[_SECONDS_LENGTH] == ord(".")) & (len(fraction) > 0) & (len(fraction) <= 9)
    digits = columns - np.uint8(ord("0"))
    for index in (*_DIGITS, *fraction):
        fits &= digits[index] <= 9
    micros = _micros(digits, fraction)
    year = digits[0].astype(np.int32) * 1000 + digits[1] * np.int32(100) + digits[2] * np.int32(10) + digits[3]
    month, day, hour, minute, second = (digits[at] * np.uint8(10) + digits[at + 1] for at in (5, 8, 11, 14, 17))
    fits &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour < 24) & (minute < 60) & (second < 60)
    first = ((year - 1970) * 12 + (month.astype(np.int32) - 1)).astype("datetime64[M]")
    date = first.astype("datetime64[D]") + (day.astype(np.int64) - 1)
    fits &= date.astype("datetime64[M]") == first
    seconds = (hour.astype(np.int64) * 60 + minute) * 60 + second
    moments: npt.NDArray[np.datetime64] = date.astype("datetime64[us]") + (seconds * 1_000_000 + micros)
    moments[~fits] = np.datetime64("NaT")
    return moments


def _micros(digits: npt.NDArray[np.uint8], fraction: range) -> npt.NDArray[np.int64]:
    micros = np.zeros(digits.shape[1], dtype=np.int32)
    for place, index in enumerate(fraction[:6]):
        micros += digits[index] * np.int32(10 ** (5 - place))
    return micros.astype(np.int64)


def _general(text: pl.Series, *, zoned: bool) -> pl.Series:
    parts = text.rename("text").to_frame().select(pl.col("text").str.extract_groups(_ANY_TIME)).unnest("text")
    day, clock, seconds, fraction, zone = (pl.col(name) for name in parts.columns)
    whole = (
        day
        + "T"
        + clock.fill_null("00:00")
        + seconds.fill_null(":00")
        + pl.when(seconds.is_not_null()).then(fraction.fill_null("")).when(fraction.is_null()).then(pl.lit(""))
    )
    if not zoned:
        times = parts.select(pl.when(zone.is_null()).then(whole)).to_series()
        return times.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    known = pl.when(clock.is_not_null() | zone.is_null()).then(zone.fill_null("Z"))
    times = parts.select(whole + known).to_series()
    return times.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="us", time_zone="UTC", strict=False)
