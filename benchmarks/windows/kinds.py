"""The windows that are measured, in the words of each system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

import headrace as hr

DELAY = "4 seconds"
"""How far the watermark trails."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Windows of ten seconds: count, sum and maximum of prices by a key."""

    key: str
    ours: Callable[[], Any]
    spark: Callable[[], Column]
    flink: str
    """The table function over ``bids``."""


KINDS: Mapping[str, Kind] = {
    "tumbling": Kind(
        "auction",
        lambda: hr.tumbling("windows", size="10 seconds", key="auction"),
        lambda: F.window("ts", "10 seconds"),
        "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    ),
    "hopping": Kind(
        "auction",
        lambda: hr.hopping("windows", size="10 seconds", every="2 seconds", key="auction"),
        lambda: F.window("ts", "10 seconds", "2 seconds"),
        "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
    ),
    "session": Kind(
        "bidder",
        lambda: hr.session("windows", gap="10 seconds", key="bidder"),
        lambda: F.session_window("ts", "10 seconds"),
        "SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    ),
}
