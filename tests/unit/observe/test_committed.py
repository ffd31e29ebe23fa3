"""What a folder of committed files holds."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headrace.connectors.files.batch_listing import BatchListing
from headrace.observe.committed import committed_rows


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_folder_is_read_by_its_name_and_not_as_a_pattern(tmp_path: Path, format: str) -> None:
    for folder, id in (("out [x]", 1), ("out x", 9)):
        root = tmp_path / folder
        (root / "_commits").mkdir(parents=True)
        listing = BatchListing(format, "id BIGINT", ("part",), 1, 0, 0, "", None)
        (root / "_commits" / "main-0-0.json").write_bytes(listing.to_bytes())
        rows = pl.DataFrame({"id": [id]})
        if format == "parquet":
            rows.write_parquet(root / "part")
        else:
            rows.write_ndjson(root / "part")
    assert committed_rows(tmp_path / "out [x]").rows() == [(1,)]
