"""Keys: one or several columns of any ordinary type; equal values are one key, null is a value."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

NAN = float("nan")


def per_hour(*key: str, late: Any = None) -> Any:
    return hr.tumbling("per_hour", size="1 hour", key=key).agg(n="count(*)").late(late or hr.side_output())


def both_times(values: list[Any]) -> tuple[Any, ...]:
    """Every value once in each of two batches, with a crash between, so that state is read by key again."""
    first = [at("10:05", key=value) for value in values]
    second = [at("10:10", key=value) for value in reversed(values)]
    return (*first, batch(), *second, crash(), batch(), watermark("11:00"))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["", "a", "A", "ä", "a\u0308", "日本", "😀", " a", "a\x00b", "x" * 100, None], id="text"),
        pytest.param([0, 1, -1, 2**62, -(2**63), 2**63 - 1, None], id="whole numbers"),
        pytest.param([True, False, None], id="booleans"),
        pytest.param([0.5, -0.5, 1e300, float("inf"), float("-inf"), 5e-324, None], id="floats"),
        pytest.param(
            [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("9" * 30 + ".00"), None], id="decimals"
        ),
        pytest.param([date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1), date(9999, 12, 31), None], id="dates"),
        pytest.param(
            [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2026, 1, 1, tzinfo=UTC), None], id="timestamps"
        ),
        pytest.param([b"", b"\x00", b"\xff\xfe", None], id="bytes"),
        pytest.param(
            [timedelta(0), timedelta(microseconds=-1), timedelta(hours=1), timedelta(days=400_000), None],
            id="intervals",
        ),
    ],
)
def test_every_value_of_a_type_is_a_key_of_its_own_and_null_is_one(values: list[Any]) -> None:
    timeline(per_hour("key"), *both_times(values), expect(*(row(key=value, n=2) for value in values)))


def test_all_nan_are_one_key() -> None:
    timeline(per_hour("key"), *both_times([NAN, -NAN, 1.0]), expect(row(key=NAN, n=4), row(key=1.0, n=2)))


def test_minus_zero_is_zero() -> None:
    timeline(per_hour("key"), *both_times([-0.0, 0.0]), expect(key=0.0, n=4))


def test_decimals_are_equal_whatever_zeros_they_are_written_with() -> None:
    timeline(per_hour("key"), *both_times([Decimal("1.5"), Decimal("1.50")]), expect(key=Decimal("1.50"), n=4))


@pytest.mark.spark
def test_several_columns_of_different_types_with_null_nan_and_zero_are_one_key() -> None:
    keys: list[dict[str, Any]] = [
        {"name": "a", "level": 1.0, "day": date(2026, 1, 1), "open": True},
        {"name": None, "level": 1.0, "day": date(2026, 1, 1), "open": True},
        {"name": "a", "level": None, "day": date(2026, 1, 1), "open": True},
        {"name": "a", "level": NAN, "day": None, "open": None},
        {"name": None, "level": None, "day": None, "open": None},
        {"name": "ä😀", "level": 0.0, "day": date(1969, 12, 31), "open": False},
    ]
    minus = {**keys[-1], "level": -0.0}
    timeline(
        per_hour("name", "level", "day", "open"),
        *(at("10:05", **key) for key in keys),
        batch(),
        *(at("10:10", **key) for key in keys),
        at("10:10", **minus),
        watermark("11:00"),
        expect(*(row(**key, n=2) for key in keys[:-1]), row(**keys[-1], n=3)),
    )


def test_the_order_of_two_columns_tells_keys_apart() -> None:
    timeline(
        per_hour("one", "other"),
        at("10:05", one="a", other="b"),
        at("10:05", one="b", other="a"),
        at("10:05", one="ab", other=""),
        at("10:05", one="", other="ab"),
        at("10:05", one=None, other="ab"),
        at("10:05", one="ab", other=None),
        watermark("11:00"),
        expect(
            row(one="a", other="b", n=1),
            row(one="b", other="a", n=1),
            row(one="ab", other="", n=1),
            row(one="", other="ab", n=1),
            row(one=None, other="ab", n=1),
            row(one="ab", other=None, n=1),
        ),
    )


def test_a_late_row_corrects_the_window_of_a_null_key_and_of_a_nan_key() -> None:
    for key in (None, NAN):
        played = play(
            per_hour("key", late=hr.update_for("1 hour")),
            at("10:05", key=key),
            at("10:05", key=1.0),
            watermark("11:00"),
            at("10:06", key=key),
            batch(),
        )
        last = played.main[-1]
        assert (repr(last["key"]), last["n"], last["pane"], last["revision"]) == (repr(key), 2, "late", 1)
        assert len(played.main) == 3


def test_a_late_row_is_set_aside_as_it_came() -> None:
    played = play(per_hour("key"), at("10:05", key=1.0), watermark("11:00"), at("10:06", key=-0.0), batch())
    assert [repr(late["key"]) for late in played.late] == ["-0.0"]


def test_a_key_that_is_a_list_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[KEY_TYPE\] step 'per_hour': key column 'key'"):
        timeline(per_hour("key"), at("10:05", key=[1]))


def test_a_key_that_does_not_exist_is_refused_with_the_columns_that_do() -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[COLUMN_UNKNOWN\].*'konto'.*Existing columns: account, at"):
        timeline(per_hour("konto"), at("10:05", account="a"))
