"""The changelog type."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.changelog import CHANGES, check_changelog, is_setting, sortable
from headrace.errors import DefinitionError


def test_positions_sort_as_their_numbers_up_to_the_largest() -> None:
    numbers = [0, 7, 10, 2**63 - 1]
    found = pl.DataFrame({"n": numbers}).select(sortable(pl.col("n")))["n"].to_list()
    assert found == sorted(found)
    assert [int(text) for text in found] == numbers
    assert found[1:3] == ["00000000000000000007", "00000000000000000010"]
    assert {len(text) for text in found} == {20}


def test_every_change_either_sets_or_removes() -> None:
    found = pl.DataFrame({"change": CHANGES}).select(is_setting())["change"].to_list()
    assert dict(zip(CHANGES, found, strict=True)) == {
        "insert": True,
        "update_after": True,
        "delete": False,
        "update_before": False,
    }


def test_rows_that_are_no_changelog_are_refused_with_what_they_lack() -> None:
    with pytest.raises(DefinitionError, match=r"\[CHANGELOG_EXPECTED\] step 's' takes .* the rows have no position\."):
        check_changelog("s", {"id": pl.Int64(), "change": pl.String()})
    with pytest.raises(DefinitionError, match=r"the left rows have no change, position Int64\."):
        check_changelog("s", {"position": pl.Int64()}, side="the left rows")
