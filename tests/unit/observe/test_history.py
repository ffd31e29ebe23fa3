"""History: a line for each batch, whatever cut the last one short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_the_history_of_a_flow_that_runs_for_ever_stays_bounded_and_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest, flow = 20_000, tmp_path / "spend"
    monkeypatch.setattr(history, "LARGEST", largest)
    flow.mkdir()
    line, sizes = 0, set[int]()
    for batch in range(300):
        history.append(flow, entry := history.HistoryEntry("spend", batch, clock=batch))
        line = max(line, (flow / history.FILE).stat().st_size if batch == 0 else 0)
        assert history.newest(flow) == entry
        found = [each.batch for each in history.read(flow)]
        assert found == list(range(found[0], batch + 1)), "batches are missing in the middle"
        sizes.add(sum(file.stat().st_size for file in flow.iterdir()))
    assert max(sizes) <= 2 * (largest + 2 * line)
    assert found[0] > 0
    assert len(found) * line > largest
    # A crash between the renaming and the first line of the new file.
    (flow / history.FILE).replace(flow / history.OLDER)
    assert history.flows(tmp_path) == ["spend"]
    assert history.newest(flow) == entry
    history.append(flow, history.HistoryEntry("spend", 300, clock=300))
    assert [each.batch for each in history.read(flow)][-2:] == [299, 300]


@pytest.mark.parametrize("begun", [False, True])
def test_a_file_that_becomes_the_older_one_while_it_is_read_costs_no_batch(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [history.HistoryEntry("spend", batch, clock=5) for batch in range(4)]
    file, older = tmp_path / history.FILE, tmp_path / history.OLDER
    history.append(tmp_path, entries[0])
    file.replace(older)
    history.append(tmp_path, entries[1])
    history.append(tmp_path, entries[2])
    looked: list[Path] = []

    def rotated(path: Path, original: Any) -> Any:
        """The second file that is looked at has become the older one before."""
        looked.append(path)
        if len(looked) == 2:
            file.replace(older)
            if begun:
                history.append(tmp_path, entries[3])
        return original(path)

    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: rotated(path, read_bytes))
    assert set(range(1, 3)) <= {entry.batch for entry in history.read(tmp_path)}


def test_the_newest_batch_is_found_while_its_file_becomes_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = history.HistoryEntry("spend", 0, clock=5)
    history.append(tmp_path, entry)
    opened = Path.open

    def opening(path: Path, *how: Any) -> Any:
        if path.name == history.FILE:
            path.replace(tmp_path / history.OLDER)
        return opened(path, *how)

    monkeypatch.setattr(Path, "open", opening)
    assert history.newest(tmp_path) == entry
