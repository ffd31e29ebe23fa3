"""History: a line for each batch, whatever cut the last one short."""

from __future__ import annotations

from pathlib import Path

from headrace.observe import history


def test_a_line_that_a_crash_cut_short_costs_no_other_line(tmp_path: Path) -> None:
    history.append(tmp_path, {"batch": 0})
    with (tmp_path / history.FILE).open("a") as stream:
        stream.write('{"batch":1,"ro')
    history.append(tmp_path, {"batch": 1})
    history.append(tmp_path, {"batch": 2})
    assert history.read(tmp_path) == [{"batch": 0}, {"batch": 1}, {"batch": 2}]
