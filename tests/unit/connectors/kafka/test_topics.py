"""``hr.topic``: a missing topic is made, one that exists is left as it is."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.connectors.base.sink import Unreachable
from headrace.connectors.kafka import topics
from headrace.connectors.kafka.client import Cluster
from headrace.connectors.kafka.topics import TopicSettings, create_missing
from headrace.services.service import Service

COLUMNS = {"id": pl.String()}


def _cluster(kafka: Service) -> Cluster:
    return Cluster(kafka.address, (), 1_000_000)


def _partitions(kafka: Service, topic: str) -> int:
    listed = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0}).list_topics(timeout=10).topics
    return len(listed[topic].partitions) if topic in listed else 0


@pytest.fixture
def topic() -> str:
    """A name that no topic has."""
    return f"t{uuid.uuid4().hex[:10]}"


def test_a_topic_prints_the_code_that_makes_it() -> None:
    wanted = hr.topic(partitions=4, replication=3, config={"retention.ms": "1000"})
    assert repr(wanted) == "hr.topic(partitions=4, replication=3, config={'retention.ms': '1000'})"
    sink = hr.to_kafka("spend", servers="db:9092", create=hr.topic(partitions=4))
    assert repr(sink) == "hr.to_kafka('spend', servers='db:9092', create=hr.topic(partitions=4))"


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"partitions": True}, {"partitions": 1, "replication": 0}])
def test_a_topic_needs_at_least_one_partition_and_copy(wrong: dict[str, Any]) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TOPIC_INVALID\] hr.topic: \w+=\w+ must be a whole number of at"):
        hr.topic(**wrong)


def test_a_broker_that_does_not_answer_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PATIENCE", 0.3)
    with pytest.raises(Unreachable):
        create_missing(Cluster("127.0.0.1:1", (), 1_000_000), "spend", TopicSettings(1, None, ()))


def test_a_sink_creates_its_topic_before_the_first_batch_and_takes_it_as_it_is_afterwards(
    kafka: Service, topic: str
) -> None:
    settings = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    sink = hr.to_kafka(topic, servers=kafka.address, key="id", create=hr.topic(partitions=3, config=settings))
    for _ in range(2):
        sink.prepare(COLUMNS, ["one"], 1)
    assert _partitions(kafka, topic) == 3
    asked = ConfigResource("topic", topic)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    found = admin.describe_configs([asked])[asked].result(10)
    assert {name: found[name].value for name in settings} == settings


def test_a_topic_with_other_partitions_is_left_alone_and_told(kafka: Service, topic: str) -> None:
    create_missing(_cluster(kafka), topic, TopicSettings(2, None, ()))
    with pytest.warns(
        RuntimeWarning, match=f"kafka topic '{topic}' at .* has 2 partitions, not 4. It is left as it is"
    ):
        create_missing(_cluster(kafka), topic, TopicSettings(4, None, ()))
    assert _partitions(kafka, topic) == 2


def test_of_drivers_that_create_a_topic_at_once_each_finds_it(kafka: Service, topic: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: TopicSettings(2, None, ()).create(_cluster(kafka), topic), range(8)))
    assert {found for _, found in made} == {2}
    assert any(created for created, _ in made)


def test_one_that_is_created_between_the_look_and_the_call_is_found(
    kafka: Service, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TopicSettings(2, None, ())
    wanted.create(_cluster(kafka), topic)
    look, answers = TopicSettings._partitions, [None]

    def late(self: TopicSettings, *given: Any) -> int | None:
        return answers.pop() if answers else look(self, *given)

    monkeypatch.setattr(TopicSettings, "_partitions", late)
    assert wanted.create(_cluster(kafka), topic) == (True, 2)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("fine", TopicSettings(1, 7, ()), "INVALID_REPLICATION_FACTOR"),
        ("fine", TopicSettings(1, None, (("cleanup.policy", "shred"),)), "INVALID_CONFIG"),
        ("no spaces", TopicSettings(1, None, ()), "TOPIC_EXCEPTION"),
    ],
)
def test_what_the_broker_does_not_create_is_an_error_with_its_reason(
    kafka: Service, topic: str, name: str, settings: TopicSettings, why: str
) -> None:
    with pytest.raises(hr.HeadraceError) as raised:
        create_missing(_cluster(kafka), f"{topic} {name}" if " " in name else topic, settings)
    assert raised.value.id == "TOPIC_NOT_CREATED"
    assert f"({why})" in str(raised.value)
    assert repr(settings) in str(raised.value)


def test_the_command_line_creates_a_topic_in_the_folders_kafka(kafka: Service, topic: str) -> None:
    folder = ["--folder", str(kafka.folder.parent)]
    first = CliRunner().invoke(app, ["services", "topic", topic, "--partitions", "4", *folder])
    assert (first.exit_code, first.stdout) == (0, f"topic {topic} created, with 4 partitions\n")
    again = CliRunner().invoke(app, ["services", "topic", topic, *folder])
    assert (again.exit_code, again.stdout) == (0, f"topic {topic} exists, with 4 partitions\n")
    assert _partitions(kafka, topic) == 4


def test_without_a_broker_the_command_line_says_how_to_start_one(tmp_path: Any) -> None:
    result = CliRunner().invoke(app, ["services", "topic", "spend", "--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"headrace: [SERVICE_NEEDS_KAFKA] no Kafka broker runs in {tmp_path}/kafka. Start")
