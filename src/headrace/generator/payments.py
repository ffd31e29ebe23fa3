"""Seeded payments with every kind of trouble a stream can have, and the truth about each row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from headrace.durations import Duration, microseconds
from headrace.errors import DefinitionError
from headrace.event_time.strategy import EPOCH
from headrace.stability import experimental

Integers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

_YEAR = 365 * 86_400_000_000
_FARTHEST_REPEAT = 500
_CHUNK_ROWS = 200_000
ID_IN_RAW = r"p[0-9]{9,}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break a good line that keeps the payment's id readable."""

    name: str
    reason: str
    broken: Callable[[str], bytes]


def _replaced(column: str, value: str) -> Callable[[str], bytes]:
    return lambda line: re.sub(f'"{column}": ("[^"]*"|[0-9.]+)', f'"{column}": {value}', line).encode()


def _as_log_line(line: str) -> bytes:
    payment = json.loads(line)
    return f"payment {payment['id']} of {payment['account']} declined by {payment['gateway']}".encode()


FAULTS: tuple[Fault, ...] = (
    Fault("truncated", "NOT_JSON", lambda line: line[: len(line) * 2 // 3].encode()),
    Fault("trailing garbage", "NOT_JSON", lambda line: f"{line}}}, null".encode()),
    Fault("unquoted text", "NOT_JSON", _as_log_line),
    Fault("array", "NOT_AN_OBJECT", lambda line: f"[{line}]".encode()),
    Fault("encoded twice", "NOT_AN_OBJECT", lambda line: json.dumps(line).encode()),
    Fault("amount as text", "WRONG_TYPE", _replaced("amount", '"12,50"')),
    Fault("amount as truth value", "WRONG_TYPE", _replaced("amount", "true")),
    Fault("amount as object", "WRONG_TYPE", _replaced("amount", '{"value": 1250, "currency": "EUR"}')),
    Fault("time in words", "BAD_TIMESTAMP", _replaced("at", '"yesterday"')),
    Fault("no time", "NO_EVENT_TIME", lambda line: line[: line.index(', "at"')].encode() + b"}"),
    Fault("not UTF-8", "NOT_UTF8", lambda line: line.encode().replace(b'"shop": "', b'"shop": "Caf\xe9 ')),
    Fault("time far ahead", "EVENT_TIME_IN_FUTURE", _replaced("at", '"2099-12-31T23:59:59.000000Z"')),
)
"""Ways in which a payment's line arrives broken, each with the reason of its dead letter."""


@experimental
@dataclass(frozen=True, slots=True)
class Payments:
    """A stream of payments in which each row depends only on the seed, its index and the stream's start and rate.

    So any split of the indices gives the same rows. ``late``, ``broken`` and ``future`` are shares of rows and exclude
    each other; ``duplicates`` is the share of rows that repeat an earlier one exactly.

    >>> from datetime import UTC
    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> rows = Payments(seed=7).lines(np.arange(2), start=start, rate=10.0)
    >>> rows["id"].to_list()
    ['p000000000', 'p000000001']
    """

    seed: int = 7
    accounts: int = 200
    shops: int = 40
    gateways: int = 3
    disorder: Duration = "2 seconds"
    late: float = 0.0
    delay: Duration = "5 minutes"
    duplicates: float = 0.0
    broken: float = 0.0
    future: float = 0.0
    idle_gateways: int = 0
    silent_after: int = 10_000

    schema: ClassVar[str] = "id STRING, account STRING, shop STRING, gateway STRING, amount DOUBLE, at TIMESTAMP"

    def __post_init__(self) -> None:
        shares = {"late": self.late, "broken": self.broken, "future": self.future, "duplicates": self.duplicates}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise DefinitionError(
                    "PAYMENTS_SHARES", f"{name}={share} must be a share of rows from 0 to 1, as in {name}=0.05."
                )
        microseconds(self.disorder, argument="disorder")
        microseconds(self.delay, argument="delay")
        if self.late + self.broken + self.future > 1:
            raise DefinitionError(
                "PAYMENTS_SHARES",
                f"late={self.late}, broken={self.broken} and future={self.future} may add up to 1 at most.",
            )
        if self.duplicates > 0.5:
            raise DefinitionError("PAYMENTS_SHARES", f"duplicates={self.duplicates} must be at most 0.5.")
        if min(self.accounts, self.shops) < 1 or not 0 <= self.idle_gateways < self.gateways:
            raise DefinitionError(
                "PAYMENTS_COUNTS",
                f"accounts={self.accounts}, shops={self.shops}, gateways={self.gateways}, "
                f"idle_gateways={self.idle_gateways} are too few: there must be one of each, and a gateway that is "
                "not idle.",
            )

    def lines(self, indices: Integers, *, start: datetime, rate: float) -> pl.DataFrame:
        """The rows with these indices, ``rate`` a second from ``start``.

        Columns: ``line`` (bytes without newline), ``id``, ``reason`` (null for a good row), and what a good row says:
        ``account``, ``shop``, ``gateway``, ``amount``, ``at``.
        """
        origins = self._originals(indices.astype(np.int64))
        times = (start - EPOCH) // timedelta(microseconds=1) + (origins * (1_000_000 / rate)).astype(np.int64)
        ends = np.cumsum([self.broken, self.future, self.late])
        kind = np.digitize(self._uniform("kind", origins), ends)
        broken, ahead, late = kind == 0, kind == 1, kind == 2
        rows = self._values(origins, times + self._shift(origins, late=late, ahead=ahead))
        line = rows.select(_line()).to_series().cast(pl.Binary)
        none = pl.Series("reason", [None] * len(indices), dtype=pl.String)
        reason = none.set(pl.Series(ahead), "EVENT_TIME_IN_FUTURE")
        if broken.any():
            line, reason = self._break(line, reason, origins, np.flatnonzero(broken))
        truth = pl.when(reason.is_null()).then(pl.col("account", "shop", "gateway", "amount", "at"))
        return rows.select(line, "id", reason, truth)

    def write(
        self, folder: Path, *, rows: int, files: int, start: datetime, rate: float, truth: Path | None = None
    ) -> Path:
        """Write ``part-00000.json`` and so on in time order; returns the path of the truth file.

        The truth, by default ``truth.parquet`` beside the folder, has every column of ``lines`` but the line itself.
        """
        folder.mkdir(parents=True, exist_ok=True)
        known: list[pl.DataFrame] = []
        for number, indices in enumerate(np.array_split(np.arange(rows, dtype=np.int64), files)):
            with (folder / f"part-{number:05}.json").open("wb") as file:
                for first in range(0, len(indices), _CHUNK_ROWS):
                    chunk = self.lines(indices[first : first + _CHUNK_ROWS], start=start, rate=rate)
                    file.write(b"\n".join(chunk["line"].to_list()) + b"\n")
                    known.append(chunk.drop("line"))
        path = folder.parent / "truth.parquet" if truth is None else truth
        pl.concat(known).write_parquet(path)
        return path

    def _break(
        self, line: pl.Series, reason: pl.Series, indices: Integers, chosen: Integers
    ) -> tuple[pl.Series, pl.Series]:
        faults = [FAULTS[at] for at in (self._uniform("fault", indices[chosen]) * len(FAULTS)).astype(int)]
        lines = line.to_list()
        for at, fault in zip(chosen.tolist(), faults, strict=True):
            lines[at] = fault.broken(lines[at].decode())
        reasons = reason.scatter(chosen, pl.Series([fault.reason for fault in faults]))
        return pl.Series("line", lines, dtype=pl.Binary), reasons

    def _originals(self, indices: Integers) -> Integers:
        """The index of each row, or of the earlier row that it repeats, which is never a repeat itself."""
        originals = indices.copy()
        repeats = self._repeats(indices)
        span = np.minimum(indices, _FARTHEST_REPEAT)
        back = 1 + (self._uniform("distance", indices) * span).astype(np.int64)
        originals[repeats] -= back[repeats]
        while (again := self._repeats(originals)).any():
            originals[again] -= 1
        return originals

    def _repeats(self, indices: Integers) -> npt.NDArray[np.bool_]:
        return (self._uniform("repeat", indices) < self.duplicates) & (indices > 0)

    def _shift(self, indices: Integers, *, late: npt.NDArray[np.bool_], ahead: npt.NDArray[np.bool_]) -> Integers:
        """The distance between each row's event time and its place in the stream."""
        disorder = microseconds(self.disorder, argument="disorder")
        delay = max(microseconds(self.delay, argument="delay"), disorder)
        share = self._uniform("shift", indices)
        behind = np.where(late, disorder + share * (delay - disorder), share * disorder)
        return np.where(ahead, _YEAR * (2 + 8 * share), -behind).astype(np.int64)

    def _values(self, indices: Integers, times: Integers) -> pl.DataFrame:
        active = np.where(indices >= self.silent_after, self.gateways - self.idle_gateways, self.gateways)
        # Powers of a uniform number: few accounts and shops pay often, and most amounts are small.
        account = (self._uniform("account", indices) ** 2 * self.accounts).astype(np.int64)
        shop = (self._uniform("shop", indices) ** 2 * self.shops).astype(np.int64)
        gateway = (self._uniform("gateway", indices) * active).astype(np.int64)
        share = self._uniform("amount", indices)
        cents = 150 + (share * 1_500 + share * share * share * share * 50_000).astype(np.int64)
        return pl.DataFrame(
            {
                "id": "p" + pl.Series(indices).cast(pl.String).str.zfill(9),
                "account": _names("account", self.accounts).gather(account),
                "shop": _names("shop", self.shops).gather(shop),
                "gateway": _names("gateway", self.gateways).gather(gateway),
                "amount": cents / 100,
                "at": pl.Series(times).cast(pl.Datetime("us", "UTC")),
                "cents": cents,
            }
        )

    def _uniform(self, purpose: str, indices: Integers) -> Shares:
        """A number in [0, 1) for each index, independent between purposes: a hash of the index."""
        stream = np.uint64(int.from_bytes(purpose.encode()[:8].ljust(8), "big"))
        offset = _mixed(np.array([self.seed], dtype=np.int64).astype(np.uint64) ^ _mixed(np.array([stream])))
        hashed = _mixed(indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + offset)
        return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finishing steps of splitmix64: every input bit changes half of the output bits."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _names(kind: str, count: int) -> pl.Series:
    return pl.Series([f"{kind}-{number:0{len(str(count - 1))}}" for number in range(count)])


def _line() -> pl.Expr:
    text = '{{"id": "{}", "account": "{}", "shop": "{}", "gateway": "{}", "amount": {}.{}, "at": "{}"}}'
    euros, cents = pl.col("cents") // 100, (pl.col("cents") % 100).cast(pl.String).str.zfill(2)
    at = pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return pl.format(text, "id", "account", "shop", "gateway", euros, cents, at).alias("line")
