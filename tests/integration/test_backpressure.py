"""A burst, and a sink that is too slow: batches keep their length, what waits stays in Kafka and is shown."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.connectors.base.sink import Guarantee
from headrace.observe import history
from headrace.observe.history import HistoryEntry
from headrace.runtime.modes import FIRST_CAP, WARM_AFTER
from headrace.runtime.pipeline import Pipeline
from headrace.services.service import Service
from tests.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.full]

PARTITIONS = 2
TICK = 0.1


class SlowSink:
    """A sink that takes its time for every row."""

    def __init__(self, seconds_a_row: float) -> None:
        self.seconds_a_row = seconds_a_row
        self.rows = 0

    @property
    def guarantee(self) -> Guarantee:
        """It keeps nothing."""
        return "at_least_once"

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Count the rows, slowly."""
        rows = frame.count()
        time.sleep(rows * self.seconds_a_row)
        self.rows += rows
        return hr.Written(rows, rows)


class Feed:
    """Fills a topic."""

    def __init__(self, servers: str) -> None:
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        create_topic(servers, self.topic, PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self.rows = 0

    def send(self, rows: int) -> None:
        """Send so many rows at once."""
        for number in range(self.rows, self.rows + rows):
            self._producer.produce(self.topic, b'{"id": %d}' % number, partition=number % PARTITIONS)
            self._producer.poll(0)
        self.rows += rows
        assert self._producer.flush(30) == 0

    def steadily(self, rows_a_second: int, seconds: float) -> None:
        """Send at an even rate."""
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(rows_a_second * passed)
            self.send(due - sent)
            sent = due
            time.sleep(TICK)


@pytest.fixture
def feed(kafka: Service) -> Feed:
    """A topic of its own."""
    return Feed(kafka.address)


@pytest.fixture
def run(tmp_path: Path, spark: SparkSession) -> Iterator[Callable[..., Path]]:
    """Starts a pipeline in the background, and stops it at the end; gives the folder of its flow."""
    started = []

    def start(pipeline: Pipeline, mode: Any) -> Path:
        started.append(pipeline.start(checkpoint=tmp_path / "checkpoint", mode=mode, spark=spark))
        return tmp_path / "checkpoint" / "counted"

    yield start
    for running in started:
        running.stop()


def _counting(servers: str, topic: str, sink: SlowSink) -> Pipeline:
    @hr.pipeline(name="counting")
    def counting(spark: SparkSession) -> None:
        rows = hr.read_kafka(spark, topic, servers=servers, schema="id BIGINT", name="numbers")
        hr.write("counted", rows, sink)

    return counting


def _until(done: Callable[[], bool], feed: Feed, *, rows_a_second: int = 0, seconds: float = 180) -> None:
    """Go on sending until something is so."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        feed.steadily(rows_a_second, 3 * TICK)


def _read(entry: HistoryEntry) -> int:
    return entry.account.sources["numbers"].read


def _all_read(flow: Path) -> int:
    """The rows of batches that are told: a sink has the rows of a batch before its history is written."""
    return sum(_read(entry) for entry in history.read(flow))


def test_a_burst_of_ten_times_the_load_waits_in_kafka_and_drains_while_batches_keep_their_length(
    kafka: Service, feed: Feed, run: Callable[..., Path]
) -> None:
    target, load = 3.0, 1_000
    # A batch of the whole burst would take 30,000 * 0.25 ms, which is two and a half times the target.
    sink = SlowSink(0.000_25)
    flow = run(_counting(kafka.address, feed.topic, sink), hr.micro_batch("3 seconds", keep_up=True))
    _until(lambda: len(history.read(flow)) > WARM_AFTER, feed, rows_a_second=load)
    warm = len(history.read(flow))
    # Ten times the load for three seconds, at once.
    feed.send(30 * load)
    _until(lambda: _all_read(flow) == feed.rows, feed)
    batches = history.read(flow)[warm:]
    # The sink's part of a batch: what the machine adds is not the pace's doing.
    assert max(_read(entry) for entry in batches) * sink.seconds_a_row <= 2 * target
    assert max(entry.unread["numbers"] for entry in batches) > 10 * load
    assert batches[-1].unread["numbers"] == 0
    assert all(_read(entry) <= (entry.cap or 0) + PARTITIONS for entry in batches)
    assert sink.rows == feed.rows


def test_a_slow_sink_makes_batches_smaller_and_nothing_is_lost(
    kafka: Service, feed: Feed, run: Callable[..., Path]
) -> None:
    feed.send(40_000)
    sink = SlowSink(0.000_2)
    flow = run(_counting(kafka.address, feed.topic, sink), hr.micro_batch("500 milliseconds", keep_up=True))
    _until(lambda: _all_read(flow) == feed.rows, feed)
    batches = history.read(flow)
    caps = [entry.cap or 0 for entry in batches]
    assert caps[: WARM_AFTER + 1] == [FIRST_CAP] * (WARM_AFTER + 1)
    assert max(caps[-2:]) <= FIRST_CAP / 2
    assert [_read(entry) for entry in batches[: WARM_AFTER + 1]] == [FIRST_CAP] * (WARM_AFTER + 1)
    assert max(_read(entry) for entry in batches[-2:]) <= FIRST_CAP / 2
    assert batches[-1].unread["numbers"] == 0
    assert sink.rows == feed.rows
