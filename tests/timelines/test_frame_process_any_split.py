"""A process over frames: any batches, any partitions, a crash anywhere: what the model tells, and what rows would."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from datetime import timedelta
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

import headrace as hr
from headrace.testing import at, play
from headrace.testing.elements import At
from tests.models import frame_process as model
from tests.models.examples import examples
from tests.models.rows import START, Event, end_of_rows, micros, split

# Spark's workers cannot import this module, so they get its classes whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 150
QUIET, EXACT, AGAIN = (timedelta(microseconds=each) for each in (model.QUIET, model.EXACT, model.AGAIN))
places = st.sets(st.integers(1, ROWS - 1), max_size=10)
seeds = st.integers(0, 2**32)


class Telling(hr.FrameProcess):
    """Does what the model does."""

    last = hr.value_state("BIGINT", ttl=timedelta(microseconds=model.LAST_TTL))
    total = hr.value_state("BIGINT", keep_forever=True)
    quiet = hr.timer()
    exact = hr.timer()

    def on_rows(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        amount, at = pl.col("amount"), pl.col("at")
        before = pl.col("total").fill_null(0) + amount.cum_sum().over("account") - amount
        last = amount.shift(1).over("account").fill_null(pl.col("last"))
        cancelled = pl.lit(START - timedelta(days=1), pl.Datetime("us", "UTC"))
        given = pl.when(amount % 7 == 0).then(cancelled).when(amount % 5 == 0).then(at + EXACT)
        exact = given.forward_fill().over("account").fill_null(pl.col("exact"))
        return frame.with_columns(
            said=pl.format("row {} {} {}", amount, last.cast(pl.String).fill_null("None"), before),
            last=amount,
            total=before + amount,
            quiet=at + QUIET,
            exact=pl.when(exact != cancelled).then(exact),
            emit=amount % 3 != 0,
        )

    def on_timers(self, frame: pl.DataFrame, context: Any) -> pl.DataFrame:
        is_quiet, last = pl.col("timer") == "quiet", pl.col("last").cast(pl.String).fill_null("None")
        again = pl.when(is_quiet & pl.col("total").is_not_null()).then(pl.col("fired_at") + AGAIN)
        return frame.with_columns(
            said=pl.format("{} {} {}", "timer", last, pl.col("total").fill_null(0)),
            total=pl.when(~is_quiet).then("total"),
            quiet=again.otherwise("quiet"),
        )


def step_by(key: str | None) -> Any:
    output = "account STRING, said STRING" if key else "said STRING"
    return hr.process("telling", Telling, key=key, output=output).late(hr.side_output())


def make_rows(seed: int, *, accounts: str, partitions: int, disorder: int = 300) -> tuple[list[Event], list[At]]:
    """Rows ten seconds apart, each up to ``disorder`` seconds behind its place; no two at the same time."""
    chance = random.Random(seed)
    events, arriving = [], []
    for place in range(ROWS):
        late = chance.choice([0, 0, chance.randrange(disorder)])
        time = START + timedelta(seconds=place * 10 - late, microseconds=place)
        account, amount = chance.choice(accounts), chance.randrange(1, 60)
        events.append(Event(account, micros(time), amount))
        arriving.append(at(time, account=account, amount=amount, partition=chance.randrange(partitions)))
    return events, arriving


@examples(12)
@given(
    seed=seeds,
    accounts=st.sampled_from(["a", "abc", "abcdefghij"]),
    cuts=places,
    crashes=places,
    parts=st.integers(1, 4),
)
def test_any_split_into_batches_and_partitions_with_crashes_tells_what_the_model_tells(
    seed: int, accounts: str, cuts: set[int], crashes: set[int], parts: int
) -> None:
    events, rows = make_rows(seed, accounts=accounts, partitions=parts)
    time = hr.event_time("at", out_of_order="5 minutes")
    played = play(step_by("account"), *split(rows, cuts, crashes), *end_of_rows(amount=1), event_time=time)
    results: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in played.main:
        results[row["account"]].append((micros(row["at"]), row["said"]))
    results.pop("end", None)
    assert dict(results) == model.processed(events)
    assert played.late == []
