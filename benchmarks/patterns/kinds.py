"""The patterns that are measured: which prices are an A, a B or a C."""

from __future__ import annotations

from collections.abc import Mapping

Prices = Mapping[str, str]
"""A condition over ``price`` for each step, in words that both systems understand."""

KINDS: Mapping[str, Prices] = {
    # A tenth of the rows each; seven tenths meet no condition.
    "selective": {
        "a": "price < 100000",
        "b": "price >= 100000 AND price < 200000",
        "c": "price >= 200000 AND price < 300000",
    },
    # Every row meets one.
    "dense": {
        "a": "price < 333333",
        "b": "price >= 333333 AND price < 666666",
        "c": "price >= 666666",
    },
}
