from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.batches import done_at, seconds_of
from headrace.observe import history
from headrace.observe.account import Account, SourceCounts
from headrace.observe.history import BatchSeconds, HistoryEntry

MILLISECOND = 1_000


def test_batches_without_rows_count_for_the_batch_behind_them(tmp_path: Path) -> None:
    for batch, (clock, rows) in enumerate(((0, 5), (600, 0), (1_000, 5))):
        account = Account({"events": SourceCounts(rows, rows)})
        entry = HistoryEntry("counts", batch, clock * MILLISECOND, account=account, seconds=BatchSeconds(0.1, 0.5))
        history.append(tmp_path, entry)
    assert done_at(tmp_path) == pytest.approx([0.5, 1.5])
    assert seconds_of(tmp_path) == pytest.approx([0.5, 1.0])


def test_a_flow_without_batches_has_no_seconds(tmp_path: Path) -> None:
    assert seconds_of(tmp_path) == ()
