"""``hr.to_kafka`` and a real broker: what readers with read_committed see, whatever fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.connectors.base.sink import Delivered, Guarantee, Mark, Unreachable, WriterBatch
from headrace.connectors.kafka import client as kafka_client
from headrace.connectors.kafka import sink as kafka_sink
from headrace.connectors.kafka import transactions as kafka_transactions
from headrace.connectors.kafka.sink import KafkaSink, to_kafka
from headrace.connectors.kafka.transactions import Transactions
from headrace.connectors.servers import running
from headrace.errors import HeadraceError
from headrace.secrets import secret
from headrace.services.server import ANY, free_ports
from headrace.services.service import Service
from tests.topics import create_topic, messages
from tests.writers import Writer

PARTITIONS = 2

# A worker of its own: each line of its input is a batch to write, each line of its output says what became of it.
WORKER = """
import json, sys
import polars as pl
from headrace.connectors.kafka.sink import to_kafka
from headrace.connectors.base.sink import Unreachable
from tests.writers import Writer

servers, topic = sys.argv[1:]
sink = to_kafka(topic, servers=servers, key="id")
for line in sys.stdin:
    batch, epoch, rows = json.loads(line)
    frame = pl.DataFrame({"id": range(batch * 1000, batch * 1000 + rows)})
    part, said = Writer(topic, epoch=epoch).batch(0, batch, batch - 1 if batch else None), None
    while said is None:
        try:
            said = sink.deliver(frame, part).written
        except Unreachable:
            pass
        except Exception as problem:
            said = str(problem)
    print(json.dumps(said), flush=True)
"""


@pytest.fixture
def topic(kafka: Service) -> str:
    """A new topic, which is also the name of the flow that writes it."""
    return _create(kafka, {})


def _create(kafka: Service, settings: dict[str, str]) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.address, name, PARTITIONS, **settings)
    return name


def _writer(topic: str, *, number: int = 0, epoch: int = 1) -> Writer:
    return Writer(topic, number, epoch)


def _part(topic: str, batch: int, last: int | None, *, generation: int = 0, epoch: int = 1) -> WriterBatch:
    return _writer(topic, epoch=epoch).batch(generation, batch, last)


def _rows(first: int, count: int = 10) -> pl.DataFrame:
    return pl.DataFrame({"id": range(first, first + count)})


def _sink(kafka: Service, topic: str, **more: Any) -> KafkaSink:
    sink = to_kafka(topic, servers=kafka.address, key="id", **more)
    sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 1)
    return sink


def _ids(kafka: Service, topic: str) -> list[int]:
    return sorted(json.loads(value)["id"] for _, value in messages(kafka.address, topic) if value is not None)


def _patiently(sink: KafkaSink, rows: pl.DataFrame, part: WriterBatch, missed: list[float]) -> Delivered:
    """Deliver as the tasks do, and note when the broker was missed."""
    while True:
        try:
            return sink.deliver(rows, part)
        except Unreachable:
            missed.append(time.monotonic())
            time.sleep(0.2)


@contextmanager
def _worker(kafka: Service, topic: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WORKER, kafka.address, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _tell(worker: subprocess.Popen[str], batch: int, *, epoch: int = 1, rows: int = 1000) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps([batch, epoch, rows]) + "\n")
    worker.stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> Any:
    assert worker.stdout is not None
    return json.loads(worker.stdout.readline())


def test_rows_arrive_with_their_keys_in_the_order_of_each_key(kafka: Service, topic: str) -> None:
    sink = to_kafka(topic, servers=kafka.address, key="account")
    rows = pl.DataFrame({"account": ["a", "b"] * 50, "n": range(100)})
    sink.prepare(dict(rows.schema), [_writer(topic).name], 1)
    assert sink.deliver(rows, _part(topic, 0, None)) == Delivered(100)
    found = messages(kafka.address, topic)
    for key, first in ((b"a", 0), (b"b", 1)):
        values = [json.loads(value or b"") for name, value in found if name == key]
        assert values == [{"account": key.decode(), "n": n} for n in range(first, 100, 2)]


def test_raw_bytes_and_tombstones_arrive_as_they_are(kafka: Service, topic: str) -> None:
    sink = to_kafka(topic, servers=kafka.address, format="raw", key="id")
    rows = pl.DataFrame({"id": ["a", "b", None], "value": [b"\x00\xff", None, b""]})
    sink.prepare(dict(rows.schema), [_writer(topic).name], 1)
    assert sink.deliver(rows, _part(topic, 0, None)) == Delivered(3)
    assert Counter(messages(kafka.address, topic)) == Counter([(b"a", b"\x00\xff"), (b"b", None), (None, b"")])


def test_a_part_that_is_marked_is_not_written_again(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    assert sink.deliver(_rows(0), _part(topic, 0, None)) == Delivered(10)
    assert sink.deliver(_rows(0), _part(topic, 0, None)) == Delivered(0, already_marked=10)
    assert sink.deliver(_rows(10), _part(topic, 3, 0)) == Delivered(10)
    assert sink.deliver(_rows(10), _part(topic, 3, 0)) == Delivered(0, already_marked=10)
    assert _ids(kafka, topic) == list(range(20))


def test_of_two_copies_of_a_checkpoint_only_one_can_write(kafka: Service, topic: str) -> None:
    sink, writer = _sink(kafka, topic), _writer(topic)
    assert sink.deliver(_rows(0), writer.batch(0, 0, None, token="one")) == Delivered(10)
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.deliver(_rows(0), writer.batch(0, 0, None, token="other"))
    assert sink.deliver(_rows(0), writer.batch(0, 0, None, token="one")) == Delivered(0, already_marked=10)
    assert _ids(kafka, topic) == list(range(10))


def test_a_restart_finds_the_mark_and_a_new_generation_begins_at_batch_0(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    sink.deliver(_rows(0), _part(topic, 7, None))
    sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 2)
    assert sink.deliver(_rows(0), _part(topic, 7, None, epoch=2)) == Delivered(0, already_marked=10)
    assert sink.deliver(_rows(10), _part(topic, 0, None, generation=1, epoch=2)) == Delivered(10)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(20), _part(topic, 8, 7, epoch=2))
    assert problem.value.id == "GENERATION_OLD"
    assert _ids(kafka, topic) == list(range(20))


def test_a_driver_of_an_older_epoch_writes_nothing_even_before_the_first_mark(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 2)
    for attempt in (
        lambda: sink.deliver(_rows(0), _part(topic, 0, None, epoch=1)),
        lambda: sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 1),
    ):
        with pytest.raises(HeadraceError) as problem:
            attempt()
        assert problem.value.id == "FENCED"
    assert sink.deliver(_rows(0), _part(topic, 0, None, epoch=2)) == Delivered(10)
    assert _ids(kafka, topic) == list(range(10))


@pytest.mark.full
def test_a_zombie_in_the_middle_of_its_transaction_cannot_commit(
    kafka: Service, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(kafka, topic)
    finish = kafka_client.finish

    def taken_over(*arguments: Any, **how: Any) -> None:
        monkeypatch.setattr(kafka_transactions, "finish", finish)
        finish(*arguments, **how)
        sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 2)

    monkeypatch.setattr(kafka_transactions, "finish", taken_over)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(0), _part(topic, 0, None, epoch=1))
    assert problem.value.id == "FENCED"
    assert _ids(kafka, topic) == []
    assert sink.deliver(_rows(0), _part(topic, 0, None, epoch=2)) == Delivered(10)
    assert _ids(kafka, topic) == list(range(10))
    assert len(messages(kafka.address, topic, "read_uncommitted")) == 20


@pytest.mark.full
def test_a_frozen_worker_that_wakes_after_a_take_over_writes_nothing(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    with _worker(kafka, topic) as zombie:
        _tell(zombie, 0)
        assert _heard(zombie) == 1000
        for epoch in (2, 3, 4):
            batch = epoch - 1
            _tell(zombie, batch, epoch=1, rows=1000)
            os.kill(zombie.pid, signal.SIGSTOP)
            sink.prepare({"id": pl.Int64()}, [_writer(topic).name], epoch)
            sink.deliver(_rows(batch * 1000, 1000), _part(topic, batch, batch - 1, epoch=epoch))
            os.kill(zombie.pid, signal.SIGCONT)
            answer = _heard(zombie)
            # It may have been stopped after its commit: then its successor found the mark and wrote nothing.
            assert answer == 1000 or answer.startswith("[FENCED]")
    assert _ids(kafka, topic) == list(range(4000))


def test_a_writer_that_moves_between_workers_writes_each_share_once(kafka: Service, topic: str) -> None:
    _sink(kafka, topic)
    with _worker(kafka, topic) as one, _worker(kafka, topic) as other:
        for batch in range(8):
            for worker in (one, other) if batch % 4 == 3 else ((one, other)[batch % 2],):
                _tell(worker, batch)
                assert _heard(worker) == (0 if worker is other and batch % 4 == 3 else 1000)
    assert _ids(kafka, topic) == list(range(8000))


@pytest.mark.full
def test_a_killed_worker_leaves_no_row_behind(kafka: Service, topic: str) -> None:
    _sink(kafka, topic)
    for pause in (0.9, 1.1, 1.3):
        with _worker(kafka, topic) as worker:
            _tell(worker, 0)
            time.sleep(pause)
    with _worker(kafka, topic) as worker:
        _tell(worker, 0)
        assert _heard(worker) in (0, 1000)
    assert _ids(kafka, topic) == list(range(1000))


def test_a_mark_that_was_removed_is_missed(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    sink.deliver(_rows(0), _part(topic, 4, None))
    admin = AdminClient({"bootstrap.servers": kafka.address})
    group = f"{_writer(topic).name}.{topic}"
    admin.delete_consumer_groups([group])[group].result(30)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(10), _part(topic, 5, 4))
    assert problem.value.id == "MARK_LOST"
    sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 2)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(10), _part(topic, 5, 4, epoch=2))
    assert problem.value.id == "MARK_LOST"
    assert _ids(kafka, topic) == list(range(10))


def test_a_row_that_is_too_large_is_refused_each_time_and_the_others_arrive(kafka: Service, topic: str) -> None:
    sink = to_kafka(topic, servers=kafka.address, key="id")
    rows = pl.DataFrame({"id": [1, 2, 3], "pad": ["", "x" * 5_000_000, "y" * 999_000]})
    sink.prepare(dict(rows.schema), [_writer(topic).name], 1)
    for written, marked in ((2, 0), (0, 2)):
        delivered = sink.deliver(rows, _part(topic, 0, None))
        assert (delivered.written, delivered.already_marked) == (written, marked)
        assert delivered.refused is not None
        assert delivered.refused["reason"].to_list() == ["MESSAGE_TOO_LARGE"]
    assert _ids(kafka, topic) == [1, 3]


def test_a_topic_that_takes_less_than_the_sink_would_send_is_refused(kafka: Service) -> None:
    topic = _create(kafka, {"max.message.bytes": "20000"})
    with pytest.raises(HeadraceError, match="max_bytes=20000") as problem:
        _sink(kafka, topic)
    assert problem.value.id == "MESSAGE_LIMIT"
    sink = _sink(kafka, topic, max_bytes=20_000)
    rows = pl.DataFrame({"id": range(200)}).with_columns(pad=pl.Series([os.urandom(9_900) for _ in range(200)]))
    delivered = sink.deliver(rows, _part(topic, 0, None))
    assert delivered == Delivered(200)
    assert _ids(kafka, topic) == list(range(200))


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_message_that_the_broker_refuses_is_not_passed_over(kafka: Service, guarantee: Guarantee) -> None:
    topic = _create(kafka, {"max.message.bytes": "20000"})
    unprepared = to_kafka(topic, servers=kafka.address, format="raw", guarantee=guarantee)
    rows = pl.DataFrame({"value": [b"small", os.urandom(50_000)]})
    for _ in range(2):
        with pytest.raises(HeadraceError) as problem:
            unprepared.deliver(rows, _part(topic, 0, None))
        assert problem.value.id == "SINK_REFUSED"
    if guarantee == "exactly_once":
        assert unprepared.deliver(rows.head(1), _part(topic, 0, None)) == Delivered(1)
        assert messages(kafka.address, topic) == [(None, b"small")]


@pytest.mark.parametrize("may_read_settings", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize("guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.full)])
def test_a_message_without_a_key_is_refused_by_a_compacted_topic_and_its_neighbours_arrive(
    kafka: Service, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, may_read_settings: bool
) -> None:
    topic = _create(kafka, {"cleanup.policy": "compact"})
    sink = _sink(kafka, topic, guarantee=guarantee)
    reason, detail = "KEY_NULL", "the key is null, but the topic is compacted"
    if not may_read_settings:
        monkeypatch.setattr(kafka_sink, "topic_settings", lambda cluster, topic: {})
        reason, detail = "MESSAGE_REFUSED", "Broker: Broker failed to validate record (INVALID_RECORD)"
    # Of one bad message in a request librdkafka says that all are.
    rows = pl.DataFrame({"id": [*range(20), None]})
    delivered = sink.deliver(rows, _part(topic, 0, None))
    assert (delivered.written, delivered.already_marked) == (20, 0)
    assert delivered.refused is not None
    assert delivered.refused.rows() == [(reason, detail, b'{"id":null}')]
    assert _ids(kafka, topic) == list(range(20))
    if guarantee == "exactly_once":
        # After a crash before the dead letters were written, they must be found again.
        again = sink.deliver(rows.reverse(), _part(topic, 0, None))
        assert (again.written, again.already_marked) == (0, 20)
        assert again.refused is not None
        assert again.refused.rows() == delivered.refused.rows()
    assert sink.deliver(_rows(20, 2), _part(topic, 1, 0)) == Delivered(2)
    assert _ids(kafka, topic) == list(range(22))


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_refused_messages_among_many_are_all_found(
    kafka: Service, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee
) -> None:
    topic = _create(kafka, {"cleanup.policy": "compact"})
    sink = _sink(kafka, topic, guarantee=guarantee)
    monkeypatch.setattr(kafka_sink, "topic_settings", lambda cluster, topic: {})
    rows = pl.DataFrame({"n": range(30_000)}).select(
        pl.when(pl.col("n") % 7_000 != 7).then("n").alias("id"), pl.lit("x" * 100).alias("pad"), "n"
    )
    delivered = sink.deliver(rows, _part(topic, 0, None))
    assert delivered.written == 29_995
    assert delivered.refused is not None
    assert [json.loads(raw)["n"] for raw in delivered.refused["raw"]] == [7, 7_007, 14_007, 21_007, 28_007]
    ids = _ids(kafka, topic)
    assert len(set(ids)) == len(ids) == 29_995


def test_a_batch_that_has_more_rows_than_were_marked_stops_the_flow(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    sink.deliver(_rows(0), _part(topic, 0, None))
    with pytest.raises(HeadraceError, match=r"\[BATCH_DIFFERS\].*batch 0 had 10 messages and has 11 now"):
        sink.deliver(_rows(0, 11), _part(topic, 0, None))
    assert _ids(kafka, topic) == list(range(10))


def test_a_compacted_topic_without_a_key_is_an_error_before_the_first_batch(kafka: Service) -> None:
    topic = _create(kafka, {"cleanup.policy": "compact,delete"})
    with pytest.raises(HeadraceError, match=r"\[KEY_MISSING\].*cleanup\.policy=compact,delete"):
        to_kafka(topic, servers=kafka.address).prepare({"id": pl.Int64()}, [_writer(topic).name], 1)


def test_an_unknown_topic_is_named_with_those_that_exist(kafka: Service, topic: str) -> None:
    with pytest.raises(HeadraceError, match=topic) as problem:
        _sink(kafka, "nobody")
    assert problem.value.id == "TOPIC_UNKNOWN"
    with pytest.raises(HeadraceError) as problem:
        to_kafka("nobody", servers=kafka.address, guarantee="at_least_once").deliver(_rows(0), _part("nobody", 0, None))
    assert problem.value.id == "TOPIC_UNKNOWN"


@pytest.mark.full
def test_a_wrong_password_is_refused_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT", "correct-horse")
    monkeypatch.setenv("WRONG", "hunter2")
    account = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    with running("kafka", folder=tmp_path) as kafka:
        servers = _demand_password(kafka, "ann", "correct-horse")
        topic = _create(kafka, {})
        sink = to_kafka(topic, servers=servers, key="id", options={**account, "sasl.password": secret(env="RIGHT")})
        sink.prepare({"id": pl.Int64()}, [_writer(topic).name], 1)
        assert sink.deliver(_rows(0), _part(topic, 0, None)) == Delivered(10)
        wrong = to_kafka(topic, servers=servers, key="id", options={**account, "sasl.password": secret(env="WRONG")})
        with pytest.raises(HeadraceError) as problem:
            wrong.prepare({"id": pl.Int64()}, [_writer(topic).name], 1)
        assert problem.value.id == "SINK_REFUSED"
        with pytest.raises(HeadraceError) as problem:
            wrong.deliver(_rows(0), _part(topic, 1, 0))
        assert problem.value.id == "SINK_REFUSED"
        for text in (str(problem.value), repr(wrong), wrong.place):
            assert "hunter2" not in text


def _demand_password(kafka: Service, user: str, password: str) -> str:
    """Restart a broker with one more port, at which clients must name a user; returns that port's address."""
    kafka.stop()
    [port] = free_ports([ANY])
    file = kafka.folder / "server.properties"
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines())
    settings["listeners"] += f",SECURE://127.0.0.1:{port}"
    settings["advertised.listeners"] += f",SECURE://127.0.0.1:{port}"
    settings["listener.security.protocol.map"] += ",SECURE:SASL_PLAINTEXT"
    settings["sasl.enabled.mechanisms"] = "PLAIN"
    settings["listener.name.secure.plain.sasl.jaas.config"] = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";'
    )
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    kafka.start()
    return f"127.0.0.1:{port}"


def test_at_least_once_writes_each_time_and_leaves_no_mark(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic, guarantee="at_least_once")
    for _ in range(2):
        assert sink.deliver(_rows(0), _part(topic, 0, None)) == Delivered(10)
    assert _ids(kafka, topic) == sorted([*range(10), *range(10)])


def test_a_worker_keeps_the_clients_of_a_few_writers_only(kafka: Service, topic: str) -> None:
    sink = to_kafka(topic, servers=kafka.address, key="id")
    writers = [_writer(topic, number=number) for number in range(kafka_transactions.KEPT + 2)]
    sink.prepare({"id": pl.Int64()}, [writer.name for writer in writers], 1)
    for writer in writers:
        sink.deliver(_rows(writer.number), writer.batch(0, 0, None))
    assert len(kafka_transactions._kept) <= kafka_transactions.KEPT
    assert sink.deliver(_rows(0), writers[0].batch(0, 0, None)) == Delivered(0, already_marked=10)


@pytest.mark.full
def test_a_transaction_that_the_broker_gave_up_is_written_again(
    kafka: Service, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(kafka, topic, options={"transaction.timeout.ms": "1000"})
    finish, pauses = kafka_client.finish, [25.0]

    def slow(*arguments: Any, **how: Any) -> None:
        finish(*arguments, **how)
        # The broker looks for transactions that are too old every ten seconds.
        time.sleep(pauses.pop() if pauses else 0)

    monkeypatch.setattr(kafka_transactions, "finish", slow)
    assert _patiently(sink, _rows(0), _part(topic, 0, None), []) == Delivered(10)
    assert _ids(kafka, topic) == list(range(10))
    assert len(messages(kafka.address, topic, "read_uncommitted")) >= 20


@pytest.mark.full
def test_a_broker_that_is_killed_and_comes_back_has_every_row_once(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    written: list[int] = []
    missed: list[float] = []

    def write() -> None:
        for batch in range(40):
            part = _part(topic, batch, batch - 1 if batch else None)
            written.append(_patiently(sink, _rows(batch * 20_000, 20_000), part, missed).written)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    while len(written) < 10:
        time.sleep(0.01)
    kafka.kill()
    while not missed:
        time.sleep(0.01)
    kafka.start()
    writing.join(300)
    assert not writing.is_alive()
    assert _ids(kafka, topic) == list(range(800_000))


@pytest.mark.full
def test_a_commit_whose_answer_is_lost_is_resolved_by_the_mark(
    kafka: Service, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(kafka, topic)
    commit = Transactions.commit
    lose = True

    def lost(self: Transactions, *arguments: Any) -> None:
        nonlocal lose
        commit(self, *arguments)
        if lose:
            raise Unreachable("the answer was lost")

    monkeypatch.setattr(Transactions, "commit", lost)
    for batch in range(5):
        part = _part(topic, batch, batch - 1 if batch else None)
        with pytest.raises(Unreachable):
            sink.deliver(_rows(batch * 10), part)
        assert sink.deliver(_rows(batch * 10), part) == Delivered(0, already_marked=10)
    lose = False
    assert sink.deliver(_rows(50), _part(topic, 5, 4)) == Delivered(10)
    assert _ids(kafka, topic) == list(range(60))


def test_the_mark_holds_epoch_rows_token_and_owner(kafka: Service, topic: str) -> None:
    sink = _sink(kafka, topic)
    part = _writer(topic).batch(0, 2, None, token="9f2c")
    sink.deliver(_rows(0), part)
    group = Consumer({"bootstrap.servers": kafka.address, "group.id": f"{_writer(topic).name}.{topic}"})
    [position] = group.committed([TopicPartition(topic, 0)], timeout=10)
    stored = kafka_transactions.read_mark(position)
    assert stored is not None
    assert stored.mark == Mark(1, 0, 2, 10, "9f2c")
    assert json.loads(position.metadata or "").keys() == {"epoch", "rows", "token", "owner", "at"}
