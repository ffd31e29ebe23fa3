"""How far a batch of a Kafka source reads, when the brokers answer and when they do not."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage
from headrace.connectors.base.enumerator import Planned
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.kafka import positions
from headrace.connectors.kafka.positions import OnLost, Subscription
from headrace.connectors.kafka.source import KafkaEnumerator
from headrace.errors import HeadraceError
from headrace.graph import Graph, SourceNode
from headrace.runtime import source_reads
from headrace.runtime.source_reads import SourceReads


class Brokers:
    """Hold a partition; do not answer the first so many times."""

    silent = 0
    first, end = 0, 7
    clients = 0

    def __init__(self, options: dict[str, Any]) -> None:
        Brokers.clients += 1

    def list_topics(self, timeout: float) -> Any:
        """The only topic."""
        if Brokers.silent > 0:
            Brokers.silent -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no leaders found"))
        return SimpleNamespace(topics={"bids": SimpleNamespace(partitions=[0])})

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        """The beginning of what is left of the partition, or its end."""
        answers = {}
        for partition, what in asked.items():
            offset = self.first if isinstance(what, type(OffsetSpec.earliest())) else self.end
            answers[partition] = Future[Any]()
            answers[partition].set_result(SimpleNamespace(offset=offset))
        return answers

    def poll(self, timeout: float) -> int:
        """No refusals."""
        return 0


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> type[Brokers]:
    """Brokers that answer."""
    for name, value in {"silent": 0, "first": 0, "end": 7, "clients": 0}.items():
        monkeypatch.setattr(Brokers, name, value)
    monkeypatch.setattr(positions, "AdminClient", Brokers)
    return Brokers


def enumerator(on_lost: OnLost = "fail") -> KafkaEnumerator:
    return KafkaEnumerator(Subscription("broker:9092", ("bids",), False, "earliest", on_lost))


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceReads:
    """The only source of a flow, asked again at once."""
    monkeypatch.setattr(source_reads, "ASKED_AGAIN_SECONDS", 0.0)
    graph = Graph("test", tmp_path, cast(Any, None))
    graph.add_source(SourceNode("bids", {}, lambda _: enumerator()))
    return SourceReads(graph, ["bids"], LocalStorage(tmp_path), threading.Event())


def test_a_run_over_what_is_there_waits_for_brokers_at_its_beginning(reads: SourceReads) -> None:
    Brokers.silent = 3
    start = reads.initial([])
    assert (start, Brokers.silent) == ({"bids": {"bids/0": 0}}, 0)
    Brokers.silent = 2
    reads.stop_at_newest()
    assert Brokers.silent == 0
    assert reads.plan(start)["bids"].until == {"bids/0": 7}


def test_a_live_flow_reads_no_further_while_brokers_are_silent(reads: SourceReads, tmp_path: Path) -> None:
    start = reads.initial([])
    Brokers.silent = 1
    assert not reads.plan(start)["bids"].brings_rows
    assert outages(LocalStorage(tmp_path))
    assert reads.plan(start)["bids"].until == {"bids/0": 7}
    assert not outages(LocalStorage(tmp_path))


def test_patience_has_an_end(reads: SourceReads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reads, "PATIENCE_SECONDS", -1.0)
    Brokers.silent = 1
    with pytest.raises(HeadraceError, match=r"\[SOURCE_UNREACHABLE\] .* has not answered .*: no leaders found"):
        reads.stop_at_newest()


def test_brokers_that_were_silent_are_asked_by_a_new_client() -> None:
    source = enumerator()
    source.initial()
    Brokers.silent = 1
    with pytest.raises(Unreachable):
        source.plan({"bids/0": 0}, most=None)
    assert Brokers.clients == 1
    source.plan({"bids/0": 0}, most=None)
    source.plan({"bids/0": 7}, most=None)
    assert Brokers.clients == 2


def test_a_run_over_what_is_there_reads_no_row_that_came_later() -> None:
    source = enumerator()
    source.stop_at_newest()
    Brokers.end = 9
    assert source.plan({"bids/0": 0}, most=None).until == {"bids/0": 7}


def test_a_batch_takes_so_many_rows_and_says_how_many_wait() -> None:
    assert enumerator().plan({"bids/0": 0}, most=5) == Planned({"bids/0": 5}, {"bids/0": 2}, ("bids/0",))


@pytest.mark.parametrize(("first", "end"), [(3, 7), (0, 1)])
def test_offsets_that_are_gone_stop_the_flow_unless_they_are_to_be_counted(first: int, end: int) -> None:
    Brokers.first, Brokers.end = first, end
    with pytest.raises(HeadraceError, match=rf"\[OFFSETS_LOST\] .* offset 2 of bids/0, .* offsets {first} to {end}\."):
        enumerator().plan({"bids/0": 2}, most=None)
    assert enumerator("count").plan({"bids/0": 2}, most=None).until == {"bids/0": end}


def test_a_partition_that_is_gone_stops_the_flow_or_keeps_its_position() -> None:
    since = {"bids/0": 7, "bids/1": 4}
    with pytest.raises(HeadraceError, match=r"\[OFFSETS_LOST\] .* bids/1, the topic has no such partition any more"):
        enumerator().plan(since, most=None)
    assert enumerator("count").plan(since, most=None).until == since


def test_tasks_share_the_offsets_of_a_batch_in_order() -> None:
    splits = enumerator().splits({"bids/0": 0}, {"bids/0": 10, "bids/1": 490_000}, tasks=3)
    assert splits == [[("bids", 0, 0, 10), ("bids", 1, 0, 250_000)], [], [("bids", 1, 250_000, 490_000)]]
