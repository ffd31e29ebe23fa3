"""How versions come to a temporal join: as they are, or as a changelog."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.changelog import CHANGE, CHANGES
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import Edge
from headrace.operators.joins.temporal_layout import Layout, parted
from headrace.wheel.key_hash import canonical
from headrace.wheel.operator import Combined


@dataclass(frozen=True)
class VersionIntake:
    """The second input of a temporal join."""

    layout: Layout
    lateness: Lateness | None
    """What happens to late versions; None where none is late."""
    name: str = "versions"
    late_output: str = "late_right"
    broadcast: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns under their names among the versions."""
        return self.layout.on.right

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """Versions travel whole."""
        return dict(self.layout.versions.schema)

    def combine(self, rows: pl.DataFrame, edge: Edge) -> Combined:
        """Set late versions aside, and changes of no known kind; drop those without a key, which nothing meets."""
        versions = self.layout.versions
        if self.lateness is None:
            on_time, late = rows, versions.late(rows.clear(), edge)
        else:
            # A correction of a window takes the place of its first result, where late versions may do so.
            refused = pl.lit(False) if self.lateness.correctable else versions.is_correction
            on_time, late = parted(versions, rows, self.lateness, edge, refused=refused)
        failed = None
        if self.layout.keeps_changes:
            known = on_time[CHANGE].is_in(CHANGES).fill_null(False)
            failed = _unknown(on_time.filter(~known)) if not known.all() else None
            on_time = on_time.filter(known)
        accepted = on_time.drop_nulls(self.key)
        return Combined(
            canonical(accepted, self.key).select(versions.schema.keys()),
            late,
            accepted.height,
            dropped=on_time.height - accepted.height,
            failed=failed,
        )

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Versions stay as they are, in the order of their arrival."""
        return partials


def _unknown(rows: pl.DataFrame) -> pl.DataFrame:
    """Changes of no known kind, for the dead letters."""
    detail = pl.format("change is {}, not one of {}", pl.col(CHANGE).fill_null("null"), pl.lit(", ".join(CHANGES)))
    return rows.select(
        pl.lit("CHANGE_UNKNOWN").alias("reason"),
        detail.alias("detail"),
        pl.struct(pl.all()).struct.json_encode().alias("row"),
    )
