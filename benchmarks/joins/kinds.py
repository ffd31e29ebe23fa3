"""The joins that are measured against other systems, in words that all of them understand."""

from __future__ import annotations

INTERVAL, TEMPORAL = "interval", "temporal"
CHEAP, DEAR = "price < 20000", "price > 980000"
"""Two kinds of bids, a fiftieth of all each: a cheap one meets the dear ones of its bidder in the next ten seconds."""
SECONDS = 10
