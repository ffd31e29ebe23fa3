"""Where a change stands among all others of its table, as text that sorts, and when it was committed."""

from __future__ import annotations

import polars as pl

from headrace.changelog import sortable

SOURCE = {
    name: pl.String()
    for name in (
        "connector",
        "ts_ms",
        "lsn",
        "sequence",
        "file",
        "pos",
        "row",
        "commit_lsn",
        "change_lsn",
        "event_serial_no",
        "ord",
    )
}
"""The fields of a message's ``source`` that tell."""


def change_position(source: pl.Expr, place: pl.Expr) -> pl.Expr:
    """The position that the connector knows, or else the message's place in its topic or file.

    PostgreSQL: the end of the transaction before and the change's own LSN, because changes are sent in the order of
    commits. MySQL: number of the binary log, place in it, row. SQL Server: LSNs of commit and change, serial number.
    MongoDB: time of the operation, its order within that time, and the message's place, because all operations of a
    transaction have one time and order.

    >>> frame = pl.DataFrame({"source": [{"lsn": "97", "sequence": '["91","97"]'}, {}], "place": ["1", "2"]},
    ...                      schema={"source": pl.Struct(SOURCE), "place": pl.String()})
    >>> frame.select(change_position(pl.col("source"), pl.col("place")).alias("position"))["position"].to_list()
    ['00000000000000000091:00000000000000000097', '2']
    """
    at = {name: _plain(source.struct.field(name)) for name in SOURCE}
    nothing = pl.lit("0")
    commit = pl.coalesce(at["sequence"].str.extract(r'^\["?(\d+)'), at["lsn"])
    log = at["file"].str.extract(r"(\d+)$")
    changed = pl.coalesce(at["change_lsn"], pl.lit(""))
    return pl.coalesce(
        _joined(sortable(commit), sortable(at["lsn"])),
        _joined(sortable(log), sortable(at["pos"]), sortable(pl.coalesce(at["row"], nothing))),
        _joined(at["commit_lsn"], changed, sortable(pl.coalesce(at["event_serial_no"], nothing))),
        pl.when(at["ord"].is_not_null()).then(_joined(sortable(at["ts_ms"]), sortable(at["ord"]), place)),
        place,
    )


def committed(source: pl.Expr, sent: pl.Expr, arrived: pl.Expr) -> pl.Expr:
    """When the database committed the change, in microseconds; or when the connector or at last Kafka had it."""
    known = _plain(source.struct.field("ts_ms")).cast(pl.Int64, strict=False)
    # Some snapshots have no time and say zero.
    taken = pl.when(known > 0).then(known)
    return pl.coalesce(taken * 1000, _plain(sent).cast(pl.Int64, strict=False) * 1000, arrived)


def _plain(text: pl.Expr) -> pl.Expr:
    """A field as it was sent: where a decimal column has its name, the number was marked with a space."""
    return text.str.strip_chars_start(" ")


def _joined(*parts: pl.Expr) -> pl.Expr:
    """Null where one of them is null."""
    return pl.concat_str(parts, separator=":")
