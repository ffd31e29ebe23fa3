"""Large values that the database did not send because they stayed the same."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import polars as pl

from headrace.changelog import UNCHANGED

_PLACEHOLDER = "__debezium_unavailable_value"
# As text, bytes, text of a map, array of texts (joined to one), array of numbers.
_FORMS = (
    _PLACEHOLDER,
    b64encode(_PLACEHOLDER.encode()).decode(),
    f'{{"{_PLACEHOLDER}":"{_PLACEHOLDER}"}}',
    ",".join(str(code) for code in _PLACEHOLDER.encode()),
)


def with_unchanged(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Rows with null instead of each placeholder, and a column that names the columns that had one.

    >>> rows = pl.DataFrame({"id": ["1", "2"], "note": ["short", "__debezium_unavailable_value"]})
    >>> with_unchanged(rows, ["id", "note"]).rows()
    [('1', 'short', []), ('2', None, ['note'])]
    """
    none = pl.lit(pl.Series([[]], dtype=pl.List(pl.String))).first()
    there: list[pl.Expr] = []
    for name in columns:
        kind = rows.schema[name]
        text = pl.col(name).list.join(",") if kind == pl.List(pl.String) else pl.col(name)
        if not (kind == pl.String or kind == pl.List(pl.String)):
            continue
        held = rows.select(text.is_in(_FORMS)).to_series()
        if held.any():
            rows = rows.with_columns(pl.when(~held).then(pl.col(name)).alias(name))
            there.append(pl.when(held).then(pl.lit(name)))
    named = pl.concat_list(there).list.drop_nulls() if there else none
    return rows.with_columns(named.alias(UNCHANGED))
