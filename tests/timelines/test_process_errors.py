"""An author's code that fails: nothing of the call stays, and the flow stops or goes on as it was told."""

from __future__ import annotations

import json
import math
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, crash, expect, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def step_of(process: Any, **more: Any) -> Any:
    """A step whose process says something of each user."""
    given = {"key": "user", "output": "user STRING, said STRING", **more}
    return hr.process("watch", process, **given).late(hr.side_output())


class Everything(hr.KeyedProcess):
    """Changes all it has and emits, then fails if the row says so."""

    one = hr.value_state("INT", ttl="1 day")
    several = hr.list_state("INT", ttl="1 day")
    named = hr.map_state("STRING", "INT", ttl="1 day")
    total = hr.reducing_state("INT", lambda one, other: one + other, ttl="1 day")

    def on_row(self, row: Any, context: Any) -> Any:
        yield {"user": context.key, "said": self.known()}
        self.one.set(row.n)
        self.several.add(row.n)
        if row.n == 13:
            self.several.set([7])
            self.several.add(8)
            self.several.clear()
            self.named.remove("1")
            self.named.put("2", 99)
            self.named.clear()
            self.named.put("x", 1)
            self.one.clear()
            context.cancel_timer("kept")
        self.named.put(str(row.n), row.n)
        self.total.add(row.n)
        context.set_timer("kept", after=f"{10 + row.n} minutes", payload=row.n)
        context.set_timer(f"of {row.n}", after="1 hour")
        yield hr.output("other", {"user": "other"})
        if row.n == 13:
            raise RuntimeError("unlucky")

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {"user": context.key, "said": f"{timer.name} {timer.payload}"}

    def known(self) -> str:
        return f"{self.one.get()} {self.several.get()} {self.named.items()} {self.total.get()}"


@pytest.mark.parametrize("cut", [[], [watermark("10:02:30")], [watermark("10:02:45"), crash()]])
def test_everything_that_a_failed_call_did_is_undone_and_its_row_is_a_dead_letter(cut: list[Any]) -> None:
    step = step_of(Everything, outputs={"other": "user STRING"}, on_error="dead_letter")
    played = play(
        step,
        at("10:01", user="a", n=1),
        at("10:02", user="a", n=2),
        *cut,
        at("10:03", user="a", n=13),
        at("10:03:30", user="a", n=3),
        watermark("12:00"),
    )
    assert [each["said"] for each in played.main] == [
        "None [] [] None",
        "1 [1] [('1', 1)] 1",
        "2 [1, 2] [('1', 1), ('2', 2)] 3",
        "kept 3",
        "of 1 None",
        "of 2 None",
        "of 3 None",
    ]
    assert len(played.other) == 3
    (letter,) = played.dead_letters
    failed = "step 'watch', key 'a': Everything.on_row failed: RuntimeError: unlucky"
    assert letter["reason"] == "PROCESS_FAILED"
    assert letter["detail"].startswith(f"{failed} (at test_process_errors.py:")
    assert 'raise RuntimeError("unlucky")' in letter["detail"]
    assert json.loads(letter["raw"]) == {"user": "a", "n": 13, "at": "2026-01-01T10:03:00+00:00"}


class Failing(hr.KeyedProcess):
    """Fails for negative numbers."""

    seen = hr.value_state("INT", ttl="1 day")

    def on_row(self, row: Any, context: Any) -> Any:
        self.seen.set((self.seen.get() or 0) + 1)
        if row.n < 0:
            raise ValueError(f"negative {row.n}")
        return [{"user": context.key, "said": f"{row.n} is row {self.seen.get()}"}]


def test_the_flow_stops_unless_something_else_was_said() -> None:
    with pytest.raises(
        hr.HeadraceError, match=r"\[PROCESS_FAILED\] step 'watch', key 'a': Failing.on_row failed: ValueErr"
    ):
        play(step_of(Failing), at("10:01", user="a", n=-1), watermark("11:00"))


def test_a_dead_letter_leaves_the_flow_going_and_the_account_right() -> None:
    timeline(
        step_of(Failing, on_error="dead_letter"),
        at("10:01", user="a", n=1),
        at("10:02", user="a", n=-2),
        at("10:03", user="b", n=-3),
        at("10:30", user="a", n=4),
        watermark("10:10"),
        expect(user="a", said="1 is row 1"),
        expect(
            row(source="watch", origin="step watch"), row(source="watch", origin="step watch"), output="dead_letters"
        ),
        watermark("11:00"),
        expect(user="a", said="4 is row 2"),
        expect(output="dead_letters"),
    )


def test_without_order_it_is_the_same() -> None:
    step = step_of(Failing, on_error="dead_letter", ordered=False)
    played = play(step, at("10:01", user="a", n=1), at("10:02", user="a", n=-2), at("10:00", user="a", n=3))
    assert [each["said"] for each in played.main] == ["1 is row 1", "3 is row 2"]
    assert len(played.dead_letters) == 1


class Tried(hr.KeyedProcess):
    """Fails so often before it succeeds; tries are counted on the object, which is the one thing that is not undone."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries = 0

    def on_row(self, row: Any, context: Any) -> Any:
        self.tries += 1
        context.set_timer(f"try {self.tries}", after="1 minute")
        yield {"user": context.key, "said": f"try {self.tries}"}
        if self.tries <= self.failures:
            raise OSError("not now")

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {"user": context.key, "said": f"timer of {timer.name}"}


def test_a_call_is_tried_again_from_the_state_before_it() -> None:
    step = step_of(Tried(2), on_error=hr.retry(2, then="dead_letter"))
    played = play(step, at("10:01", user="a"), watermark("11:00"))
    assert [each["said"] for each in played.main] == ["try 3", "timer of try 3"]
    assert played.dead_letters == []


def test_after_the_last_try_the_row_is_a_dead_letter_or_the_flow_stops() -> None:
    played = play(
        step_of(Tried(3), on_error=hr.retry(2, then="dead_letter")), at("10:01", user="a"), watermark("11:00")
    )
    assert (played.main, len(played.dead_letters)) == ([], 1)
    with pytest.raises(hr.HeadraceError, match="OSError: not now"):
        play(step_of(Tried(3), on_error=hr.retry(2, then="stop")), at("10:01", user="a"), watermark("11:00"))


def test_a_timer_that_fails_is_gone_and_a_dead_letter() -> None:
    class Timed(hr.KeyedProcess):
        seen = hr.value_state("INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> None:
            self.seen.set(1)
            context.set_timer("bad", after="1 minute", payload=[1])
            context.set_timer("good", after="2 minutes")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"{timer.name} {self.seen.get()}"}
            self.seen.set(2)
            if timer.name == "bad":
                raise RuntimeError("bad timer")

    step = step_of(Timed, on_error="dead_letter")
    played = play(step, at("10:00", user="a"), watermark("10:01"), watermark("10:02"), watermark("11:00"))
    assert [each["said"] for each in played.main] == ["good 1"]
    (letter,) = played.dead_letters
    assert "Timed.on_timer failed: RuntimeError: bad timer" in letter["detail"]
    assert json.loads(letter["raw"]) == {
        "key": "a",
        "timer": "bad",
        "time": "2026-01-01T10:01:00+00:00",
        "payload": [1],
    }


class NoText(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "shown_as"),
    [
        (ValueError("\ud800 is odd"), r"ValueError: \ud800 is odd (at test_process_errors.py:"),
        (NoText(), "NoText: an error whose text cannot be read (at test_process_errors.py:"),
        (SystemExit(3), "SystemExit: 3 (at test_process_errors.py:"),
        (ValueError("x" * 5_000_000), f"ValueError: {'x' * 2_000}... (at test_process_errors.py:"),
    ],
    ids=["surrogate", "no text", "exit", "long"],
)
def test_whatever_a_call_raises_is_told_and_leaves_the_flow_going(error: BaseException, shown_as: str) -> None:
    class Raising(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            if row.n == 1:
                raise error
            context.set_timer("t", after="1 minute")
            return [{"user": context.key}]

        def on_timer(self, timer: Any, context: Any) -> Any:
            raise error

    step = step_of(Raising, on_error=hr.retry(1, then="dead_letter"))
    played = play(step, at("10:00", user="a", n=1), at("10:01", user="b", n=2), watermark("11:00"))
    assert [each["user"] for each in played.main] == ["b"]
    details = sorted(letter["detail"] for letter in played.dead_letters)
    assert [detail.split(" failed: ")[0] for detail in details] == [
        "step 'watch', key 'a': Raising.on_row",
        "step 'watch', key 'b': Raising.on_timer",
    ]
    assert all(shown_as in detail and len(detail) < 25_000 for detail in details)
    # Spark shows an error in its own words, and cuts long ones.
    with pytest.raises(hr.HeadraceError) as stopped:
        play(step_of(Raising), at("10:00", user="a", n=1), watermark("11:00"), engine="inline")
    assert shown_as in str(stopped.value)


def test_a_stop_from_outside_is_no_failure_of_the_call() -> None:
    def stopped(self: Any) -> Any:
        raise KeyboardInterrupt

    # Spark hands it over as an error of its worker.
    with pytest.raises(KeyboardInterrupt):
        play(
            step_of(giving(stopped), on_error="dead_letter"), at("10:00", user="a"), watermark("11:00"), engine="inline"
        )


class Yielding(hr.KeyedProcess):
    """Gives something wrong in the middle of a call."""

    one = hr.value_state("INT", ttl="1 day")

    def on_row(self, row: Any, context: Any) -> Any:
        if row.what == "duration":
            context.set_timer("t", after="soon")  # line of: duration
        if row.what == "type":
            self.one.set("1")  # line of: type
        yield {"user": context.key}
        if row.what == "no dict":
            yield row.what  # line of: no dict
        yield {"user": 7}  # line of: column

    def on_timer(self, timer: Any, context: Any) -> Any:
        """Not set."""


class Returning(hr.KeyedProcess):
    """Gives something wrong when the call is over."""

    def on_row(self, row: Any, context: Any) -> Any:  # line of: returned
        return [{"user": 7}]


@pytest.mark.parametrize("what", ["duration", "type", "no dict", "column", "returned"])
def test_a_failure_names_the_line_of_the_authors_code(what: str) -> None:
    step = step_of(Returning if what == "returned" else Yielding, on_error=hr.retry(1, then="dead_letter"))
    (letter,) = play(step, at("10:00", user="a", what=what), watermark("11:00")).dead_letters
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line of: {what}"))
    assert f"(at test_process_errors.py:{number})" in letter["detail"].splitlines()[0]


def test_a_failure_of_a_ready_detector_names_its_line() -> None:
    step = hr.detectors.impossible_travel("travel", key="user")
    with pytest.raises(hr.HeadraceError, match=r"\(at detectors.py:\d+\)"):
        play(step, at("10:00", user="a", latitude="north", longitude="east"), watermark("11:00"))


def test_the_row_of_a_dead_letter_is_json_whatever_its_values() -> None:
    step = step_of(Failing, on_error="dead_letter")
    values: dict[str, Any] = {
        "x": math.nan,
        "y": [math.inf, 1.5],
        "z": {"a": -math.inf, "b": b"\xff", "c": date(2026, 1, 2)},
    }
    (letter,) = play(step, at("10:00", user="a", n=-1, **values), watermark("11:00")).dead_letters

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(letter["raw"], parse_constant=refuse) == {
        "user": "a",
        "n": -1,
        "x": "NaN",
        "y": ["Infinity", 1.5],
        "z": {"a": "-Infinity", "b": "ff", "c": "2026-01-02"},
        "at": "2026-01-01T10:00:00+00:00",
    }


def giving(emitted: Any, **states: Any) -> type[hr.KeyedProcess]:
    """A process that returns something, or what a function of itself does."""

    class Giving(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            return emitted(self) if callable(emitted) else emitted

    for name, state in states.items():
        setattr(Giving, name, state)
    return Giving


@pytest.mark.parametrize(
    ("emitted", "error"),
    [
        ({"user": "a"}, r"\[OUTPUT_NO_DICT\] output 'main' got 'user'. Yield dicts .* or return a list of dicts"),
        ([("a", "b")], r"\[OUTPUT_NO_DICT\] output 'main' got \('a', 'b'\)"),
        ([None], r"\[OUTPUT_NO_DICT\] output 'main' got None"),
        (7, "TypeError: 'int' object is not iterable"),
        ([{"user": "a", "sayed": "b", "x": 1}], r"\[OUTPUT_COLUMN_UNKNOWN\] output 'main' has no column 'sayed', 'x'"),
        ([{"user": 7}], r"\[OUTPUT_TYPE\] output 'main', column 'user': 7 is not STRING"),
        ([{"user": b"a"}], r"\[OUTPUT_TYPE\] output 'main', column 'user': b'a' is not STRING"),
        ([{"user": "\ud800"}], r"\[OUTPUT_TYPE\] .*not valid Unicode"),
        (
            [hr.output("nowhere", {})],
            r"\[OUTPUT_UNKNOWN\] there is no output 'nowhere'; the outputs are 'main', 'numbers'",
        ),
        ([hr.output("late", {})], r"\[OUTPUT_UNKNOWN\] .* is Headrace's own and takes no rows .* another name"),
        (
            [hr.output("numbers", {"small": 128})],
            r"\[OUTPUT_TYPE\] output 'numbers', column 'small': 128 is not TINYINT",
        ),
        ([hr.output("numbers", {"small": True})], r"True is not TINYINT"),
        ([hr.output("numbers", {"price": 1.5})], r"1.5 is not DECIMAL\(5,2\)"),
        ([hr.output("numbers", {"part": {"a": "x"}})], r"column 'part': 'x' is not INT"),
        ([hr.output("numbers", {"part": {"b": 1}})], r"is not STRUCT<A:INT>"),
        ([hr.output("numbers", {"at_all": "10:00"})], r"'10:00' is not TIMESTAMP"),
    ],
)
def test_what_an_output_does_not_have_is_an_error_of_the_call(emitted: Any, error: str) -> None:
    outputs = {"numbers": "small TINYINT, price DECIMAL(5, 2), part STRUCT<a: INT>, at_all TIMESTAMP"}
    with pytest.raises(hr.HeadraceError, match=error):
        play(step_of(giving(emitted), outputs=outputs), at("10:00", user="a"), watermark("11:00"))
    step = step_of(giving(emitted), outputs=outputs, on_error="dead_letter")
    played = play(step, at("10:00", user="a"), watermark("11:00"))
    assert (played.main, played.numbers, len(played.dead_letters)) == ([], [], 1)


@pytest.mark.spark
def test_an_output_that_a_step_does_not_have_is_told_with_the_step() -> None:
    step = step_of(giving([{"user": "a", "sayed": "b"}]))
    with pytest.raises(
        hr.HeadraceError, match=r"step 'watch', key 'a': .*\[OUTPUT_COLUMN_UNKNOWN\] output 'main' has no"
    ):
        play(step, at("10:00", user="a"), watermark("11:00"))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda self: self.one.set("1"), r"\[STATE_TYPE\] state 'one': '1' is not INT"),
        (
            lambda self: self.one.set(2**31),
            r"\[STATE_TYPE\] state 'one': 2147483648 is not INT: it is out of range",
        ),
        (lambda self: self.one.set(1.0), r"\[STATE_TYPE\] state 'one': 1.0 is not INT"),
        (lambda self: self.several.add([1]), r"\[STATE_TYPE\] state 'several': \[1\] is not INT"),
        (lambda self: self.several.set([1, "x"]), r"\[STATE_TYPE\] state 'several': 'x' is not INT"),
        (lambda self: self.named.put(1, 1), r"\[STATE_TYPE\] state 'named': 1 is not STRING"),
        (lambda self: self.named.put("x", "y"), r"\[STATE_TYPE\] state 'named': 'y' is not INT"),
        (lambda self: self.several.extend(range(4)), r"\[STATE_TOO_LONG\] state 'several' .* most=3"),
        (lambda self: self.several.set(range(4)), r"\[STATE_TOO_LONG\] state 'several' .* most=3"),
        (
            lambda self: self.several.set(7 // (7 - n) for n in range(8)),
            r"\[STATE_TOO_LONG\] state 'several' .* most=3",
        ),
        (lambda self: [self.named.put(str(n), n) for n in range(4)], r"\[STATE_TOO_LONG\] state 'named' .* most=3"),
        (
            lambda self: setattr(self, "one", 1),
            r"\[STATE_ASSIGNED\] state 'one' was assigned a value, .* self\.one\.set\(value\)",
        ),
        (lambda self: setattr(self, "named", {}), r"\[STATE_ASSIGNED\] .* self\.named\.put\(key, value\)"),
        (lambda self: setattr(self, "more", hr.value_state("INT", ttl="1 day")), r"\[STATE_NOT_IN_CLASS\]"),
    ],
)
def test_what_a_state_cannot_hold_is_an_error_of_the_call(change: Any, error: str) -> None:
    process = giving(
        change,
        one=hr.value_state("INT", ttl="1 day"),
        several=hr.list_state("INT", ttl="1 day", most=3),
        named=hr.map_state("STRING", "INT", ttl="1 day", most=3),
    )
    with pytest.raises(hr.HeadraceError, match=error):
        play(step_of(process), at("10:00", user="a"), watermark("11:00"))


def test_a_list_may_be_as_long_as_it_may_be_and_what_is_over_makes_room() -> None:
    class Long(hr.KeyedProcess):
        several = hr.list_state("INT", ttl="10 minutes", most=2)
        named = hr.map_state("INT", "INT", ttl="10 minutes", most=2)

        def on_row(self, row: Any, context: Any) -> Any:
            self.several.add(row.n)
            self.named.put(row.n, row.n)
            yield {"user": context.key, "said": f"{self.several.get()} {self.named.keys()}"}

    rows = [
        at("10:00", user="a", n=0),
        at("10:05", user="a", n=1),
        at("10:10", user="a", n=2),
        at("10:12", user="a", n=3),
    ]
    played = play(step_of(Long, on_error="dead_letter"), *rows, watermark("11:00"))
    assert [each["said"] for each in played.main] == ["[0] [0]", "[0, 1] [0, 1]", "[1, 2] [1, 2]"]
    assert "[STATE_TOO_LONG] state 'several' would hold more than most=2 values" in played.dead_letters[0]["detail"]
