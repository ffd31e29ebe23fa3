"""What is kept of the beginning of a log."""

from __future__ import annotations

from pathlib import Path

from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.landing import LandingMetadata, read_metadata

ORDERS = SourceTable("public.orders", (SourceColumn("id", 23, -1, "integer"),), ("id",), whole=False, oid=16_385)


def test_what_was_written_at_the_beginning_is_read_back(tmp_path: Path) -> None:
    metadata = LandingMetadata("shop", "shop", "log", (ORDERS,), published=(16_390, 16_391))
    metadata.write(tmp_path)
    assert read_metadata(tmp_path) == metadata
