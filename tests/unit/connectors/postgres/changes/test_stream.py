"""The log as a stream of entries: how far a batch reads, also when no more will come."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.connectors.base.caps import set_cap
from headrace.connectors.postgres.changes.birth import Birth, forget_failure, tell_failure
from headrace.connectors.postgres.changes.change_log import ChangeLog, Entry
from headrace.connectors.postgres.changes.stream import ChangeEntryReader
from headrace.errors import HeadraceError


def at_entry(number: int) -> dict[str, object]:
    return {"source": "orders", "entry": number}


@pytest.fixture
def reader(tmp_path: Path) -> ChangeEntryReader:
    """Of a log with three entries, whose feed has given up."""
    Birth("shop", "shop", "log", ()).write(tmp_path)
    log = ChangeLog(tmp_path / "log")
    log.create()
    for number in range(3):
        log.publish(number, Entry())
    tell_failure(tmp_path, HeadraceError("SLOT_LOST", "the slot is gone."))
    return ChangeEntryReader("orders", "public.orders", tmp_path, tmp_path / "caps")


@pytest.mark.parametrize("first", [0, 2])
def test_what_was_logged_before_the_feed_gave_up_is_read_and_then_the_flow_is_told(
    reader: ChangeEntryReader, first: int
) -> None:
    assert reader.latestOffset(at_entry(first), None) == at_entry(3)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match=r"^\[SLOT_LOST\] the slot is gone\.$"):
        reader.latestOffset(at_entry(3), None)  # type: ignore[arg-type]


def test_the_flow_is_not_told_before_the_entries_that_it_takes_one_by_one(
    reader: ChangeEntryReader, tmp_path: Path
) -> None:
    (tmp_path / "caps").mkdir()
    set_cap(tmp_path / "caps", "flow", 0)
    for number in range(3):
        assert reader.latestOffset(at_entry(number), None) == at_entry(number + 1)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match="SLOT_LOST"):
        reader.latestOffset(at_entry(3), None)  # type: ignore[arg-type]


def test_a_feed_that_goes_on_gives_no_more_than_there_is(reader: ChangeEntryReader, tmp_path: Path) -> None:
    forget_failure(tmp_path)
    assert reader.latestOffset(at_entry(3), None) == at_entry(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("turn", [Entry(altered={"public.orders": ()}), Entry(truncated={"public.orders": "0/1"})])
def test_what_was_logged_before_a_table_was_altered_or_emptied_is_a_batch_of_its_own(
    reader: ChangeEntryReader, tmp_path: Path, turn: Entry
) -> None:
    forget_failure(tmp_path)
    log = ChangeLog(tmp_path / "log")
    for number, entry in enumerate([turn, Entry(), Entry(altered={"public.others": ()})], start=3):
        log.publish(number, entry)
    assert reader.latestOffset(at_entry(0), None) == at_entry(3)  # type: ignore[arg-type]
    assert reader.latestOffset(at_entry(3), None) == at_entry(6)  # type: ignore[arg-type]


def test_a_flow_that_comes_back_after_its_entries_were_removed_is_told_so(
    reader: ChangeEntryReader, tmp_path: Path
) -> None:
    """It was left out of the pipeline meanwhile, so retention did not wait for it."""
    log = ChangeLog(tmp_path / "log")
    log.remove(0)
    log.remove(1)
    with pytest.raises(HeadraceError, match=r"^\[LOG_SHORTENED\] .* entry 1, .*public\.orders"):
        reader.latestOffset(at_entry(1), None)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match=r"^\[LOG_SHORTENED\] .* entry 1, .*public\.orders"):
        reader.partitions(at_entry(1), at_entry(3))
    assert reader.latestOffset(at_entry(2), None) == at_entry(3)  # type: ignore[arg-type]
