"""The stories of each detector: cases, and near misses at the very edge of its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import degrees
from typing import Any

from headrace import detectors
from headrace.demo.detection.plot import MICROSECOND, Plot, Story
from headrace.detectors.impossible_travel import EARTH_KILOMETRES

MINUTE = timedelta(minutes=1)
FALSE, TRUE = {"succeeded": False}, {"succeeded": True}


@dataclass(frozen=True, slots=True)
class Detection:
    """A detector with the rows that try it."""

    step: Callable[[], Any]
    schema: str
    plot: Plot


def _at(*rows: tuple[timedelta, dict[str, Any]]) -> Story:
    return lambda chance: rows


def _logins(failures: int, last: timedelta, *, success: bool = True) -> Story:
    """Failures in equal steps, and a success at ``last``."""
    step = last / (failures + 1)
    rows = [(step * number, FALSE) for number in range(failures)]
    return _at(*rows, *([(last, TRUE)] if success else []))


def _flight(speed: float) -> Story:
    """Two logins on one meridian, half an hour apart, at so many kilometres an hour."""
    north = degrees(speed * 0.5 / EARTH_KILOMETRES)
    return _at(
        (timedelta(0), {"latitude": 1.5, "longitude": 7.25}),
        (30 * MINUTE, {"latitude": 1.5 + north, "longitude": 7.25}),
    )


def _payments(last: timedelta, *amounts: float) -> Story:
    """Payments in equal steps, the last at ``last``."""
    times = [last / (len(amounts) - 1) * number for number in range(len(amounts) - 1)]
    return _at(*((at, {"amount": amount}) for at, amount in zip((*times, last), amounts, strict=True)))


def _beats(*, silence: timedelta | None) -> Story:
    """A heartbeat every minute for three hours, but for one silence."""
    before = [MINUTE * number for number in range(60)]
    resumed = before[-1] + (MINUTE if silence is None else silence)
    after = [resumed + MINUTE * number for number in range((180 * MINUTE - resumed) // MINUTE)]
    return _at(*((at, {"beat": 1}) for at in (*before, *after)))


def _temperatures(*values: tuple[timedelta, float]) -> Story:
    return _at(*((at, {"celsius": value}) for at, value in values))


def _statuses(first: timedelta, second: timedelta, *, order: str = "ordered paid sent") -> Story:
    times = (timedelta(0), first, first + second)
    return _at(*((at, {"status": status}) for at, status in zip(times, order.split(), strict=True)))


DETECTIONS: dict[str, Detection] = {
    "failed-logins": Detection(
        lambda: detectors.failed_logins("detected", key="user"),
        "user STRING, at TIMESTAMP, succeeded BOOLEAN",
        Plot(
            "user",
            {
                "five failures": _logins(5, 9 * MINUTE),
                "nine failures": _logins(9, 5 * MINUTE),
                "five in time": _logins(5, 10 * MINUTE - MICROSECOND),
            },
            {
                "four failures": _logins(4, 9 * MINUTE),
                "five too slow": _logins(5, 10 * MINUTE),
                "no success": _logins(7, 9 * MINUTE, success=False),
                "success between": _at(
                    *((MINUTE * number, FALSE if number not in (3, 7) else TRUE) for number in range(8))
                ),
            },
        ),
    ),
    "impossible-travel": Detection(
        lambda: detectors.impossible_travel("detected", key="user"),
        "user STRING, at TIMESTAMP, latitude DOUBLE, longitude DOUBLE",
        Plot(
            "user",
            {"901 km an hour": _flight(901.0), "9000 km an hour": _flight(9000.0)},
            {"899 km an hour": _flight(899.0), "at home": _flight(0.0)},
        ),
    ),
    "card-testing": Detection(
        lambda: detectors.card_testing("detected", key="card"),
        "card STRING, at TIMESTAMP, amount DOUBLE",
        Plot(
            "card",
            {
                "three probes": _payments(9 * MINUTE, 1.0, 1.5, 0.5, 10.01),
                "purchase between": _payments(9 * MINUTE, 1.0, 1.0, 5.0, 1.0, 250.0),
                "strike in time": _payments(10 * MINUTE - MICROSECOND, 1.0, 1.0, 1.0, 500.0),
            },
            {
                "two probes": _payments(9 * MINUTE, 1.0, 1.5, 500.0),
                "ten times": _payments(9 * MINUTE, 1.0, 1.5, 0.5, 10.0),
                "strike too late": _payments(10 * MINUTE, 1.0, 1.0, 1.0, 500.0),
                "no strike": _payments(9 * MINUTE, 1.0, 1.0, 1.0, 1.0, 1.0),
            },
        ),
    ),
    "missing-heartbeat": Detection(
        lambda: detectors.missing_heartbeat("detected", key="device", gap="5 minutes"),
        "device STRING, at TIMESTAMP, beat INT",
        Plot(
            "device",
            {
                "silent": _beats(silence=60 * MINUTE),
                "gap and a microsecond": _beats(silence=5 * MINUTE + MICROSECOND),
            },
            {"always there": _beats(silence=None), "gap less a microsecond": _beats(silence=5 * MINUTE - MICROSECOND)},
            spread=timedelta(0),
        ),
    ),
    "threshold-held": Detection(
        lambda: detectors.threshold_held("detected", key="device", value="celsius", above=80.0, held="10 minutes"),
        "device STRING, at TIMESTAMP, celsius DOUBLE",
        Plot(
            "device",
            {
                "ten minutes": _temperatures((0 * MINUTE, 80.1), (4 * MINUTE, 99.0), (10 * MINUTE, 20.0)),
                "no end": _temperatures((0 * MINUTE, 70.0), (1 * MINUTE, 90.0), (12 * MINUTE, 90.0)),
            },
            {
                "a microsecond less": _temperatures((0 * MINUTE, 80.1), (10 * MINUTE - MICROSECOND, 20.0)),
                "at the limit": _temperatures((0 * MINUTE, 80.0), (20 * MINUTE, 80.0)),
                "a moment below": _temperatures(
                    (0 * MINUTE, 90.0), (6 * MINUTE, 80.0), (7 * MINUTE, 90.0), (15 * MINUTE, 70.0)
                ),
            },
        ),
    ),
    "sequence": Detection(
        lambda: detectors.sequence(
            "detected",
            key="order_id",
            steps={"ordered": "status = 'ordered'", "paid": "status = 'paid'", "sent": "status = 'sent'"},
            gap="1 hour",
            within="3 hours",
        ),
        "order_id STRING, at TIMESTAMP, status STRING",
        Plot(
            "order_id",
            {
                "in order": _statuses(30 * MINUTE, 20 * MINUTE),
                "gap less a microsecond": _statuses(60 * MINUTE - MICROSECOND, 60 * MINUTE - MICROSECOND),
            },
            {
                "gap": _statuses(60 * MINUTE, 5 * MINUTE),
                "gap and a microsecond": _statuses(5 * MINUTE, 60 * MINUTE + MICROSECOND),
                "other order": _statuses(5 * MINUTE, 5 * MINUTE, order="paid ordered sent"),
            },
        ),
    ),
}
