"""MQTT without a broker: what is refused in a definition, the landing log, and how tasks read it."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

import polars as pl
import pytest

from headrace.checkpoint.storage import MemoryStorage
from headrace.connectors.base.decoding import Columns, Decoded
from headrace.connectors.base.messages import JsonMessages, Payloads, message_decoder
from headrace.connectors.mqtt.feed import Broker, LandingLog, MqttMessage, landed, own_id
from headrace.connectors.mqtt.source import LandedFiles, MqttReader, read_mqtt
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchRecord
from headrace.schemas import MOMENT
from headrace.secrets import secret
from headrace.wheel.task import Task
from tests.tasks import state_in_memory

TASK = Task(BatchRecord(0, 77, {}, {}, {}, drain=False), "flow", 0, lambda *_: None, state_in_memory())
COLUMNS = {"id": pl.Int64(), "_timestamp": MOMENT, "_topic": pl.String()}


@pytest.mark.parametrize(
    ("topics", "options", "id"),
    [
        ([], {}, "TOPIC_INVALID"),
        ("plant/a#", {}, "TOPIC_INVALID"),
        ("plant", {"servers": "broker"}, "SERVERS_INVALID"),
        ("plant", {"format": "avro"}, "FORMAT_UNKNOWN"),
        ("plant", {}, "SCHEMA_MISSING"),
        ("plant", {"format": "raw", "schema": "n INT"}, "SCHEMA_MISSING"),
        ("plant", {"schema": "_topic STRING"}, "SCHEMA_MISSING"),
        ("plant", {"schema": "n INT, _timestamp BIGINT"}, "METADATA_TYPE"),
        ("plant", {"schema": "n INT"}, "NO_PIPELINE"),
    ],
)
def test_a_definition_that_could_never_read_is_refused(topics: Any, options: dict[str, Any], id: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        read_mqtt(None, topics, **options)  # type: ignore[arg-type]
    assert raised.value.id == id


def test_a_broker_that_does_not_answer_is_named_without_its_password() -> None:
    broker = Broker("127.0.0.1:1", ("plant",), "ann", "hunter2")
    assert "hunter2" not in repr(broker) + repr(Broker("a:1", ("b",), "ann", secret(env="X")))
    with pytest.raises(HeadraceError, match=r"\[SOURCE_UNREACHABLE\] MQTT broker 127.0.0.1:1 does not answer"):
        broker.check()


def test_a_landing_log_goes_on_after_the_last_number_and_overwrites_nothing(tmp_path: Path) -> None:
    log, other = LandingLog(tmp_path / "log"), LandingLog(tmp_path / "log")
    files = [log.append([MqttMessage("t", b"1", 5)]), other.append([MqttMessage("t", b"2", 6)])]
    again = LandingLog(tmp_path / "log")
    files.append(again.append([MqttMessage("t", b"3", 7)]))
    assert [file.name.split("-")[0] for file in files] == ["00000000", "00000000", "00000001"]
    assert sorted((tmp_path / "log").iterdir()) == sorted(files)
    assert [landed(str(file)).to_pylist() for file in files] == [
        [{"topic": "t", "payload": str(n).encode(), "arrived": n + 4}] for n in (1, 2, 3)
    ]


def test_a_landing_log_keeps_its_name_at_the_broker(tmp_path: Path) -> None:
    assert own_id(tmp_path / "a") == own_id(tmp_path / "a") != own_id(tmp_path / "b")


def test_a_landing_log_that_lacks_the_newest_file_that_was_read_or_its_name_at_the_broker_is_refused(
    tmp_path: Path,
) -> None:
    log, storage = LandingLog(tmp_path / "landing"), MemoryStorage()
    files = [log.append([MqttMessage("t", b"1", number)]) for number in range(4)]
    position = {"lists": list[str]()}

    def landed_files() -> LandedFiles:
        return LandedFiles("rows", storage, str(log.folder), files_per_batch=2)

    landed_files().check(position)
    own_id(log.folder)
    for _ in range(2):
        position = landed_files().plan(position, most=None).until
    files[0].unlink()
    landed_files().check(position)
    for file in (log.folder / "_client", files[3]):
        kept = file.rename(tmp_path / file.name)
        with pytest.raises(HeadraceError, match=rf"\[CHECKPOINT_INCOMPLETE\].*: {file.name} is missing"):
            landed_files().check(position)
        kept.rename(file)
    rmtree(log.folder)
    with pytest.raises(HeadraceError, match=r"\[CHECKPOINT_INCOMPLETE\].*: _client is missing"):
        landed_files().check(position)


def test_messages_become_rows_with_their_topic_and_time_and_broken_ones_dead_letters_with_theirs(
    tmp_path: Path,
) -> None:
    log = LandingLog(tmp_path)
    sent = [("a", b'{"id":1}', 1), ("b", b"", 2), ("b", b"?", 3), ("a", b"{}", 4)]
    file = str(log.append([MqttMessage(*each) for each in sent]))
    reader = MqttReader(message_decoder("json", Columns({"id": pl.Int64()}), avro_schema=None), COLUMNS)
    [chunk] = reader.read([(file, 1, 1)], TASK)
    assert chunk.origin == file
    assert [(row[0], row[2], row[3]) for row in chunk.rows.rows()] == [(1, "a", 0), (None, "a", 3)]
    assert chunk.rows["_timestamp"].cast(pl.Int64).to_list() == [1, 4]
    assert isinstance(chunk.arrived, pl.Series)
    assert chunk.arrived.to_list() == [1, 4]
    dead = chunk.dead.sort("position")
    assert dead["position"].to_list() == [1, 2]
    assert all(detail.endswith("(topic b)") for detail in dead["detail"])


def test_a_message_that_its_decoder_fails_on_is_alone_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(messages: JsonMessages, payloads: Payloads) -> Decoded:
        if b"poison" in payloads.raw():
            raise pl.exceptions.PanicException("it is poison")
        return decoded(messages, payloads)

    decoded = JsonMessages.decode
    monkeypatch.setattr(JsonMessages, "decode", decode)
    sent = [("a", b'{"id":1}', 1), ("b", b"poison", 2), ("c", b'{"id":2}', 3)]
    file = str(LandingLog(tmp_path).append([MqttMessage(*each) for each in sent]))
    reader = MqttReader(message_decoder("json", Columns({"id": pl.Int64()}), avro_schema=None), COLUMNS)
    chunks = list(reader.read([(file, 1, 1)], TASK))
    assert [(row[0], row[2], row[3]) for chunk in chunks for row in chunk.rows.rows()] == [(1, "a", 0), (2, "c", 2)]
    dead = [row for chunk in chunks for row in chunk.dead.rows()]
    assert dead == [(1, "UNDECODABLE", "it is poison (topic b)", b"poison")]


@pytest.mark.parametrize("payloads", [[b"?", b"?"], [b'{"id":1}']])
def test_a_file_may_hold_only_broken_or_only_good_messages(tmp_path: Path, payloads: list[bytes]) -> None:
    log = LandingLog(tmp_path)
    file = log.append([MqttMessage("t", payload, 1) for payload in payloads])
    reader = MqttReader(message_decoder("json", Columns({"id": pl.Int64()}), avro_schema=None), COLUMNS)
    [chunk] = reader.read([(str(file), 1, 1)], TASK)
    assert chunk.rows.height + chunk.dead.height == len(payloads)
