"""Answers of a service as the declared columns hold them; what does not fit is a failure of its key alone."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any
from uuid import UUID

import polars as pl

from headrace.operators.lookup.service import Answer, LookupFailure
from headrace.operators.process.fitting import Fit, fitting

Values = tuple[Any, ...]
"""The values of one key in the order of the declared columns."""
Outcome = Values | LookupFailure


def reading(columns: Mapping[str, pl.DataType], *, in_text: bool) -> Callable[[Answer], Outcome]:
    """How an answer becomes the values of the declared columns; a column that it does not have is null.

    >>> read = reading({"name": pl.String(), "tier": pl.Int32()}, in_text=True)
    >>> read({"name": "Ann", "tier": "3"}), read(None)
    (('Ann', 3), (None, None))
    >>> read({"tier": "gold"})
    LookupFailure("ANSWER_WRONG_TYPE: column tier: 'gold' is not INT")
    """
    fits = {name: _reader(dtype, in_text=in_text) for name, dtype in columns.items()}
    unknown = (None,) * len(fits)

    def read(answer: Answer) -> Outcome:
        if answer is None:
            return unknown
        if isinstance(answer, LookupFailure):
            return answer
        if not isinstance(answer, Mapping):
            detail = f"the answer is {_shown(answer)}, not an object with columns or nothing"
            return LookupFailure("ANSWER_WRONG_TYPE", detail, again=False)
        values = []
        for name, fit in fits.items():
            try:
                values.append(fit(answer.get(name)))
            except (ValueError, ArithmeticError) as problem:
                return LookupFailure("ANSWER_WRONG_TYPE", f"column {name}: {problem}", again=False)
        return tuple(values)

    return read


def _reader(dtype: pl.DataType, *, in_text: bool) -> Fit:
    fit = fitting(dtype)
    written = _written(dtype) if in_text else None

    def read(value: Any) -> Any:
        if written is not None and isinstance(value, str):
            # What cannot be read is refused below, as it came.
            with suppress(ValueError, InvalidOperation):
                value = written(value)
        elif isinstance(value, Decimal) and dtype.is_float():
            value = float(value)
        elif isinstance(value, UUID) and dtype == pl.String():
            value = str(value)
        elif in_text and isinstance(value, float) and isinstance(dtype, pl.Decimal):
            value = Decimal(str(value))
        return fit(value)

    return read


def _written(dtype: pl.DataType) -> Callable[[str], Any] | None:
    """How a value of a type is read where it is written as text."""
    if dtype.is_integer():
        return int
    if dtype.is_float():
        return float
    if isinstance(dtype, pl.Decimal):
        return Decimal
    if isinstance(dtype, pl.Datetime):
        return datetime.fromisoformat
    if dtype == pl.Date():
        return date.fromisoformat
    if dtype == pl.Binary():
        return partial(base64.b64decode, validate=True)
    return _truth if dtype == pl.Boolean() else None


def _truth(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 100 else f"{said[:100]}..."
