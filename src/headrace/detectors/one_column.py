"""The key of a detector whose rows carry it in a column of a declared type."""

from __future__ import annotations

from typing import Any

from headrace.errors import DefinitionError


def check_one_column(step: str, key: Any) -> None:
    """Refuse a key that is not the name of one column."""
    if not isinstance(key, str):
        raise DefinitionError(
            "KEY_NOT_ONE",
            f"step {step!r}: key={key!r}, but this detector says the key in one column. Name one, as in key='device'; "
            "several can be made one before, as in withColumn('place', concat_ws('/', 'room', 'device')).",
        )
