"""The key argument of sources, steps and sinks."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import DefinitionError

Key = str | Sequence[str] | None


def key_columns(key: Key, *, argument: str = "key", needed_by: str | None = None) -> tuple[str, ...]:
    """The columns of a key argument: one name, several, or none unless a step needs one.

    >>> key_columns("account"), key_columns(None)
    (('account',), ())
    """
    columns = () if key is None else (key,) if isinstance(key, str) else key
    if not isinstance(columns, Sequence) or not all(isinstance(column, str) for column in columns):
        raise DefinitionError(
            "KEY_UNREADABLE",
            f"{argument}={key!r} names no columns. Write {argument}='account', or {argument}=['account', 'shop'].",
        )
    if needed_by is not None and not columns:
        raise DefinitionError(
            "KEY_MISSING", f"step {needed_by!r}: {argument}= names no column. Write {argument}='account'."
        )
    return tuple(columns)


def key_argument(key: tuple[str, ...]) -> str | list[str] | None:
    """Key columns as a key argument, for printing.

    >>> key_argument(("account",))
    'account'
    """
    return (key[0] if len(key) == 1 else list(key)) if key else None
