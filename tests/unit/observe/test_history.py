"""History: a line for each batch, whatever cut the last one short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.observe import history
from headrace.observe.account import Account, SinkCounts, SourceCounts, StepCounts


def test_a_line_that_a_crash_cut_short_costs_no_other_line(tmp_path: Path) -> None:
    entries = [history.HistoryEntry("spend", batch, clock=5) for batch in range(3)]
    history.append(tmp_path, entries[0])
    with (tmp_path / history.FILE).open("a") as stream:
        stream.write('{"batch":1,"ro')
    history.append(tmp_path, entries[1])
    history.append(tmp_path, entries[2])
    assert history.read(tmp_path) == entries


def test_every_part_of_an_entry_is_read_back(tmp_path: Path) -> None:
    entry = history.HistoryEntry(
        "spend",
        3,
        clock=5,
        watermarks={"payments": -(2**63)},
        account=Account(
            {"payments": SourceCounts(2, 1, 1)},
            {"hourly": StepCounts(1, 1)},
            {"main#1": SinkCounts(4, 4)},
            {"payments": False},
        ),
        hot_keys={"hourly": (history.HotKey(("a", None), 0.75),)},
        counters={"names": {"calls": 7}},
        tables={"prices": history.TableVersion(2, "gone")},
        cap=40,
    )
    history.append(tmp_path, entry)
    assert history.read(tmp_path) == [entry]
    line = json.loads((tmp_path / history.FILE).read_text())
    assert (line["format"], line["account"]["steps"]["hourly"]["in"]) == (1, 1)


def test_an_entry_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / history.FILE).write_text('{"format":2,"batch":0}\n')
    with pytest.raises(HeadraceError, match=r"\[RECORD_FORMAT_UNKNOWN\]"):
        history.read(tmp_path)
