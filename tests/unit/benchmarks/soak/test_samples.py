from __future__ import annotations

import os
from pathlib import Path

from benchmarks.soak.samples import Sampler
from headrace.observe import history
from headrace.observe.account import Account, SourceCounts
from headrace.observe.history import BatchSeconds, HistoryEntry, StateSize


def done(flow: Path, batch: int, *, rows: int, seconds: float) -> None:
    account = Account({"visits": SourceCounts(rows, rows)})
    entry = HistoryEntry("visits", batch, 0, account=account, seconds=BatchSeconds(0, seconds), state=StateSize(7, 70))
    history.append(flow, entry)


def test_a_look_tells_of_the_batches_since_the_look_before(tmp_path: Path) -> None:
    flow = tmp_path / "visits"
    flow.mkdir()
    sampler = Sampler(tmp_path, "visits", os.getpid())
    assert sampler.look(0) is None
    done(flow, 0, rows=10, seconds=9.0)
    assert sampler.look(1) is not None
    assert sampler.look(2) is None
    for batch, seconds in ((1, 0.1), (2, 0.3), (3, 0.2)):
        done(flow, batch, rows=10, seconds=seconds)
    (flow / "other").touch()
    seen = sampler.look(3)
    assert seen is not None
    assert (seen.batch, seen.rows, seen.state_rows, seen.state_bytes) == (3, 40, 7, 70)
    assert (seen.files, seen.batch_seconds) == (2, 0.2)
    assert seen.memory_bytes > 0
