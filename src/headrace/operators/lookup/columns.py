"""The columns that a service's address or key names."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from headrace.errors import DefinitionError
from headrace.template import Template


def check_named(template: Template, keys: Mapping[str, pl.DataType], *, step: str) -> None:
    """A template names all columns of the key, and no others: rows of one key are asked for once."""
    template.check(keys)
    missing = [name for name in keys if name not in template.columns]
    if missing:
        raise DefinitionError(
            "KEY_NOT_ASKED",
            f"step {step!r}: {str(template)!r} does not name {missing[0]!r}, a column of on=, so rows that differ "
            "in it would get the same answer. Name it, or leave it out of on=.",
        )
