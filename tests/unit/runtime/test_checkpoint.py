from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.checkpoint import brings_rows


def _log(checkpoint: Path, batch: int, *offsets: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *offsets]))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, ("0", "-"), True),
        (None, ("-", "0"), False),
        (("0", "0"), ("0", "1"), False),
        (("0", "0"), ("1", "0"), True),
        (("0", "0", "4", "0"), ("0", "1", "4", "1"), False),
        (("0", "0", "-", "0"), ("0", "1", "4", "1"), True),
    ],
    ids=["first rows", "a tick before any row", "a tick", "rows", "ticks of two sources", "rows of the second source"],
)
def test_only_the_streams_of_rows_count(
    before: tuple[str, ...] | None, now: tuple[str, ...], expected: bool, tmp_path: Path
) -> None:
    if before is not None:
        _log(tmp_path, 6, *before)
    _log(tmp_path, 7, *now)
    assert brings_rows(tmp_path, 7) is expected
