"""What is kept of the beginning of a log."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.connectors.postgres.changes.birth import BIRTH, Birth, birth_of
from headrace.connectors.postgres.changes.catalogue import Column, Table

ORDERS = Table("public.orders", (Column("id", 23, -1, "integer"),), ("id",), whole=False, oid=16_385)


def test_what_was_written_at_the_beginning_is_read_back(tmp_path: Path) -> None:
    birth = Birth("shop", "shop", "log", (ORDERS,), published=(16_390, 16_391))
    birth.write(tmp_path)
    assert birth_of(tmp_path) == birth


def test_what_an_earlier_version_wrote_has_no_numbers_of_the_server(tmp_path: Path) -> None:
    column = {"name": "id", "type": 23, "modifier": -1, "shown": "integer"}
    table = {"name": "public.orders", "columns": [column], "key": ["id"], "whole": False}
    told = {"slot": "shop", "publication": "shop", "log": "log", "tables": [table]}
    (tmp_path / BIRTH).write_text(json.dumps(told))
    birth = birth_of(tmp_path)
    assert birth is not None
    assert (birth.tables[0].oid, birth.published) == (0, ())
