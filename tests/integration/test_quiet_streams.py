"""Flows that run by themselves: previews and idle partitions do not wait for a row."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import headrace as hr
from headrace.services.service import Service
from tests.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.full]

MODE = hr.micro_batch("200 milliseconds")


def _until(said: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    until = time.monotonic() + 120
    while not said():
        assert time.monotonic() < until, "waited in vain"
        meanwhile()
        time.sleep(0.1)


def test_a_preview_by_the_clock_comes_though_no_further_row_does(place: Any, spark: SparkSession) -> None:
    kept = f"previews {place.root}"
    place.land("1", ("1", "a", 5, "10:05:00"))

    @hr.pipeline(name="quiet")
    def quiet(spark: SparkSession) -> None:
        schema = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"
        rows = hr.read_files(spark, place.landing, format="json", schema=schema, name="payments")
        hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
        hourly = hourly.emit(hr.on_close(early=hr.every("2 seconds"))).late(hr.side_output())
        hr.write("quiet", rows.transform(hr.event_time("at")).transform(hourly), hr.to_memory(kept))

    running = quiet.start(checkpoint=place.checkpoint, mode=MODE, spark=spark)
    try:
        _until(lambda: hr.memory(kept) != [])
    finally:
        running.stop()
    [shown] = hr.memory(kept)
    assert (shown["account"], shown["spent"], shown["pane"], shown["revision"]) == ("a", 5, "early", 0)


def test_a_partition_that_falls_silent_does_not_hold_the_watermark_for_ever(
    kafka: Service, place: Any, spark: SparkSession
) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    create_topic(kafka.address, topic, 2)
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 0, "log_level": 0})

    def send(partition: int, clock: str) -> None:
        producer.produce(topic, json.dumps({"at": f"2025-01-01T{clock}Z"}).encode(), partition=partition)
        assert producer.flush(60) == 0

    @hr.pipeline(name="partly")
    def partly(spark: SparkSession) -> None:
        rows = hr.read_kafka(spark, topic, servers=kafka.address, schema="at TIMESTAMP", name="rows")
        hourly = hr.tumbling("hourly", size="1 hour", key=None).agg(n="count(*)").late(hr.side_output())
        timed = rows.transform(hr.event_time("at", idle="2 seconds"))
        hr.write("partly", timed.transform(hourly), hr.to_memory(topic))

    send(0, "10:05:00")
    send(1, "10:06:00")
    running = partly.start(checkpoint=place.checkpoint, mode=MODE, spark=spark)
    try:
        # Only one partition goes on; the other one said last that it is 10:06.
        _until(lambda: hr.memory(topic) != [], meanwhile=lambda: send(0, "11:30:00"))
    finally:
        running.stop()
    assert [(row["window"]["end"].hour, row["n"]) for row in hr.memory(topic)] == [(11, 2)]
