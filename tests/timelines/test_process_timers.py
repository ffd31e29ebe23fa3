"""Timers of a process: when they fire, in which order with rows, by name, by event time and by the clock."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, batch, clock, crash, expect, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def step_of(process: Any, **more: Any) -> Any:
    """A step whose process says something of each user."""
    given = {"key": "user", "output": "user STRING, said STRING", **more}
    return hr.process("watch", process, **given).late(hr.side_output())


def said(process: Any, *elements: Any, **more: Any) -> list[str]:
    """What the process says when elements are played and all rows have had their turn."""
    return [each["said"] for each in play(step_of(process, **more), *elements, watermark("23:00")).main]


def quiet_for(duration: str) -> type[hr.KeyedProcess]:
    """Tells of users that have been quiet for so long, with the number of rows before."""

    class Quiet(hr.KeyedProcess):
        seen = hr.value_state("INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> None:
            self.seen.set((self.seen.get() or 0) + 1)
            context.set_timer("quiet", after=duration, payload={"rows": self.seen.get()})

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"{timer.name} after {timer.payload['rows']}"}
            self.seen.clear()

    return Quiet


@pytest.mark.spark
def test_a_timer_fires_without_any_input_once_and_after_a_crash_too() -> None:
    timeline(
        step_of(quiet_for("10 minutes")),
        at("10:00", user="a"),
        at("10:05", user="a"),
        at("10:07", user="b"),
        watermark("10:10"),
        expect(),
        crash(),
        watermark("10:14:59.999999"),
        expect(),
        watermark("10:15"),
        expect(user="a", said="quiet after 2", at="10:15"),
        crash(),
        watermark("11:00"),
        expect(user="b", said="quiet after 1", at="10:17"),
        watermark("12:00"),
        expect(),
    )


def test_a_timer_of_the_same_name_replaces_the_one_before_whether_earlier_or_later() -> None:
    class Moved(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("t", after=row.after, payload=row.after)

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": f"{timer.payload} at {context.time:%H:%M}"}

    put_off = [at("10:00", user="a", after="5 minutes"), at("10:01", user="a", after="20 minutes")]
    brought_forward = [at("10:00", user="a", after="20 minutes"), at("10:01", user="a", after="5 minutes")]
    both = [*brought_forward, at("10:02", user="a", after="30 minutes")]
    for cut in ([], [batch()], [watermark("10:01:30")], [watermark("10:01:30"), crash()]):
        assert said(Moved, *put_off, *cut) == ["20 minutes at 10:21"]
        assert said(Moved, *brought_forward, *cut) == ["5 minutes at 10:06"]
        assert said(Moved, *both[:2], *cut, both[2]) == ["30 minutes at 10:32"]


class Merged(hr.KeyedProcess):
    """Tells of rows and of the timer that each sets."""

    def on_row(self, row: Any, context: Any) -> Any:
        context.set_timer(f"of {row.n}", after="2 minutes")
        yield {"said": f"row {row.n}"}

    def on_timer(self, timer: Any, context: Any) -> Any:
        yield {"said": f"timer {timer.name} {context.time:%M:%S}"}


def test_rows_and_timers_are_merged_by_time_and_a_timer_fires_before_a_row_at_its_time() -> None:
    rows = [at(f"10:0{n}", user="a", n=n) for n in (0, 1, 2, 5)]
    wanted = [
        "row 0",
        "row 1",
        "timer of 0 02:00",
        "row 2",
        "timer of 1 03:00",
        "timer of 2 04:00",
        "row 5",
        "timer of 5 07:00",
    ]
    assert said(Merged, *rows) == wanted
    assert said(Merged, *reversed(rows)) == wanted
    for cut in ("10:01", "10:02", "10:02:01", "10:04"):
        assert said(Merged, *rows[:3], watermark(cut), rows[3]) == wanted


def test_timers_at_the_same_time_fire_in_the_order_of_their_names() -> None:
    class Named(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            for name in ("c", "a", "b"):
                context.set_timer(name, after="1 minute")

        def on_timer(self, timer: Any, context: Any) -> Any:
            return [{"said": timer.name}]

    assert said(Named, at("10:00", user="x")) == ["a", "b", "c"]
    assert said(Named, at("10:00", user="x"), watermark("10:00:01"), crash()) == ["a", "b", "c"]


def test_a_timer_for_the_past_fires_at_once_before_the_next_row_at_the_time_of_the_call() -> None:
    class Past(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"row {row.n}"}
            context.set_timer("past", at=datetime(2026, 1, 1, 9, tzinfo=UTC))
            context.set_timer("now", after="0 seconds")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"{timer.name} {timer.time:%H:%M}"}

    timeline(
        step_of(Past),
        at("10:00", user="a", n=1),
        at("10:00", user="a", n=2),
        watermark("10:00:00.000001"),
        expect(
            row(user="a", said="row 1", at="10:00"),
            row(user="a", said="past 09:00", at="10:00"),
            row(user="a", said="now 10:00", at="10:00"),
            row(user="a", said="row 2", at="10:00"),
            row(user="a", said="past 09:00", at="10:00"),
            row(user="a", said="now 10:00", at="10:00"),
        ),
    )


@pytest.mark.streamed
def test_a_cancelled_timer_does_not_fire_and_cancelling_nothing_is_no_mistake() -> None:
    class Cancelled(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.cancel_timer("t")
            context.cancel_clock_timer("c")
            if row.n == 0:
                context.set_timer("t", after="5 minutes")
                context.set_clock_timer("c", after="5 minutes")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": timer.name}

    rows = [at("10:00", user="a", n=0), at("10:04", user="a", n=1)]
    later = [clock("2026-01-02T01:00:00"), batch()]
    assert said(Cancelled, rows[0], watermark("10:04"), rows[1], watermark("10:05"), *later) == []
    assert said(Cancelled, rows[0], watermark("10:06"), *later) == ["t", "c"]


@pytest.mark.spark
@pytest.mark.streamed
def test_event_and_clock_timers_live_side_by_side_each_by_its_own_time() -> None:
    class Both(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("t", after="10 minutes")
            context.set_clock_timer("t", after="10 minutes")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"{'clock' if timer.clock else 'event'} {timer.time:%H:%M}"}

    timeline(
        step_of(Both),
        clock("12:00"),
        at("10:00", user="a"),
        watermark("10:01"),
        clock("12:09:59"),
        batch(),
        expect(),
        clock("12:10"),
        batch(),
        expect(user="a", said="clock 12:10", at="10:01"),
        crash(),
        watermark("10:10"),
        expect(user="a", said="event 10:10", at="10:10"),
        clock("13:00"),
        watermark("11:00"),
        expect(),
    )


@pytest.mark.streamed
def test_clock_timers_fire_after_rows_and_event_timers_of_the_batch() -> None:
    class Both(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            context.set_clock_timer("clock", after="0 seconds")
            context.set_timer("event", after="5 minutes")
            yield {"said": f"row {row.n}"}

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": timer.name}

    rows = [at("10:00", user="a", n=1), at("10:01", user="a", n=2), watermark("10:30")]
    assert said(Both, *rows) == ["row 1", "row 2", "event", "clock"]


@pytest.mark.streamed
def test_before_any_watermark_a_clock_timer_carries_the_time_of_the_clock() -> None:
    class Ticking(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_clock_timer("tick", after="1 minute")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"{context.watermark}"}

    timeline(
        step_of(Ticking, ordered=False),
        clock("12:00"),
        at("10:00", user="a"),
        batch(),
        clock("12:05"),
        batch(),
        expect(user="a", said="None", at="12:05"),
    )


def test_a_timer_may_set_the_next_one() -> None:
    class Heartbeat(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("beat", after="1 minute", payload=1)

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": f"{timer.payload} {context.time:%M}"}
            if timer.payload < 4:
                context.set_timer("beat", after="1 minute", payload=timer.payload + 1)

    wanted = ["1 01", "2 02", "3 03", "4 04"]
    assert said(Heartbeat, at("10:00", user="a")) == wanted
    assert said(Heartbeat, at("10:00", user="a"), watermark("10:02"), crash(), watermark("10:03")) == wanted


def test_timers_reach_state_and_may_emit_to_side_outputs() -> None:
    class Summing(hr.KeyedProcess):
        total = hr.reducing_state("BIGINT", lambda one, other: one + other, ttl="1 day")

        def on_row(self, row: Any, context: Any) -> None:
            self.total.add(row.n)
            context.set_timer("tell", at=datetime(2026, 1, 1, 11))

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield hr.output("totals", {"user": context.key, "total": self.total.get()})
            self.total.clear()

    step = step_of(Summing, outputs={"totals": "user STRING, total BIGINT"})
    timeline(
        step,
        *(at("10:00", user="a", n=n) for n in (1, 2, 3)),
        watermark("11:00"),
        expect(user="a", total=6, at="11:00", output="totals"),
        expect(),
    )


def test_without_order_timers_fire_after_the_rows_of_the_batch() -> None:
    rows = [at("10:00", user="a", n=0), at("10:05", user="a", n=5)]
    played = play(step_of(Merged, ordered=False), *rows, batch(), watermark("10:02"), watermark("10:30"))
    assert [each["said"] for each in played.main] == ["row 0", "row 5", "timer of 0 02:00", "timer of 5 07:00"]


@pytest.mark.streamed
def test_without_order_a_timer_for_the_past_fires_when_the_watermark_is_there_and_never_before_the_last_one() -> None:
    class Past(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("passed", at=NINE)
            context.set_timer("to come", at=datetime(2026, 1, 1, 9, 50))

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": timer.name}

    timeline(
        step_of(Past, ordered=False),
        watermark("09:30"),
        at("10:00", user="a"),
        watermark("09:40"),
        expect(user="a", said="passed", at="09:30"),
        watermark("09:50"),
        expect(user="a", said="to come", at="09:50"),
    )


def test_timers_that_set_timers_for_the_past_for_ever_are_told() -> None:
    class Endless(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("again", after="0 seconds")

        def on_timer(self, timer: Any, context: Any) -> None:
            context.set_timer("again", after="0 seconds")

    with pytest.raises(hr.HeadraceError, match=r"\[TIMER_LOOP\] the timers of key 'a' .* 10000 times"):
        said(Endless, at("10:00", user="a"))


def test_many_rows_that_each_set_a_timer_for_the_past_are_no_endless_loop() -> None:
    class Past(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer(str(row.n), after="0 seconds")

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": timer.name}

    rows = [at("10:00", user="a", n=n) for n in range(10_050)]
    assert len(said(Past, *rows)) == 10_050
    assert len(said(Past, *rows, ordered=False)) == 10_050


@pytest.mark.streamed
def test_far_more_timers_than_that_may_fire_when_time_goes_on() -> None:
    class Beating(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("beat", after="1 second", payload=1)

        def on_timer(self, timer: Any, context: Any) -> Any:
            if timer.payload == 12_000:
                yield {"said": f"{context.time:%H:%M}"}
            else:
                context.set_timer("beat", after="1 second", payload=timer.payload + 1)

    assert said(Beating, at("10:00", user="a")) == ["13:20"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (lambda context: context.set_timer("t"), r"\[TIMER_TIME\] timer 't': at=None"),
        (lambda context: context.set_timer("t", at="10:00"), r"\[TIMER_TIME\] timer 't': at='10:00'"),
        (lambda context: context.set_timer(7, after="1 second"), r"\[TIMER_NAME\]"),
        (lambda context: context.set_timer("t", after="soon"), r"\[DURATION_UNREADABLE\] after='soon'"),
        (lambda context: context.set_timer("t", after=5), r"\[TIMER_TIME\] after=5"),
        (lambda context: context.set_timer("t", at=NINE, after="1 hour"), r"\[TIMER_TIME\] timer 't' .* at=.* after="),
        (lambda context: context.set_clock_timer("t", at=NINE, after="1 hour"), r"\[TIMER_TIME\] .* at=.* after="),
        (lambda context: context.set_timer("t", after=timedelta.max), r"\[TIMER_TIME\] timer 't' .* end of time"),
        (lambda context: context.set_timer("t", after=timedelta.min), r"\[TIMER_TIME\] timer 't' .* end of time"),
        (lambda context: context.set_clock_timer("t", after=timedelta.max), r"\[TIMER_TIME\] timer 't' .* end of time"),
        (lambda context: context.set_clock_timer("t", after=timedelta.min), r"\[TIMER_TIME\] timer 't' .* end of ti"),
        (lambda context: context.set_timer("\ud800", after="1 second"), r"\[TIMER_NAME\] .*'\\ud800'.* Unicode"),
        (lambda context: context.set_clock_timer("\ud800", after="1 second"), r"\[TIMER_NAME\] .*'\\ud800'.* Unicode"),
        (
            lambda context: context.set_timer("t", after="1 second", payload={1, 2}),
            r"\[TIMER_PAYLOAD\] timer 't': .*not JSON serializable",
        ),
        (lambda context: context.set_timer("t", after="1 second", payload=ENDLESS), r"\[TIMER_PAYLOAD\] timer 't': "),
        (lambda context: context.rules, r"\[RULES_MISSING\]"),
    ],
)
def test_a_timer_that_cannot_be_is_an_error_of_the_call(asked: Any, error: str) -> None:
    class Asking(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            asked(context)

    step = step_of(Asking, on_error="dead_letter")
    (letter,) = play(step, at("10:00", user="a"), watermark("23:00")).dead_letters
    assert re.search(error, letter["detail"].splitlines()[0])


def test_names_and_payloads_of_timers_come_back_as_they_went() -> None:
    class Odd(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> None:
            context.set_timer("zwölf \N{SNOWMAN}", at=datetime(9000, 1, 1), payload=["\ud800", math.inf])

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"said": f"{timer.name} {timer.payload!r} {timer.time:%Y}"}

    played = play(step_of(Odd), at("10:00", user="a"), watermark("10:01"), crash(), watermark("9000-01-01"))
    assert [each["said"] for each in played.main] == ["zwölf \N{SNOWMAN} ['\\ud800', inf] 9000"]


class Forgetful(hr.KeyedProcess):
    """Sets a timer and has nothing for it."""

    def on_row(self, row: Any, context: Any) -> None:
        context.set_timer("later", after="1 minute")


def test_a_timer_of_a_process_without_on_timer_says_what_is_missing() -> None:
    step = hr.process("watch", Forgetful, key="user", output="user STRING", on_error="dead_letter").late(hr.drop())
    played = play(step, at("10:00", user="a"), watermark("11:00"))
    (letter,) = played.dead_letters
    assert (
        "[TIMER_UNHANDLED] timer 'later' fires, but Forgetful has no on_timer(self, timer, context)" in letter["detail"]
    )
