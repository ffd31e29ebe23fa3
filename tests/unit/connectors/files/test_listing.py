"""Which files of a landing folder a batch reads, and what a flow remembers of those that it has seen."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyarrow import fs

from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage, MemoryStorage, Storage
from headrace.connectors.base.decoding import Columns
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.json_lines import JsonLines
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.files import listing
from headrace.connectors.files.batch_listing import BatchListing
from headrace.connectors.files.listing import FileEnumerator, HiddenFiles, list_files
from headrace.connectors.files.source import CHANGED, FileReader
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.event_time.tracker import WHOLE
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 77, {}, {}, {}, drain=False), "flow", 0, lambda *_: None, state_in_memory())
Position = dict[str, Any]


def land(folder: Path, *names: str, second: int = 0, content: str = '{"n":1}\n') -> None:
    """Files that were modified in this second."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        os.utime(file, (second, second))


def read_by(enumerator: FileEnumerator, since: Position, until: Position) -> list[str]:
    """The names of the files that a batch reads."""
    return [Path(path).name for split in enumerator.splits(since, until, tasks=2) for path, _, _ in split]


def reader_of(place: str | Path) -> FileReader:
    """Reads numbers in lines."""
    return FileReader("in", str(place), JsonLines(Columns({"n": pl.Int64()})), listed=False)


class Reading:
    """A flow that reads a folder batch by batch."""

    def __init__(
        self, folder: str | Path, storage: Storage | None = None, *, files_per_batch: int | None = None
    ) -> None:
        self.storage = MemoryStorage() if storage is None else storage
        self.enumerator = FileEnumerator("in", self.storage, str(folder), files_per_batch)
        self.position: Position = self.enumerator.initial()
        self.unread: int = 0

    def batch(self) -> list[str]:
        """The names of the files that the next batch reads."""
        since, planned = self.position, self.enumerator.plan(self.position, most=None)
        self.position, self.unread = planned.until, planned.unread.get(WHOLE, 0)
        return read_by(self.enumerator, since, planned.until)

    @property
    def sizes(self) -> list[int]:
        """How many files are in each list of the position."""
        return [int(name.split("-")[0]) for name in self.position["lists"]]

    @property
    def stored(self) -> set[str]:
        """The lists that are stored."""
        return {Path(name).name for name in self.storage.list("sources/in")}


def test_files_come_once_in_the_order_in_which_they_were_modified_and_then_by_name(tmp_path: Path) -> None:
    land(tmp_path, "b", "deep/down/c", second=1)
    land(tmp_path, "a", second=2)
    land(tmp_path, "z", second=0)
    reading = Reading(tmp_path)
    assert reading.batch() == ["z", "b", "c", "a"]
    assert reading.batch() == []
    land(tmp_path, "older", second=-5)
    assert reading.batch() == ["older"]


def test_a_file_from_the_future_hides_no_other_file(tmp_path: Path) -> None:
    land(tmp_path, "future", second=16_000_000_000)
    land(tmp_path, "a", second=1)
    reading = Reading(tmp_path)
    assert reading.batch() == ["a", "future"]
    land(tmp_path, "b", second=2)
    land(tmp_path, "new", second=1_800_000_000)
    assert reading.batch() == ["b", "new"]


def test_a_file_that_is_written_again_is_another_file(tmp_path: Path) -> None:
    land(tmp_path, "a", "b", "c", "d", second=1)
    reading = Reading(tmp_path)
    assert reading.batch() == ["a", "b", "c", "d"]
    land(tmp_path, "a", second=2)
    land(tmp_path, "b", second=1, content='{"n":1}\n{"n":2}\n')
    land(tmp_path, "c", second=1)
    assert reading.batch() == ["b", "a"]
    assert reading.batch() == []


@pytest.mark.parametrize("name", ["in [x]", "in{a}", "in*", "in?", "in%41", "_in", ".in", os.fsdecode(b"in\xe4")])
def test_a_folder_of_any_name_is_read_and_no_other(tmp_path: Path, name: str) -> None:
    for other in ("in", "in x", "ina", "inA", "in y"):
        land(tmp_path / other, "other")
    land(tmp_path / name, "a[1]", "b*", "deep{1}/c?")
    files = list_files(str(tmp_path / name)).sort("path").rows()
    chunks = list(reader_of(tmp_path / name).read(files, TASK))
    assert [(chunk.rows["n"].to_list(), chunk.dead.height) for chunk in chunks] == [([1], 0)] * 3


def test_hidden_and_empty_files_and_links_to_nothing_are_passed_over_until_they_have_a_name_and_rows(
    tmp_path: Path,
) -> None:
    land(tmp_path, ".a", "_b", ".hidden/a", "deep/_hidden/b", "c.")
    land(tmp_path, "empty", content="")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    reading = Reading(tmp_path)
    assert reading.batch() == ["c."]
    (tmp_path / ".a").rename(tmp_path / "a")
    land(tmp_path, "empty")
    assert reading.batch() == ["a", "empty"]


def told(reading: Reading) -> list[str]:
    """What a batch warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        reading.batch()
    return [str(warning.message) for warning in warned]


def test_files_that_are_passed_over_are_told_once_at_the_beginning_or_when_they_stay(place: str, bucket: Path) -> None:
    now = int(time.time())
    land(bucket, "a", "_b", ".c", "deep/_d", "_e", second=now)
    land(bucket, "_empty", content="")
    reading = Reading(place)
    reading.enumerator = FileEnumerator("in", reading.storage, place, hidden=HiddenFiles("in"))
    [text] = told(reading)
    assert text.startswith("source 'in' passes over files and folders whose names begin with _ or . (4): ")
    assert [name in text for name in ("/.c, ", "/_b, ", "/_e and 1 more. ")] == [True] * 3
    land(bucket, ".being_written", second=now)
    assert told(reading) == []
    land(bucket, "_stays", second=now - 100)
    [text] = told(reading)
    assert "(1): " in text
    assert text.endswith("/_stays. Rename those that hold rows.")
    assert told(reading) == []
    assert told(Reading(place)) == []


@pytest.mark.parametrize("name", ["a b.json", "100%.json", "a%20b.json", "ä?#.json", os.fsdecode(b"\xe4.json")])
def test_a_file_of_any_name_is_read(tmp_path: Path, name: str) -> None:
    land(tmp_path, name)
    [given] = list_files(str(tmp_path)).rows()
    [chunk] = reader_of(tmp_path).read([given], TASK)
    assert (chunk.rows["n"].to_list(), chunk.dead.height) == ([1], 0)


def test_a_folder_that_cannot_be_listed_is_asked_again(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="nowhere"):
        Reading(tmp_path / "nowhere").batch()


def test_tasks_share_the_bytes_of_a_batch_in_order(tmp_path: Path) -> None:
    for name, rows in {"a": 1, "b": 1, "c": 8, "d": 4}.items():
        land(tmp_path, name, content="x" * 100 * rows)
    enumerator = Reading(tmp_path).enumerator
    until = enumerator.plan({"lists": []}, most=None).until
    splits = enumerator.splits({"lists": []}, until, tasks=2)
    assert [[(Path(path).name, size) for path, size, _ in split] for split in splits] == [
        [("a", 100), ("b", 100), ("c", 800)],
        [("d", 400)],
    ]


def test_a_batch_takes_so_many_files_and_says_how_many_wait(tmp_path: Path) -> None:
    land(tmp_path, "a", "b", "c", "d", "e")
    reading = Reading(tmp_path, files_per_batch=2)
    batches = [(reading.batch(), reading.unread) for _ in range(4)]
    assert batches == [(["a", "b"], 3), (["c", "d"], 1), (["e"], 0), ([], 0)]


def test_no_batch_takes_more_files_than_its_tasks_can_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_FILES", 3)
    land(tmp_path, "a", "b", "c", "d")
    reading = Reading(tmp_path)
    assert (reading.batch(), reading.unread) == (["a", "b", "c"], 1)


def test_a_run_over_what_is_there_reads_no_file_that_came_later(tmp_path: Path) -> None:
    land(tmp_path, "a", "b")
    reading = Reading(tmp_path, files_per_batch=1)
    reading.enumerator.stop_at_newest()
    land(tmp_path, "aa")
    assert [reading.batch() for _ in range(3)] == [["a"], ["b"], []]


def test_a_list_is_at_least_twice_as_long_as_the_one_behind_it_but_the_last_is_that_of_the_batch(
    tmp_path: Path,
) -> None:
    names = [f"{number:02}" for number in range(64)]
    land(tmp_path, *names)
    reading = Reading(tmp_path, files_per_batch=1)
    for number, name in enumerate(names):
        assert reading.batch() == [name]
        assert sum(reading.sizes) == number + 1
        assert reading.sizes[-1] == 1
        *merged, _ = reading.sizes
        assert all(longer >= 2 * shorter for longer, shorter in pairwise(merged))
    assert len(reading.sizes) <= 8
    assert reading.batch() == []


def test_every_list_is_read_once_by_the_driver_that_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, *(f"{number:02}" for number in range(32)))
    reading = Reading(tmp_path, files_per_batch=1)
    read: list[str] = []
    original = FileEnumerator._read

    def noted(self: FileEnumerator, name: str) -> pl.DataFrame:
        read.append(name)
        return original(self, name)

    monkeypatch.setattr(FileEnumerator, "_read", noted)
    for _ in range(32):
        reading.position = reading.enumerator.plan(reading.position, most=None).until
    # A list is read once for its paths, and once more when it is merged.
    assert max(map(read.count, read)) == 2


def test_files_that_are_gone_are_forgotten_when_lists_are_merged(tmp_path: Path) -> None:
    land(tmp_path, "a", "b", "c", "d")
    reading = Reading(tmp_path, files_per_batch=1)
    assert [reading.batch(), reading.batch()] == [["a"], ["b"]]
    (tmp_path / "a").unlink()
    assert (reading.batch(), reading.sizes) == (["c"], [1, 1])
    land(tmp_path, "a")
    assert [reading.batch(), reading.batch()] == [["a"], ["d"]]


def test_a_file_is_read_once_though_all_before_it_are_gone(tmp_path: Path) -> None:
    reading = Reading(tmp_path)
    for name in "abcdefgh":
        land(tmp_path, name)
        assert reading.batch() == [name]
        (tmp_path / name).unlink()
    assert len(reading.sizes) <= 3
    land(tmp_path, "i")
    assert [reading.batch(), reading.batch()] == [["i"], []]


def test_a_flow_goes_on_from_its_position_whoever_drives_it(tmp_path: Path) -> None:
    landing, storage = tmp_path / "in", LocalStorage(tmp_path / "flow")
    land(landing, "a", "b", "c", "d", "e")
    before = Reading(landing, storage, files_per_batch=1)
    found = []
    for _ in range(5):
        found += before.batch()
        after = Reading(landing, storage, files_per_batch=1)
        after.position = before.position
        before = after
    assert found == ["a", "b", "c", "d", "e"]
    assert before.batch() == []


def test_lists_that_no_batch_needs_any_more_are_removed(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(20)]
    land(tmp_path, *names)
    reading = Reading(tmp_path, files_per_batch=1)
    for _ in names:
        concluded = set(reading.position["lists"])
        reading.batch()
        assert concluded | set(reading.position["lists"]) == reading.stored
    reading.batch()
    assert set(reading.position["lists"]) == reading.stored


def test_a_batch_that_was_planned_but_not_concluded_reads_the_same_files_with_the_next_driver(tmp_path: Path) -> None:
    land(tmp_path, "a", "b", "c")
    reading = Reading(tmp_path, files_per_batch=1)
    reading.batch()
    since = reading.position
    assert reading.batch() == ["b"]
    land(tmp_path, "aa", second=-1)
    # It runs the logged batch again, and plans the next one behind it.
    after = Reading(tmp_path, reading.storage, files_per_batch=1)
    assert read_by(after.enumerator, since, reading.position) == ["b"]
    after.position = reading.position
    assert [after.batch(), after.batch(), after.batch()] == [["aa"], ["c"], []]


def test_a_plan_that_was_never_logged_is_made_anew_and_its_list_removed(tmp_path: Path) -> None:
    land(tmp_path, "a", "b")
    reading = Reading(tmp_path, files_per_batch=1)
    reading.batch()
    since = reading.position
    reading.batch()
    [lost] = set(reading.position["lists"]) - set(since["lists"])
    land(tmp_path, "aa", second=-1)
    for driver in (Reading(tmp_path, reading.storage, files_per_batch=1), reading):
        driver.position = since
        assert [driver.batch(), driver.batch()] == [["aa"], ["b"]]
        assert lost not in driver.stored


def test_a_driver_that_was_frozen_before_its_first_plan_removes_no_list_of_the_next_driver(tmp_path: Path) -> None:
    land(tmp_path, "a", "b")
    frozen = Reading(tmp_path)
    after = Reading(tmp_path, frozen.storage)
    after.batch()
    frozen.batch()
    assert set(after.position["lists"]) < frozen.stored


def test_nothing_new_leaves_the_position_as_it_is(tmp_path: Path) -> None:
    land(tmp_path, "a")
    reading = Reading(tmp_path)
    reading.batch()
    assert reading.enumerator.plan(reading.position, most=None) == Planned(reading.position)
    assert reading.enumerator.splits(reading.position, reading.position, tasks=3) == [[], [], []]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What lies in ``store://host/in``."""
    find = fs.FileSystem.from_uri

    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
            assert uri.startswith("store://host/")
            _, inside = find(uri.replace("store://host/", "file:///"))
            return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), inside.lstrip("/")

    monkeypatch.setattr(fs, "FileSystem", FileSystem)
    return tmp_path / "in"


@pytest.mark.parametrize("place", ["store://host/in", "store://host/in/", "store://host/in?region=x"])
def test_a_remote_folder_is_listed_like_a_local_one(bucket: Path, place: str) -> None:
    land(bucket, "a b.json", "100%.json", "deep/host", ".hidden", "_deep/c", second=5)
    land(bucket, "empty", content="")
    files = list_files(place).sort("path")
    options = place[len("store://host/in") :].lstrip("/")
    assert files.rows() == [
        (f"store://host/in/{name}{options}", 8, 5_000_000) for name in ("100%25.json", "a%20b.json", "deep/host")
    ]
    chunks = list(reader_of(place).read(files.rows(), TASK))
    assert [(chunk.rows["n"].to_list(), chunk.dead.height) for chunk in chunks] == [([1], 0)] * 3


def test_a_folder_named_like_its_host_is_listed_too(bucket: Path) -> None:
    land(bucket.parent / "h", "a")
    assert list_files("store://host/h")["path"].to_list() == ["store://host/h/a"]


def test_a_remote_folder_that_cannot_be_listed_is_asked_again(bucket: Path) -> None:
    with pytest.raises(Unreachable, match="nowhere"):
        list_files("store://host/nowhere")


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, bucket: Path) -> str:
    """The folder ``in``, by a path and by a URI."""
    bucket.mkdir()
    return str(bucket) if request.param == "local" else "store://host/in"


def dead_letters(
    place: str, bucket: Path, change: Callable[[Path], object], task: Task = TASK
) -> list[tuple[str, str, str]]:
    """Reason, origin and detail of what becomes dead when a file changes after it was listed."""
    land(bucket, "a", "b", second=1)
    enumerator = FileEnumerator("in", MemoryStorage(), place)
    until = enumerator.plan({"lists": []}, most=None).until
    change(bucket / "b")
    found = []
    rows = 0
    for given in enumerator.splits({"lists": []}, until, tasks=2):
        for chunk in reader_of(place).read(given, task):
            rows += chunk.rows.height
            found += [(reason, Path(chunk.origin).name, detail) for _, reason, detail, _ in chunk.dead.rows()]
    assert rows == 1
    return found


CHANGES = pytest.mark.parametrize(
    "change",
    [
        lambda file: land(file.parent, file.name, second=1, content='{"n":1}\n{"n":2}\n'),
        lambda file: land(file.parent, file.name, second=2),
    ],
    ids=["longer", "newer"],
)


@CHANGES
def test_a_file_that_is_written_again_after_it_was_listed_is_one_dead_letter(
    place: str, bucket: Path, change: Callable[[Path], object]
) -> None:
    assert dead_letters(place, bucket, change) == [("FILE_CHANGED", "b", CHANGED)]


def test_a_file_that_is_gone_after_it_was_listed_is_one_dead_letter(place: str, bucket: Path) -> None:
    [(reason, name, detail)] = dead_letters(place, bucket, Path.unlink)
    assert (reason, name) == ("FILE_UNREADABLE", "b")
    assert "No such file" in detail


AGAIN = replace(TASK, runs_again=True)


@CHANGES
def test_a_file_that_was_written_again_stops_a_batch_that_runs_again(
    place: str, bucket: Path, change: Callable[[Path], object]
) -> None:
    with pytest.raises(HeadraceError, match=r"^\[RANGE_CHANGED\] batch 0 of flow 'flow' .*/in/b' was written again"):
        dead_letters(place, bucket, change, AGAIN)


def test_a_file_that_is_gone_stops_a_batch_that_runs_again(place: str, bucket: Path) -> None:
    with pytest.raises(HeadraceError, match=r"^\[RANGE_CHANGED\] batch 0 of flow 'flow' .*/in/b' is gone, and"):
        dead_letters(place, bucket, Path.unlink, AGAIN)


def test_a_listed_file_that_is_gone_stops_a_batch_that_runs_again(tmp_path: Path) -> None:
    (tmp_path / "_commits").mkdir()
    gone = BatchListing("json", "n INT", ("gone",), 1, 0, 0, "t", None)
    (tmp_path / "_commits" / "0.json").write_bytes(gone.to_bytes())
    given = list_files(str(tmp_path / "_commits")).rows()
    reader = replace(reader_of(tmp_path / "_commits"), listed=True)
    assert [chunk.dead["reason"].to_list() for chunk in reader.read(given, TASK)] == [["FILE_UNREADABLE"]]
    with pytest.raises(HeadraceError, match=r"^\[RANGE_CHANGED\] .*/gone' is gone, and"):
        list(reader.read(given, AGAIN))


def test_a_batch_that_runs_again_reads_files_that_are_as_they_were(place: str, bucket: Path) -> None:
    land(bucket, "a", second=1)
    [chunk] = reader_of(place).read(list_files(place).rows(), AGAIN)
    assert (chunk.rows["n"].to_list(), chunk.dead.height) == ([1], 0)


def test_a_task_whose_folder_goes_away_waits_for_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away = tmp_path / "in", tmp_path / "away"
    land(folder, "a", second=1)
    given = list_files(str(folder)).rows()
    folder.rename(away)

    def come_back(seconds: float) -> None:
        [outage] = outages(TASK.state.storage)
        assert (outage.sink, "No such file" in outage.reason) == (str(folder), True)
        away.rename(folder)

    monkeypatch.setattr("headrace.connectors.files.source.time.sleep", come_back)
    [chunk] = reader_of(folder).read(given, TASK)
    assert (chunk.rows["n"].to_list(), chunk.dead.height) == ([1], 0)
    assert outages(TASK.state.storage) == []
