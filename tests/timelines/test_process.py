"""A keyed process: in which order rows come, what they may emit, and what becomes of late rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, batch, crash, expect, late_by, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ONE_PAST_TEN = datetime(2026, 1, 1, 10, 1, tzinfo=UTC)


def step_of(process: Any, late: Any = None, **more: Any) -> Any:
    """A step whose process says something of each user."""
    given = {"key": "user", "output": "user STRING, said STRING", **more}
    return hr.process("watch", process, **given).late(late or hr.side_output())


class Numbers(hr.KeyedProcess):
    """Numbers the rows of a user."""

    seen = hr.value_state("INT", ttl="1 day")

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        number = (self.seen.get() or 0) + 1
        self.seen.set(number)
        yield {"user": context.key, "said": f"{number}: {row.kind}"}


class FailedLogins(hr.KeyedProcess):
    """Tells of so many failures of a user within a quarter of an hour after the last one."""

    failures = hr.value_state("INT", ttl="15 minutes")

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def on_row(self, row: Any, context: Any) -> Iterator[Any]:
        count = (self.failures.get() or 0) + 1
        self.failures.set(count)
        if count == self.limit:
            yield {"user": context.key, "said": f"{count} failures"}


@pytest.mark.spark
def test_rows_of_a_key_come_in_the_order_of_event_time_whatever_their_arrival() -> None:
    timeline(
        step_of(Numbers),
        at("10:03", user="a", kind="third"),
        at("10:01", user="a", kind="first"),
        at("10:05", user="b", kind="alone"),
        batch(),
        expect(),
        at("10:02", user="a", kind="second"),
        watermark("10:10"),
        expect(
            row(user="a", said="1: first", at="10:01"),
            row(user="a", said="2: second", at="10:02"),
            row(user="a", said="3: third", at="10:03"),
            row(user="b", said="1: alone", at="10:05"),
        ),
    )


@pytest.mark.spark
def test_without_a_key_the_whole_stream_has_one_state_and_one_order_of_time() -> None:
    class Pairs(hr.KeyedProcess):
        last = hr.value_state("STRING", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Iterator[Any]:
            yield {"user": context.key, "said": f"{self.last.get()} {row.user}"}
            self.last.set(row.user)
            context.set_timer("quiet", after="10 minutes")

        def on_timer(self, timer: Any, context: Any) -> Iterator[Any]:
            yield {"said": f"quiet after {self.last.get()}"}

    timeline(
        step_of(Pairs, key=None),
        at("10:02", user="b", partition=1),
        at("10:01", user="a", partition=0),
        crash(),
        at("10:03", user=None, partition=2),
        batch(),
        watermark("10:05"),
        expect(*(row(user=None, said=said) for said in ("None a", "a b", "b None"))),
        crash(),
        watermark("10:30"),
        expect(user=None, said="quiet after None", at="10:13"),
    )


@pytest.mark.spark
def test_a_crash_between_and_within_batches_changes_nothing() -> None:
    timeline(
        step_of(Numbers),
        at("10:01", user="a", kind="first"),
        watermark("10:02"),
        expect(user="a", said="1: first"),
        at("10:04", user="a", kind="third"),
        crash(),
        batch(),
        at("10:03", user="a", kind="second"),
        crash(),
        batch(),
        crash(),
        watermark("10:10"),
        expect(row(user="a", said="2: second"), row(user="a", said="3: third")),
    )


def test_rows_at_the_same_time_come_in_the_order_of_arrival() -> None:
    timeline(
        step_of(Numbers),
        at("10:01", user="a", kind="x"),
        batch(),
        at("10:01", user="a", kind="y"),
        at("10:01", user="a", kind="z"),
        watermark("10:02"),
        expect(row(user="a", said="1: x"), row(user="a", said="2: y"), row(user="a", said="3: z")),
    )


def test_a_row_has_its_turn_when_the_watermark_has_passed_it_and_not_at_it() -> None:
    timeline(
        step_of(Numbers),
        at("10:01", user="a", kind="x"),
        watermark("10:01"),
        expect(),
        at("10:01", user="a", kind="y"),
        watermark("10:01:00.000001"),
        expect(row(user="a", said="1: x"), row(user="a", said="2: y")),
        expect(output="late"),
    )


def test_without_order_rows_come_as_they_arrive_and_at_once() -> None:
    timeline(
        step_of(Numbers, ordered=False),
        at("10:03", user="a", kind="late riser"),
        at("10:01", user="a", kind="early bird"),
        batch(),
        expect(
            row(user="a", said="1: late riser", at="10:03"),
            row(user="a", said="2: early bird", at="10:01"),
        ),
        at("10:02", user="a", kind="third"),
        crash(),
        batch(),
        expect(user="a", said="3: third"),
    )


def test_arguments_of_the_authors_class_travel_with_it() -> None:
    timeline(
        step_of(FailedLogins(limit=2)),
        at("10:01", user="a"),
        at("10:02", user="a"),
        at("10:03", user="b"),
        watermark("11:00"),
        expect(user="a", said="2 failures", at="10:02"),
    )


def test_the_values_of_a_row_are_the_same_by_name_by_place_and_in_order() -> None:
    class Reading(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Iterator[Any]:
            user, count, kind, time = row
            assert (user, count, kind, time) == (row.user, row.count, row.kind, row.at) == (*row,) == tuple(row)
            assert (row[0], row[1], row[-2], row[3], row[-1]) == (user, count, kind, time, time)
            assert (row[1:], row[::-1]) == ((count, kind, time), (time, kind, count, user))
            assert list(reversed(row)) == [time, kind, count, user]
            yield {"user": user, "said": f"{count} {row[3]:%H:%M} {row!r}"}

    timeline(
        step_of(Reading),
        at("10:01", user="a", count=7, kind=None),
        watermark("11:00"),
        expect(user="a", said="7 10:01 Row(user='a', count=7, kind=None, at=" + repr(ONE_PAST_TEN) + ")"),
    )


def test_a_process_prints_itself_as_the_code_that_makes_it() -> None:
    step = step_of(
        FailedLogins(limit=2),
        hr.deliver(),
        outputs={"odd": "user STRING"},
        rules=hr.rules(key="id"),
        ordered=False,
        on_error=hr.retry(2, then="stop"),
    )
    assert repr(step) == (
        "hr.process('watch', FailedLogins(limit=2), key='user', output='user STRING, said STRING', "
        "outputs={'odd': 'user STRING'}, rules=hr.rules(key='id'), ordered=False, "
        "on_error=hr.retry(2, then='stop')).late(hr.deliver())"
    )
    assert step.state_description == (
        "of each key failures for 15 minutes of event time, its timers; without order, so results may depend on batches"
    )
    assert step_of(Numbers).state_description.endswith(", rows until event time has passed them")


def test_late_rows_leave_by_the_side_output_with_how_late_they_were() -> None:
    timeline(
        step_of(Numbers),
        at("10:01", user="a", kind="x"),
        watermark("10:10"),
        expect(user="a", said="1: x"),
        at("10:04", user="a", kind="y"),
        watermark("10:20"),
        expect(),
        expect(user="a", kind="y", late_by=late_by("6 minutes"), output="late"),
    )


def test_late_rows_are_counted_and_dropped_when_that_is_said() -> None:
    played = play(
        step_of(Numbers, hr.drop()),
        at("10:01", user="a", kind="x"),
        watermark("10:10"),
        at("10:04", user="a", kind="y"),
    )
    assert [each["said"] for each in played.main] == ["1: x"]
    assert played.late == []


@pytest.mark.parametrize("ordered", [True, False])
def test_delivered_late_rows_are_handled_at_once_with_their_own_time(ordered: bool) -> None:
    class Reporting(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield {"user": row.user, "said": f"{row.at:%H:%M} {context.time:%H:%M} {context.late}"}

    timeline(
        step_of(Reporting, hr.deliver(), ordered=ordered),
        at("10:01", user="a"),
        watermark("10:10"),
        expect(user="a", said="10:01 10:01 False", at="10:01"),
        at("10:04", user="a"),
        at("10:11", user="b"),
        batch(),
        watermark("10:20"),
        expect(row(user="a", said="10:04 10:04 True", at="10:04"), row(user="b", said="10:11 10:11 False", at="10:11")),
    )


def test_a_timer_that_fires_between_two_late_rows_is_not_late() -> None:
    class Reporting(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            context.set_timer("soon", at=context.time)
            yield {"user": row.user, "said": f"row {context.late}"}

        def on_timer(self, timer: Any, context: Any) -> Any:
            yield {"user": context.key, "said": f"timer {context.late}"}

    played = play(
        step_of(Reporting, hr.deliver()), at("11:00", user="b"), watermark("11:01"), at("10:01", user="a"),
        at("10:02", user="a"), batch(),
    )  # fmt: skip
    late = [each["said"] for each in played.main if each["user"] == "a"]
    assert late == ["row True", "timer False", "row True", "timer False"]


def test_what_a_delivered_late_row_emits_is_late_for_the_next_step() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="user").agg(n="count(*)").late(hr.side_output())
    played = play(
        (step_of(Numbers, hr.deliver()), hourly),
        at("10:30", user="a", kind="x"),
        watermark("11:00"),
        at("10:40", user="a", kind="y"),
        watermark("12:00"),
    )
    assert [(each["user"], each["n"]) for each in played.main] == [("a", 1)]
    assert [each["said"] for each in played.late] == ["2: y"]


def test_windows_follow_a_process_by_the_time_that_its_rows_carry() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="user").agg(n="count(*)").late(hr.side_output())
    timeline(
        (step_of(Numbers), hourly),
        at("10:30", user="a", kind="x"),
        at("10:59:59.999999", user="a", kind="y"),
        at("11:00", user="a", kind="z"),
        watermark("11:00"),
        expect(user="a", window="10:00/11:00", n=2),
        watermark("12:00"),
        expect(user="a", window="11:00/12:00", n=1),
    )


def test_a_process_follows_windows_and_gets_their_time() -> None:
    class Reporting(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield {"user": row.user, "said": f"{row.n} until {row.window['end']:%H:%M}"}

    hourly = hr.tumbling("hourly", size="1 hour", key="user").agg(n="count(*)").late(hr.side_output())
    timeline(
        (hourly, step_of(Reporting)),
        at("10:30", user="a"),
        at("10:40", user="a"),
        watermark("11:00"),
        expect(user="a", said="2 until 11:00", event_time="10:59:59.999999"),
    )


def test_declared_outputs_get_what_is_sent_to_them() -> None:
    class Sorted(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            if row.n < 0:
                yield hr.output("negative", {"user": context.key, "n": row.n})
            else:
                yield {"user": context.key, "said": str(row.n)}

    timeline(
        step_of(Sorted, outputs={"negative": "user STRING, n BIGINT"}),
        at("10:01", user="a", n=1),
        at("10:02", user="a", n=-2),
        watermark("10:10"),
        expect(user="a", said="1", at="10:01"),
        expect(user="a", n=-2, at="10:02", output="negative"),
    )


def test_a_call_may_return_a_list_or_nothing() -> None:
    class Returning(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            return [{"user": "x", "said": "y"}, {"said": "z"}] if row.n else None

    timeline(
        step_of(Returning),
        at("10:01", user="a", n=0),
        at("10:02", user="a", n=1),
        watermark("10:10"),
        expect(row(user="x", said="y"), row(user=None, said="z")),
    )


def test_a_time_column_that_the_author_declares_is_the_authors_and_event_time_stands_beside_it() -> None:
    class Dated(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield {"user": row.user, "at": context.time.replace(year=2000)}

    timeline(
        step_of(Dated, output="user STRING, at TIMESTAMP"),
        at("10:01", user="a"),
        watermark("10:10"),
        expect(user="a", at="2000-01-01T10:01:00Z", event_time="10:01"),
    )


def test_several_key_columns_make_a_tuple_and_null_is_a_key_like_any_other() -> None:
    class Keys(hr.KeyedProcess):
        seen = hr.value_state("INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            self.seen.set((self.seen.get() or 0) + 1)
            yield {"said": f"{context.key} {self.seen.get()}"}

    timeline(
        step_of(Keys, key=["user", "shop"], output="said STRING"),
        at("10:01", user="a", shop=1),
        at("10:02", user=None, shop=1),
        at("10:03", user="a", shop=None),
        watermark("10:04"),
        at("10:05", user=None, shop=1),
        watermark("10:10"),
        expect(
            row(said="('a', 1) 1"),
            row(said="(None, 1) 1"),
            row(said="('a', None) 1"),
            row(said="(None, 1) 2"),
        ),
    )


def test_not_a_number_is_one_key() -> None:
    class Keys(hr.KeyedProcess):
        seen = hr.value_state("INT", ttl="1 day")

        def on_row(self, row: Any, context: Any) -> Any:
            self.seen.set((self.seen.get() or 0) + 1)
            yield {"said": f"{context.key} {self.seen.get()}"}

    nan = float("nan")
    elements = [element for n in range(3) for element in (at(f"10:0{n}", user=nan), watermark(f"10:0{n}:01"))]
    played = play(
        step_of(Keys, output="said STRING"),
        *elements,
        at("10:05", user=-0.0),
        at("10:06", user=0.0),
        watermark("11:00"),
    )
    assert [each["said"] for each in played.main] == ["nan 1", "nan 2", "nan 3", "0.0 1", "0.0 2"]


def test_rows_have_their_columns_as_attributes_whatever_their_names_and_types() -> None:
    class Reading(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            assert dict(zip(["user", "count", "two words", "price", "tags", "at"], row, strict=True)) == {
                "user": row.user,
                "count": row.count,
                "two words": getattr(row, "two words"),
                "price": row.price,
                "tags": row.tags,
                "at": row.at,
            }
            yield {"said": f"{row.count} {getattr(row, 'two words')} {row.price} {row.tags} {row.at.isoformat()}"}

    awkward: dict[str, Any] = {"two words": True}
    timeline(
        step_of(Reading, output="said STRING"),
        at("10:01", user="a", count=3, **awkward, price=Decimal("1.50"), tags=["x", None]),
        watermark("10:10"),
        expect(said="3 True 1.50 ['x', None] 2026-01-01T10:01:00+00:00"),
    )


@pytest.mark.streamed
def test_a_context_knows_watermark_and_clock() -> None:
    class Telling(hr.KeyedProcess):
        def on_row(self, row: Any, context: Any) -> Any:
            yield {"said": f"{context.watermark} {context.now:%d %H:%M}"}

    timeline(
        step_of(Telling, ordered=False, output="said STRING"),
        at("10:01", user="a"),
        batch(),
        expect(said="None 02 00:00"),
        watermark("10:05"),
        at("10:06", user="a"),
        batch(),
        expect(said="2026-01-01 10:05:00+00:00 02 00:00"),
    )


class Naming(hr.KeyedProcess):
    """Brings a table of its own along."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def on_row(self, row: Any, context: Any) -> Any:
        yield {"user": context.key, "said": self.names[row.n]}


@pytest.mark.spark
def test_a_process_may_bring_megabytes_of_its_own() -> None:
    timeline(
        step_of(Naming({n: f"number {n}" for n in range(200_000)})),
        at("10:00", user="a", n=199_999),
        watermark("10:01"),
        expect(user="a", said="number 199999"),
    )
