"""How far a batch of a Kafka source reads, when the brokers answer and when they do not."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.connectors.base.sink import Unreachable
from headrace.connectors.kafka import source as kafka_source
from headrace.connectors.kafka.positions import Positions, Subscription
from headrace.connectors.kafka.source import KafkaSliceReader
from headrace.errors import HeadraceError


class Brokers:
    """Do not answer the first so many times."""

    silent = 0

    def __init__(self, subscription: Subscription) -> None:
        """Nothing is kept of a subscription."""

    def initial(self) -> Positions:
        """The beginning."""
        return self._said({"bids/0": 0})

    def latest(self) -> Positions:
        """Seven rows."""
        return self._said({"bids/0": 7})

    def earliest(self, names: list[str]) -> Positions:
        """All rows are there."""
        return {"bids/0": 0}

    def _said(self, positions: Positions) -> Positions:
        if Brokers.silent > 0:
            Brokers.silent -= 1
            raise Unreachable("no leaders found")
        return positions


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaSliceReader:
    """A reader of one partition that does not sleep."""
    monkeypatch.setattr(kafka_source, "Topics", Brokers)
    monkeypatch.setattr(kafka_source, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=time.monotonic))
    subscription = Subscription("broker:9092", ("bids",), False, "earliest", "fail")
    return KafkaSliceReader("bids", subscription, tmp_path / "caps" / "bids")


def test_a_run_over_what_is_there_waits_for_brokers_at_its_beginning(reader: KafkaSliceReader) -> None:
    Brokers.silent = 3
    start = reader.initialOffset()
    assert (start["positions"], Brokers.silent) == ({"bids/0": 0}, 0)
    Brokers.silent = 2
    reader.prepareForTriggerAvailableNow()
    assert Brokers.silent == 0
    assert reader.latestOffset(start, ReadAllAvailable())["positions"] == {"bids/0": 7}


def test_a_live_flow_reads_no_further_while_brokers_are_silent(reader: KafkaSliceReader) -> None:
    start = reader.initialOffset()
    Brokers.silent = 1
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.latestOffset(start, ReadAllAvailable())["positions"] == {"bids/0": 7}


def test_patience_has_an_end(reader: KafkaSliceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "PATIENCE_SECONDS", -1.0)
    Brokers.silent = 1
    with pytest.raises(HeadraceError, match=r"\[SOURCE_UNREACHABLE\] .* has not answered .*: no leaders found"):
        reader.prepareForTriggerAvailableNow()
