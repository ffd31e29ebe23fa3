"""Lists of the files of a batch: they come back as they were written, or are refused with their name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.connectors.base.decoding import Columns
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.files.batch_listing import BatchListing, read_listing
from headrace.connectors.files.results import Results
from headrace.connectors.files.source import FileReader
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.nodes import ResultVersions
from headrace.observe.committed import committed_rows
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 77, {}, {}, {}, drain=False), "flow", 0, lambda *_: None, state_in_memory())
LISTING = BatchListing("json", "größe INT", ("a/1.json",), 12, 0, 7, "t1", ResultVersions((("account",),), "revision"))


def test_a_listing_comes_back_as_it_was_written() -> None:
    assert BatchListing.from_bytes(LISTING.to_bytes(), file="x") == LISTING


@pytest.mark.parametrize("new", [b"", b"1", b"}"])
def test_whichever_byte_is_changed_or_missing_the_listing_is_refused_with_its_name(new: bytes) -> None:
    text = LISTING.to_bytes()
    for place in range(len(text)):
        changed = text[:place] + new + text[place + 1 :]
        if changed != text:
            with pytest.raises(HeadraceError, match=r"^\[COMMIT_DAMAGED\] 'out/7\.json' was truncated or changed"):
                BatchListing.from_bytes(changed, file="out/7.json")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"1", b'"a"', b"\xff", LISTING.to_bytes()[:50]])
def test_what_is_no_listing_is_refused_with_its_name(text: bytes) -> None:
    with pytest.raises(HeadraceError, match=r"^\[COMMIT_DAMAGED\] 'x' "):
        BatchListing.from_bytes(text, file="x")


def _through_a_source(folder: Path) -> None:
    file = folder / "_commits" / "main-0000-0000000001.json"
    reader = FileReader("in", str(file.parent), JsonLines(Columns({})), listed=True)
    known = file.stat()
    list(reader.read([(f"file:{file}", known.st_size, known.st_mtime_ns // 1000)], TASK))


@pytest.mark.parametrize("read", [committed_rows, Results, _through_a_source])
def test_who_reads_a_folder_of_results_is_told_of_a_listing_with_another_batch(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    file = tmp_path / "_commits" / "main-0000-0000000001.json"
    for folder in ("_commits", "a"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "1.json").write_text('{"n": 1}\n')
    file.write_bytes(LISTING.to_bytes())
    read(tmp_path)
    file.write_bytes(LISTING.to_bytes().replace(b'"batch":7', b'"batch":9'))
    with pytest.raises(HeadraceError, match=r"^\[COMMIT_DAMAGED\] .*main-0000-0000000001\.json'"):
        read(tmp_path)
    file.write_bytes(LISTING.to_bytes())
    assert read_listing(file) == LISTING
