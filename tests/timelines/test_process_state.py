"""The state of a process: every kind of it, how long its values live, and that their bytes are given back."""

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def step_of(process: Any, **more: Any) -> Any:
    """A step whose process says something of each user."""
    return hr.process("watch", process, **{"key": "user", "output": "said STRING", **more}).late(hr.side_output())


def said(process: Any, *elements: Any, **more: Any) -> list[str]:
    """What the process says when elements are played and all rows have had their turn."""
    return [each["said"] for each in play(step_of(process, **more), *elements, watermark("23:00")).main]


def last_value(**life: Any) -> type[hr.KeyedProcess]:
    """Tells the value that it knows, then sets that of the row, unless there is none."""

    class LastValue(hr.KeyedProcess):
        last = hr.value_state("BIGINT", **life)

        def on_row(self, row: Any, context: Any) -> Any:
            yield {"said": f"{context.time:%M:%S} {self.last.get()}"}
            if row.n is not None:
                self.last.set(row.n)

    return LastValue


@pytest.mark.spark
def test_a_value_is_gone_exactly_when_its_time_to_live_is_over() -> None:
    timeline(
        step_of(last_value(ttl="10 minutes")),
        at("10:00", user="a", n=1),
        watermark("10:00:01"),
        expect(said="00:00 None"),
        at("10:09:59.999999", user="a", n=None),
        at("10:10", user="a", n=None),
        watermark("10:30"),
        expect(row(said="09:59 1"), row(said="10:00 None")),
    )


def test_a_value_written_again_lives_from_then_on() -> None:
    rows = [at("10:00", user="a", n=1), at("10:05", user="a", n=2), at("10:14", user="a", n=None)]
    later = at("10:15", user="a", n=None)
    assert said(last_value(ttl="10 minutes"), *rows, later) == ["00:00 None", "05:00 1", "14:00 2", "15:00 None"]


def test_a_value_lives_as_long_whatever_the_batches_and_however_far_the_watermark_is() -> None:
    rows = [at("10:00", user="a", n=1), at("10:09", user="a", n=None), at("10:10", user="a", n=None)]
    wanted = ["00:00 None", "09:00 1", "10:00 None"]
    assert said(last_value(ttl="10 minutes"), *rows) == wanted
    for cut in ("10:00", "10:08", "10:09:30"):
        assert said(last_value(ttl="10 minutes"), rows[0], rows[1], watermark(cut), rows[2]) == wanted


@pytest.mark.spark
def test_an_expired_value_is_not_seen_right_after_a_restart() -> None:
    timeline(
        step_of(last_value(ttl="10 minutes")),
        at("10:00", user="a", n=1),
        watermark("10:01"),
        expect(said="00:00 None"),
        crash(),
        at("10:10", user="a", n=None),
        crash(),
        watermark("10:11"),
        expect(said="10:00 None"),
    )


def test_reading_renews_a_value_when_that_is_said() -> None:
    rows = [at("10:00", user="a", n=1), *(at(f"10:{minute}", user="a", n=None) for minute in ("09", "18", "27", "37"))]
    renewed = last_value(ttl="10 minutes", refresh="read_and_write")
    assert said(renewed, *rows) == ["00:00 None", "09:00 1", "18:00 1", "27:00 1", "37:00 None"]
    assert said(last_value(ttl="10 minutes"), *rows)[2:] == ["18:00 None", "27:00 None", "37:00 None"]


def test_a_value_kept_for_ever_is_there_after_any_time() -> None:
    rows = [at("2000-01-01T10:00", user="a", n=1), at("10:00", user="a", n=None)]
    assert said(last_value(keep_forever=True), *rows) == ["00:00 None", "00:00 1"]


@pytest.mark.spark
@pytest.mark.streamed
def test_a_time_to_live_by_the_clock_runs_with_processing_time() -> None:
    timeline(
        step_of(last_value(ttl="10 minutes", ttl_time="clock"), ordered=False),
        clock("12:00"),
        at("10:00", user="a", n=1),
        batch(),
        expect(said="00:00 None"),
        clock("12:09:59"),
        at("11:00", user="a", n=None),
        batch(),
        expect(said="00:00 1"),
        clock("12:10"),
        at("11:01", user="a", n=None),
        batch(),
        expect(said="01:00 None"),
    )


def test_without_order_a_value_is_judged_by_the_time_of_the_row_that_reads_it() -> None:
    rows = [at("10:20", user="a", n=1), at("10:05", user="a", n=None), at("10:29", user="a", n=None)]
    later = at("10:30", user="a", n=None)
    assert said(last_value(ttl="10 minutes"), *rows, later, ordered=False) == [
        "20:00 None",
        "05:00 1",
        "29:00 1",
        "30:00 None",
    ]


def test_without_order_reading_renews_a_value_and_never_shortens_its_life() -> None:
    class Renewed(hr.KeyedProcess):
        one = hr.value_state("INT", ttl="15 minutes", refresh="read_and_write")
        several = hr.list_state("INT", ttl="15 minutes", refresh="read_and_write")
        asked = hr.map_state("STRING", "INT", ttl="15 minutes", refresh="read_and_write")
        listed = hr.map_state("STRING", "INT", ttl="15 minutes", refresh="read_and_write")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.do == "write":
                self.one.set(1)
                self.several.add(1)
                self.asked.put("x", 1)
                self.listed.put("x", 1)
            yield {"said": f"{self.one.get()} {self.several.get()} {self.asked.get('x')} {self.listed.items()}"}

    rows = [at("10:30", user="a", do="write"), at("10:10", user="a", do="read"), at("10:40", user="a", do="read")]
    assert said(Renewed, *rows, ordered=False) == ["1 [1] 1 [('x', 1)]"] * 3


@pytest.mark.streamed
def test_before_any_watermark_a_clock_timer_sees_what_is_not_older_than_the_key_itself() -> None:
    class Ticking(hr.KeyedProcess):
        one = hr.value_state("INT", ttl="15 minutes")
        several = hr.list_state("INT", ttl="15 minutes")
        named = hr.map_state("INT", "INT", ttl="15 minutes")

        def on_row(self, row: Any, context: Any) -> None:
            self.one.set(row.n)
            self.several.add(row.n)
            self.named.put(row.n, row.n)
            context.set_clock_timer("one", after="1 minute")
            context.set_clock_timer("two", after="1 minute")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": f"{self.one.get()} {self.several.get()} {self.named.keys()} {context.time:%H:%M}"}
            self.one.set(3)

    timeline(
        step_of(Ticking, ordered=False),
        clock("12:00"),
        at("10:00", user="a", n=1),
        at("10:20", user="a", n=2),
        batch(),
        clock("12:05"),
        batch(),
        expect(row(said="2 [2] [2] 12:05", at="12:05"), row(said="3 [2] [2] 12:05", at="12:05")),
    )


class Kinds(hr.KeyedProcess):
    """Adds a row's number to each kind of state, then tells all of them; a reducing state is renewed as a whole."""

    values = hr.list_state("BIGINT", ttl="10 minutes")
    entries = hr.map_state("STRING", "BIGINT", ttl="10 minutes")
    largest = hr.reducing_state("BIGINT", max, ttl="10 minutes")

    def on_row(self, row: Any, context: Any) -> Any:
        if row.n is not None:
            self.values.add(row.n)
            self.entries.put("odd" if row.n % 2 else "even", row.n)
            self.largest.add(row.n)
        yield {"said": f"{self.values.get()} {dict(self.entries.items())} {self.largest.get()}"}


def test_elements_and_entries_have_times_of_their_own() -> None:
    rows = [at("10:00", user="a", n=5), at("10:04", user="a", n=2), at("10:10", user="a", n=3)]
    cut = [element for each in rows for element in (each, batch())]
    wanted = [
        "[5] {'odd': 5} 5",
        "[5, 2] {'even': 2, 'odd': 5} 5",
        "[2, 3] {'even': 2, 'odd': 3} 5",
        "[3] {'odd': 3} 5",
        "[] {} None",
    ]
    quiet = [at("10:14", user="a", n=None), at("10:20", user="a", n=None)]
    assert said(Kinds, *rows, *quiet) == wanted
    assert said(Kinds, *cut, *quiet) == wanted
    assert said(Kinds, *rows, watermark("10:12"), crash(), *quiet) == wanted


def test_a_list_can_be_extended_replaced_and_cleared() -> None:
    class Lists(hr.KeyedProcess):
        values = hr.list_state("ARRAY<INT>", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.do == "extend":
                self.values.extend([[1, 2], []])
            elif row.do == "set":
                self.values.set([[7]])
            elif row.do == "clear":
                self.values.clear()
            self.values.get().append("not in the state")
            yield {"said": str(self.values.get())}

    rows = [at(f"10:0{n}", user="a", do=do) for n, do in enumerate(["extend", "extend", "set", "extend", "clear"])]
    cut = [element for each in rows for element in (each, watermark(f"10:0{rows.index(each)}:01"))]
    wanted = ["[[1, 2], []]", "[[1, 2], [], [1, 2], []]", "[[7]]", "[[7], [1, 2], []]", "[]"]
    assert said(Lists, *rows) == said(Lists, *cut) == wanted


def test_a_map_knows_a_key_however_it_is_written() -> None:
    class Maps(hr.KeyedProcess):
        times = hr.map_state("TIMESTAMP", "INT", ttl="1 day")
        levels = hr.map_state("DOUBLE", "INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            time, nan = datetime(2026, 1, 1), float("nan")
            had = self.times.contains(time), self.levels.contains(nan)
            self.times.put(time, row.n)
            self.levels.put(nan, row.n)
            now = self.times.get(time), self.levels.get(nan), len(self.levels.keys())
            if row.n == 2:
                self.times.remove(time)
                self.levels.remove(nan)
            yield {"said": f"{had} {now}"}

    rows = [at(f"10:0{n}", user="a", n=n) for n in range(4)]
    cut = [element for each in rows for element in (each, watermark(f"10:0{rows.index(each)}:01"), crash())]
    new, known = "(False, False)", "(True, True)"
    wanted = [f"{had} ({n}, {n}, 1)" for n, had in enumerate([new, known, known, new])]
    assert said(Maps, *rows) == said(Maps, *cut) == wanted


def test_a_value_is_what_its_type_holds_from_the_moment_it_is_set() -> None:
    class Sums(hr.KeyedProcess):
        short = hr.value_state("FLOAT", ttl="1 day")
        exact = hr.value_state("DECIMAL(10,2)", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            self.short.set((self.short.get() or 0.0) + 0.1)
            self.exact.set((self.exact.get() or Decimal(0)) + Decimal("0.5"))
            yield {"said": f"{self.short.get()} {self.exact.get()}"}

    rows = [at(f"10:0{n}", user="a") for n in range(3)]
    cut = [element for each in rows for element in (each, watermark(f"10:0{rows.index(each)}:01"), crash())]
    assert said(Sums, *rows) == said(Sums, *cut)
    assert said(Sums, *rows)[1] == "0.20000000298023224 1.00"


@pytest.mark.parametrize(
    ("sql", "value", "fits"),
    [
        ("DECIMAL(2,2)", Decimal("0.00"), True),
        ("DECIMAL(38,2)", Decimal("123456789012345678901234567890.12"), True),
        ("DECIMAL(38,2)", Decimal("123456789012345678901234567890.126"), False),
        ("DECIMAL(4,2)", Decimal("100"), False),
        ("DECIMAL(4,2)", Decimal("1E-30"), False),
        ("DECIMAL(4,2)", Decimal("0E+50"), True),
        ("FLOAT", 1e300, False),
        ("FLOAT", float("inf"), True),
    ],
)
def test_a_number_that_its_type_cannot_hold_is_an_error(sql: str, value: Any, fits: bool) -> None:
    class Holds(hr.KeyedProcess):
        value = hr.value_state(sql, ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            self.value.set(value)
            yield {"said": str(self.value.get() == value)}

    if fits:
        assert said(Holds, at("10:00", user="a")) == ["True"]
    else:
        with pytest.raises(hr.HeadraceError, match=r"\[STATE_TYPE\] state 'value': .* is not " + re.escape(sql)):
            said(Holds, at("10:00", user="a"))


def test_a_map_finds_keeps_and_forgets_keys() -> None:
    class Maps(hr.KeyedProcess):
        entries = hr.map_state("INT", "STRING", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.n > 0:
                self.entries.put(row.n, str(row.n))
            elif row.n < 0:
                self.entries.remove(-row.n)
            else:
                self.entries.clear()
            keys = self.entries.keys()
            yield {"said": f"{keys} {self.entries.contains(2)} {self.entries.get(2)} {self.entries.get(3, 'no')}"}

    rows = [at(f"10:0{place}", user="a", n=n) for place, n in enumerate([2, 1, 3, -2, -2, 2, 0])]
    cut = [element for each in rows for element in (each, watermark(f"10:0{rows.index(each)}:01"))]
    wanted = [
        "[2] True 2 no",
        "[1, 2] True 2 no",
        "[1, 2, 3] True 2 3",
        "[1, 3] False None 3",
        "[1, 3] False None 3",
        "[1, 2, 3] True 2 3",
        "[] False None no",
    ]
    assert said(Maps, *rows) == said(Maps, *cut) == wanted


def test_asking_whether_a_map_has_a_key_renews_its_entry() -> None:
    class Renewed(hr.KeyedProcess):
        entries = hr.map_state("STRING", "INT", ttl="10 minutes", refresh="read_and_write")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.do == "write":
                self.entries.put("x", 1)
                self.entries.put("y", 2)
            elif row.do == "ask":
                yield {"said": str(self.entries.contains("x"))}
            else:
                yield {"said": str(self.entries.items())}

    rows = [at("10:00", user="a", do="write"), at("10:08", user="a", do="ask"), at("10:16", user="a", do="all")]
    assert said(Renewed, *rows) == said(Renewed, *rows[:2], watermark("10:09"), rows[2]) == ["True", "[('x', 1)]"]


def test_reading_a_map_or_a_list_renews_what_is_read() -> None:
    class Renewed(hr.KeyedProcess):
        values = hr.list_state("INT", ttl="10 minutes", refresh="read_and_write")
        entries = hr.map_state("STRING", "INT", ttl="10 minutes", refresh="read_and_write")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.do == "write":
                self.values.add(1)
                self.entries.put("x", 1)
                self.entries.put("y", 2)
            elif row.do == "read":
                yield {"said": f"{self.values.get()} {self.entries.get('x')}"}
            else:
                yield {"said": f"{self.values.get()} {self.entries.items()}"}

    rows = [at("10:00", user="a", do="write"), at("10:08", user="a", do="read"), at("10:16", user="a", do="all")]
    later = [at("10:25", user="a", do="all"), at("10:35", user="a", do="all")]
    wanted = ["[1] 1", "[1] [('x', 1)]", "[1] [('x', 1)]", "[] []"]
    assert said(Renewed, *rows, *later) == wanted
    assert said(Renewed, *rows, watermark("10:17"), *later) == wanted


class Spread(hr.Accumulator):
    """The distance between the smallest and the largest value."""

    state = "low BIGINT, high BIGINT"
    result_type = "BIGINT"

    def start(self) -> dict[str, Any]:
        return {"low": None, "high": None}

    def add(self, kept: dict[str, Any], value: int) -> dict[str, Any]:
        kept["low"] = value if kept["low"] is None else min(kept["low"], value)
        kept["high"] = value if kept["high"] is None else max(kept["high"], value)
        return kept

    def merge(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}

    def result(self, kept: dict[str, Any]) -> int:
        return int(kept["high"] - kept["low"])


@pytest.mark.parametrize("accumulator", [Spread, Spread("n")], ids=["class", "instance"])
def test_an_aggregating_state_keeps_what_an_accumulator_keeps(accumulator: Any) -> None:
    class Spreads(hr.KeyedProcess):
        spread = hr.aggregating_state(accumulator, ttl="10 minutes")

        def on_row(self, row: Any, context: Any) -> Any:
            before = self.spread.get()
            self.spread.add(row.n)
            yield {"said": f"{before} {self.spread.get()}"}

    rows = [
        at("10:00", user="a", n=5),
        at("10:01", user="a", n=9),
        at("10:02", user="a", n=4),
        at("10:12", user="a", n=1),
    ]
    wanted = ["None 0", "0 4", "4 5", "None 0"]
    assert said(Spreads, *rows) == wanted
    assert said(Spreads, *rows[:2], watermark("10:01:30"), *rows[2:]) == wanted


VALUES = {
    "BOOLEAN": True,
    "TINYINT": -128,
    "BIGINT": 2**63 - 1,
    "FLOAT": 0.5,
    "DOUBLE": 1e300,
    "DECIMAL(10, 2)": Decimal("-12345678.90"),
    "STRING": "zwölf \N{SNOWMAN}",
    "BINARY": b"\x00\xff",
    "DATE": date(2026, 2, 28),
    "TIMESTAMP": datetime(2026, 2, 28, 12, 0, 0, 1, tzinfo=UTC),
    "TIMESTAMP_NTZ": datetime(2026, 2, 28, 12),
    "INTERVAL DAY TO SECOND": timedelta(days=-1, microseconds=1),
    "ARRAY<STRING>": ["a", None],
    "STRUCT<a: INT, b: ARRAY<STRUCT<c: DATE>>>": {"a": None, "b": [{"c": date(2026, 1, 1)}]},
}


@pytest.mark.parametrize("sql", VALUES)
def test_values_of_every_type_come_back_as_they_went(sql: str) -> None:
    value = VALUES[sql]

    class Keeping(hr.KeyedProcess):
        one = hr.value_state(sql, ttl="1 day")
        several = hr.list_state(sql, ttl="1 day")
        named = hr.map_state("STRING", sql, ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            if row.n == 0:
                self.one.set(value)
                self.several.set([value, None])
                self.named.put("x", value)
            else:
                right = (self.one.get(), self.several.get(), self.named.items()) == (
                    value,
                    [value, None],
                    [("x", value)],
                )
                yield {"said": f"{right} {type(self.one.get()).__name__}"}

    rows = [at("10:00", user="a", n=0), watermark("10:01"), at("10:01", user="a", n=1)]
    assert said(Keeping, *rows) == [f"True {type(value).__name__}"]


def test_none_clears_a_value() -> None:
    class Clearing(hr.KeyedProcess):
        one = hr.value_state("INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            before = self.one.get()
            self.one.set(row.n)
            yield {"said": f"{before} {self.one.get()}"}

    rows = [at("10:00", user="a", n=1), at("10:01", user="a", n=None), at("10:02", user="a", n=2)]
    assert said(Clearing, *rows) == ["None 1", "1 None", "None 2"]


def test_two_keys_never_see_each_others_state() -> None:
    rows = [at(f"10:{n:02d}", user="abc"[n % 3], n=n) for n in range(9)]
    assert sorted(said(last_value(ttl="1 day"), *rows)) == sorted(
        ["00:00 None", "01:00 None", "02:00 None", *(f"0{n}:00 {n - 3}" for n in range(3, 9))]
    )
