"""What is kept of the beginning of a log."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.connectors.postgres.changes.catalogue import SourceColumn, SourceTable
from headrace.connectors.postgres.changes.landing import METADATA_FILE, LandingMetadata, read_metadata

ORDERS = SourceTable("public.orders", (SourceColumn("id", 23, -1, "integer"),), ("id",), whole=False, oid=16_385)


def test_what_was_written_at_the_beginning_is_read_back(tmp_path: Path) -> None:
    metadata = LandingMetadata("shop", "shop", "log", (ORDERS,), published=(16_390, 16_391))
    metadata.write(tmp_path)
    assert read_metadata(tmp_path) == metadata


def test_what_an_earlier_version_wrote_has_no_numbers_of_the_server(tmp_path: Path) -> None:
    column = {"name": "id", "type": 23, "modifier": -1, "shown": "integer"}
    table = {"name": "public.orders", "columns": [column], "key": ["id"], "whole": False}
    told = {"slot": "shop", "publication": "shop", "log": "log", "tables": [table]}
    (tmp_path / METADATA_FILE).write_text(json.dumps(told))
    metadata = read_metadata(tmp_path)
    assert metadata is not None
    assert (metadata.tables[0].oid, metadata.published) == (0, ())
