"""A process over frames: rows of many keys in one call, states and timers as columns, and its mistakes."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def step_of(process: Any, **more: Any) -> Any:
    given = {"key": "user", "output": "user STRING, said STRING", **more}
    return hr.process("watch", process, **given).late(hr.side_output())


class FailedLogins(hr.FrameProcess):
    """Tells of so many failures of a user within a quarter of an hour after the last one."""

    failures = hr.value_state("INT", ttl="15 minutes")

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        number = pl.int_range(1, pl.len() + 1).over("user")
        counted = frame.with_columns(failures=pl.col("failures").fill_null(0) + number)
        said = pl.format("{} failures", "failures")
        return counted.with_columns(said=said, emit=pl.col("failures") == self.limit)


class Silences(hr.FrameProcess):
    """Tells when a user has been silent, and how many rows there were."""

    seen = hr.value_state("BIGINT", keep_forever=True)
    silent = hr.timer()

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        seen = pl.col("seen").fill_null(0) + pl.int_range(1, pl.len() + 1).over("user")
        return frame.with_columns(seen=seen, silent=pl.col("at") + timedelta(minutes=10), emit=False)

    def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        return frame.with_columns(said=pl.format("{} after {}", "timer", "seen"), seen=None)


@pytest.mark.spark
def test_rows_of_many_keys_are_one_frame_and_what_expires_between_rows_is_gone() -> None:
    timeline(
        step_of(FailedLogins(limit=3)),
        *(at(f"10:0{minute}", user=user) for minute in (2, 0) for user in ("ann", "bob")),
        at("10:04", user="ann"),
        crash(),
        # Exactly a quarter of an hour after the last row the count begins anew, in one batch or in two.
        at("10:17", user="bob"),
        watermark("10:30"),
        expect(user="ann", said="3 failures", at="10:04"),
        at("10:31", user="bob"),
        at("10:45:59.999999", user="bob"),
        watermark("11:00"),
        expect(user="bob", said="3 failures", at="10:45:59.999999"),
    )


@pytest.mark.spark
def test_a_timer_between_two_rows_of_one_frame_fires_between_them() -> None:
    timeline(
        step_of(Silences),
        at("10:00", user="ann"),
        at("10:05", user="ann"),
        at("10:15", user="ann"),
        at("10:16", user="ann"),
        at("10:00", user="bob"),
        watermark("10:20"),
        expect(
            row(user="ann", said="silent after 2", at="10:15"),
            row(user="bob", said="silent after 1", at="10:10"),
        ),
        crash(),
        watermark("10:30"),
        expect(user="ann", said="silent after 2", at="10:26"),
    )


def test_a_timer_for_the_past_fires_before_the_next_row_and_many_in_one_batch_each_in_their_turn() -> None:
    class Ticking(hr.FrameProcess):
        tick = hr.timer()
        left = hr.value_state("INT", keep_forever=True)

        def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
            return frame.with_columns(tick=pl.col("at") - timedelta(hours=1), left=2, said=pl.lit("row"))

        def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
            again = pl.when(pl.col("left") > 0).then(pl.col("fired_at") + timedelta(minutes=1))
            return frame.with_columns(said=pl.format("{} left", "left"), tick=again, left=pl.col("left") - 1)

    played = play(step_of(Ticking), *(at(f"10:0{minute}", user="a") for minute in (0, 1, 5)), watermark("11:00"))
    assert [(row["at"].minute, row["said"]) for row in played.main] == [
        (0, "row"),
        (0, "2 left"),
        (1, "1 left"),
        (1, "row"),
        (1, "2 left"),
        (2, "1 left"),
        (3, "0 left"),
        (5, "row"),
        (5, "2 left"),
        (6, "1 left"),
        (7, "0 left"),
    ]


@pytest.mark.spark
def test_states_may_be_structs_and_lists_and_the_whole_stream_one_key() -> None:
    class Lasts(hr.FrameProcess):
        last = hr.value_state("STRUCT<user: STRING, n: BIGINT>", ttl="1 day")
        users = hr.value_state("ARRAY<STRING>", keep_forever=True)

        def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
            given = frame.select(pl.struct("user", "n")).to_series()
            before = pl.concat([frame["last"].head(1), given.cast(frame["last"].dtype)]).head(frame.height)
            said = before.struct.field("user").fill_null("nobody")
            return frame.with_columns(
                said=said, last=given, users=pl.concat_list(pl.col("users").fill_null([]), "user")
            )

    timeline(
        step_of(Lasts, key=None),
        at("10:00", user="ann", n=1),
        at("10:01", user="bob", n=2),
        watermark("10:05"),
        expect(row(user="ann", said="nobody"), row(user="bob", said="ann")),
        crash(),
        at("10:06", user="cat", n=3),
        watermark("10:10"),
        expect(user="cat", said="bob"),
    )


def test_a_state_that_is_null_and_no_timer_leaves_nothing_of_a_key() -> None:
    class Nothing(hr.FrameProcess):
        seen = hr.value_state("INT", keep_forever=True)

        def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
            kept, is_first = pl.when(pl.col("n") > 0).then("n"), pl.int_range(pl.len()).over("user") == 0
            before = pl.when(is_first).then("seen").otherwise(kept.shift(1).over("user"))
            return frame.with_columns(seen=kept, said=before.cast(pl.String))

    timeline(
        step_of(Nothing),
        at("10:00", user="ann", n=1),
        watermark("10:01"),
        expect(said=None),
        at("10:02", user="ann", n=0),
        batch(),
        watermark("10:03"),
        expect(said="1"),
        at("10:04", user="ann", n=2),
        watermark("10:05"),
        expect(said=None),
    )


def _returns(**columns: Any) -> type[hr.FrameProcess]:
    class Wrong(hr.FrameProcess):
        seen = hr.value_state("INT", keep_forever=True)
        tick = hr.timer()

        def on_rows(self, frame: pl.DataFrame, context: Any) -> Any:
            return columns["frame"] if "frame" in columns else frame.with_columns(**columns)

    return Wrong


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"frame": None}, r"\[FRAME_MISALIGNED\] it was given 2 rows and returned 'NoneType'"),
        ({"frame": pl.DataFrame({"user": ["a"]})}, r"\[FRAME_MISALIGNED\] it was given 2 rows and returned 1 rows"),
        ({"seen": "user"}, r"\[STATE_TYPE\] column 'seen' is String, but INT is declared"),
        ({"seen": pl.lit(2**40)}, r"\[STATE_TYPE\] column 'seen': "),
        ({"tick": pl.lit(5)}, r"\[TIMER_TIME\] column 'tick' is Int32, but TIMESTAMP is declared"),
        ({"said": pl.lit(1.5)}, r"\[OUTPUT_TYPE\] column 'said' is Float64, but STRING is declared"),
        ({"emit": pl.lit(1), "said": pl.lit("x")}, r"\[OUTPUT_TYPE\] column 'emit' is Int32, but BOOLEAN is declared"),
        ({"other": pl.lit("x")}, r"\[OUTPUT_COLUMN_MISSING\] the frame has no column 'said'"),
        ({"said": "nowhere"}, "ColumnNotFoundError"),
        ({"said": pl.lit("x"), "tick": pl.col("at")}, r"\[TIMER_UNHANDLED\] timers fire, but Wrong has no on_timers"),
    ],
)
def test_a_mistake_in_a_frame_stops_the_flow_and_names_step_and_method(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(hr.HeadraceError, match=rf"\[PROCESS_FAILED\] step 'watch': Wrong\.on_\w+ failed: .*{error}"):
        play(step_of(_returns(**columns)), at("10:00", user="a"), at("10:00", user="b"), watermark("10:01"))


def test_timers_that_set_timers_for_ever_are_an_error() -> None:
    class Endless(Silences):
        def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
            return frame.with_columns(silent="fired_at", emit=False)

    with pytest.raises(hr.HeadraceError, match=r"\[TIMER_LOOP\] step 'watch'"):
        play(step_of(Endless), at("10:00", user="a"), watermark("11:00"))
