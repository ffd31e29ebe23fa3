"""``hr.to_kafka`` without a broker: messages, marks, errors, and what is shown of secrets."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from confluent_kafka import KafkaError, TopicPartition

from headrace.connectors.base.sink import Mark, TaskSink, Unreachable
from headrace.connectors.kafka.client import Cluster, Fenced, Message, send
from headrace.connectors.kafka.sink import OVERHEAD, left_out, messages, to_kafka, too_large
from headrace.connectors.kafka.transactions import BATCHES, MarkOffset, read_mark
from headrace.errors import DefinitionError, HeadraceError
from headrace.rendering import REFUSED
from headrace.secrets import Secret, secret
from tests.writers import Writer

NOBODY = "127.0.0.1:1"
CLUSTER = Cluster(NOBODY, (), 1_000_000)


def _keys(rows: pl.DataFrame, *key: str) -> list[bytes | None]:
    return [name for _, name in messages(rows, key=key, format="json")]


def test_a_sink_prints_the_code_that_makes_it_and_hides_secrets() -> None:
    options: dict[str, str | Secret] = {"sasl.username": "ann", "sasl.password": secret(env="KAFKA_PASSWORD")}
    sink = to_kafka(
        "spend",
        servers="db:9092",
        key=["a", "b"],
        writers=2,
        guarantee="at_least_once",
        max_bytes=5_000,
        options=options,
    )
    assert repr(sink) == (
        "hr.to_kafka('spend', servers='db:9092', key=['a', 'b'], writers=2, guarantee='at_least_once', max_bytes=5000, "
        "options={'sasl.password': '***', 'sasl.username': 'ann'})"
    )


def test_a_sink_is_a_task_sink_and_travels_to_tasks() -> None:
    sink = to_kafka("spend", servers="db:9092", key="account")
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.partition_by, sink.writers, sink.place) == (("account",), None, "kafka topic 'spend' at db:9092")
    assert "read_committed" in sink.why


@pytest.mark.parametrize(
    ("wrong", "id"),
    [
        ({"format": "xml"}, "FORMAT_UNKNOWN"),
        ({"guarantee": "maybe"}, "GUARANTEE_UNKNOWN"),
        ({"writers": 0}, "WRITERS_INVALID"),
        ({"options": {"transactional.id": "mine"}}, "OPTION_RESERVED"),
    ],
)
def test_a_definition_that_cannot_work_is_refused(wrong: dict[str, Any], id: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        to_kafka("spend", servers=NOBODY, **wrong)
    assert refusal.value.id == id


def test_a_key_is_the_text_that_the_value_has_in_the_row() -> None:
    rows = pl.DataFrame(
        {
            "text": ['a"b', None],
            "number": [7, None],
            "raw": [b"\x00\xff", None],
            "at": [datetime(2025, 1, 1, 10, tzinfo=UTC), None],
            "window": [{"start": 1}, None],
            "ratio": [float("nan"), float("-inf")],
        }
    )
    assert _keys(rows, "ratio") == [b"NaN", b"-Infinity"]
    assert _keys(rows, "text") == [b'a"b', None]
    assert _keys(rows, "number") == [b"7", None]
    assert _keys(rows, "raw") == [b"\x00\xff", None]
    assert _keys(rows, "at") == [b"2025-01-01T10:00:00+00:00", None]
    assert _keys(rows.head(1), "window") == [b'{"start":1}']
    assert _keys(rows, "text", "number") == [b'{"text":"a\\"b","number":7}', b'{"text":null,"number":null}']
    assert _keys(rows) == [None, None]


def test_a_raw_row_without_a_value_is_a_tombstone() -> None:
    rows = pl.DataFrame({"value": [b"v", None], "id": ["a", "b"]})
    assert messages(rows, key=["id"], format="raw") == [(b"v", b"a"), (None, b"b")]


def test_a_row_that_is_too_large_is_left_out_with_its_bytes_and_its_size() -> None:
    rows = pl.DataFrame({"id": ["a", "b", "c"], "pad": ["x", "x" * 2_000, "y"]})
    every = messages(rows, key=["id"], format="json")
    large = too_large(every, 1_000)
    assert list(large) == [every[1]]
    letters = left_out(rows, every, large)
    assert letters.schema == left_out(rows, every, {}).schema == REFUSED
    assert letters.rows() == [
        (
            "MESSAGE_TOO_LARGE",
            f"2020 bytes; at most {1_000 - OVERHEAD} are allowed",
            b'{"id":"b","pad":"' + b"x" * 2_000 + b'"}',
        )
    ]
    assert left_out(rows, every, {}).is_empty()


@pytest.mark.parametrize("mark", [Mark(3), Mark(3, 0, 0, 5), Mark(3, 0, 9, 1), Mark(3, 4_000_000, BATCHES - 2, 10**9)])
def test_a_mark_comes_back_from_its_group_offset(mark: Mark) -> None:
    stored = MarkOffset("f00d", mark)
    position = stored.position("spend")
    assert 0 <= position.offset < 2**63
    assert read_mark(position) == stored


def test_a_later_generation_and_a_later_batch_have_a_higher_offset() -> None:
    marks = [Mark(1), Mark(1, 0, 0), Mark(1, 0, 1), Mark(1, 1, 0), Mark(1, 1, 1)]
    offsets = [MarkOffset("f00d", mark).position("spend").offset for mark in marks]
    assert offsets == sorted(set(offsets))


def test_an_offset_counts_batches_after_those_of_earlier_generations() -> None:
    assert MarkOffset("f00d", Mark(3, 1, 7, 40)).position("spend").offset == BATCHES + 8 == 2**40 + 8


def test_nothing_committed_is_no_mark() -> None:
    assert read_mark(TopicPartition("spend", 0)) is None


@pytest.mark.parametrize("metadata", ["", "hello", "{}", "[]", '{"epoch": null, "owner": "a", "rows": 1}'])
def test_an_offset_that_another_program_committed_is_not_taken_for_a_mark(metadata: str) -> None:
    with pytest.raises(HeadraceError) as problem:
        read_mark(TopicPartition("spend", 0, 7, metadata))
    assert problem.value.id == "MARK_UNREADABLE"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError._TIMED_OUT, Unreachable),
        (KafkaError._ALL_BROKERS_DOWN, Unreachable),
        (KafkaError._MSG_TIMED_OUT, Unreachable),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Unreachable),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Unreachable),
        (KafkaError._FENCED, Fenced),
        (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError._AUTHENTICATION, HeadraceError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, HeadraceError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, HeadraceError),
    ],
)
def test_an_error_says_whether_to_wait_to_look_at_the_mark_or_to_stop(code: int, kind: type[Exception]) -> None:
    assert type(CLUSTER.failure(KafkaError(code))) is kind


def test_a_fatal_error_is_a_fence() -> None:
    assert type(CLUSTER.failure(KafkaError(KafkaError._STATE, "no more", True))) is Fenced


def test_a_call_that_overruns_its_time_out_is_left_behind() -> None:
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in 0 seconds"):
        CLUSTER.answer(lambda: time.sleep(30), limit=0)
    assert time.monotonic() - begun < 25


def test_what_a_call_raises_reaches_the_caller() -> None:
    def broken() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        CLUSTER.answer(broken)


def test_a_server_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.kafka.client.PATIENCE", 0.5)
    with pytest.raises(Unreachable):
        to_kafka("spend", servers=NOBODY).prepare(
            {"id": pl.Int64()}, [Writer("f", epoch=1).name], Writer("f", epoch=1).epoch
        )


def test_an_option_that_the_client_does_not_know_is_named_and_secrets_stay_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "hunter2")
    hidden = secret(env="CANARY")
    for options in ({"no.such.option": hidden}, {"security.protocol": hidden}, {"no.such.password": "hunter2"}):
        with pytest.raises(HeadraceError) as problem:
            to_kafka("spend", servers=NOBODY, options=options).prepare({"id": pl.Int64()}, [], 1)
        assert problem.value.id == "KAFKA_OPTION"
        assert next(iter(options)) in str(problem.value)
        assert "hunter2" not in str(problem.value)
        assert "hunter2" not in repr(Cluster(NOBODY, tuple(options.items()), 1))


@pytest.mark.parametrize(
    ("sink", "columns", "id"),
    [
        (lambda: to_kafka("t", servers=NOBODY, key="nobody"), {"id": pl.Int64()}, "KEY_UNKNOWN"),
        (lambda: to_kafka("t", servers=NOBODY, format="raw"), {"id": pl.Int64()}, "RAW_COLUMNS"),
        (lambda: to_kafka("t", servers=NOBODY, format="raw"), {"value": pl.Int64()}, "RAW_COLUMNS"),
        (
            lambda: to_kafka("t", servers=NOBODY, format="raw"),
            {"value": pl.Binary(), "key": pl.Binary()},
            "RAW_COLUMNS",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_the_first_batch(
    sink: Callable[[], Any], columns: dict[str, pl.DataType], id: str
) -> None:
    with pytest.raises(HeadraceError) as problem:
        sink().prepare(columns, [], 1)
    assert problem.value.id == id


class _Producer:
    """A producer with room for so many bytes, whose broker acknowledges one message at each flush unless it stalls."""

    def __init__(self, room: int, *, stalls: bool = False) -> None:
        self.room, self.stalls = room, stalls
        self.queue: list[Message] = []
        self.sent: list[Message] = []

    def __len__(self) -> int:
        return len(self.queue)

    def produce(self, topic: str, value: bytes, key: bytes | None) -> None:
        if sum(len(queued or b"") for queued, _ in self.queue) + len(value) > self.room:
            raise BufferError("Local: Queue full")
        self.queue.append((value, key))

    def flush(self, timeout: float) -> int:
        if not self.stalls:
            self.sent += self.queue[:1]
            del self.queue[:1]
        return len(self.queue)


def test_a_queue_that_is_full_of_bytes_is_waited_for_until_there_is_room() -> None:
    producer = _Producer(room=10)
    sizes = [3, 3, 3, 10, 1, 9]
    many: list[Message] = [(b"x" * size, None) for size in sizes]
    send(producer, "t", many, CLUSTER)  # type: ignore[arg-type]
    assert producer.sent + producer.queue == many


def test_a_queue_that_stays_full_of_bytes_is_a_broker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.kafka.client.PATIENCE", 0.1)
    producer = _Producer(room=10, stalls=True)
    with pytest.raises(Unreachable, match="acknowledged none of 2 messages"):
        send(producer, "t", [(b"x" * 5, None)] * 3, CLUSTER)  # type: ignore[arg-type]


def test_a_message_that_is_larger_than_the_whole_queue_is_an_error() -> None:
    with pytest.raises(HeadraceError, match=r"KAFKA_OPTION.*queue\.buffering\.max\.kbytes"):
        send(_Producer(room=10), "t", [(b"x", None), (b"x" * 11, None)], CLUSTER)  # type: ignore[arg-type]
