"""Secrets: found where they are used, hidden everywhere else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.base.sink import TaskSink
from headrace.connectors.http.client import parse_endpoint
from headrace.connectors.kafka.positions import Subscription
from headrace.connectors.mqtt.feed import Broker
from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PostgresServer
from headrace.connectors.redis.client import RedisAddress
from headrace.redaction import redacted, without_password
from headrace.secrets import Secret, revealed, revealed_options, shown_options

CANARY = "c4n4ry-hunter2"


def test_a_secret_travels_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    hidden = hr.secret(env="SHOP_PASSWORD")
    assert CANARY.encode() not in pickle.dumps(hidden)
    assert repr(hidden) == str(hidden) == f"{hidden}" == "hr.secret(env='SHOP_PASSWORD')"
    assert pickle.loads(pickle.dumps(hidden)).reveal() == CANARY


def test_a_secret_is_read_when_it_is_used_so_that_it_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    hidden = hr.secret(file=str(file))
    for value in ("first", "second"):
        file.write_text(f"{value}\n")
        assert hidden.reveal() == value
    monkeypatch.setenv("SHOP_PASSWORD", "third")
    assert revealed(hr.secret(env="SHOP_PASSWORD")) == "third"
    assert revealed("plain") == "plain"


@pytest.mark.parametrize("place", [{"env": "HEADRACE_NOWHERE"}, {"file": "nowhere/password"}])
def test_a_secret_that_is_not_there_is_named_by_its_place(place: dict[str, str]) -> None:
    with pytest.raises(hr.HeadraceError) as problem:
        hr.secret(**place).reveal()
    assert problem.value.id == "SECRET_MISSING"
    assert next(iter(place.values())) in str(problem.value)


@pytest.mark.parametrize("place", [{}, {"env": "A", "file": "b"}])
def test_a_secret_has_one_place(place: dict[str, str]) -> None:
    with pytest.raises(hr.DefinitionError) as problem:
        hr.secret(**place)
    assert problem.value.id == "SECRET_AMBIGUOUS"


@pytest.mark.parametrize(
    "address",
    [
        f"redis://:{CANARY}@cache:6379/0",
        f"redis://ann:{CANARY}@cache:6379/0",
        f"redis://cache:6379/0?password={CANARY}",
        f"redis://cache:6379/0?db=2&password={CANARY}&username=ann",
        f"redis://cache:6379/0?password={CANARY},'{CANARY}",
    ],
)
def test_an_address_for_people_has_no_password(address: str) -> None:
    shown = without_password(address)
    assert CANARY not in shown
    assert "***" in shown
    assert "cache" in shown


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    address = "redis://ann@cache:6379/0?db=2"
    assert without_password(address) == address


HEADERS: dict[str, str | Secret] = {"Authorization": f"Bearer {CANARY}", "X-Api-Key": CANARY, "X-Auth": CANARY}
OPTIONS: dict[str, str | Secret] = {"sasl.password": CANARY, "ssl.key.password": CANARY, "ssl.key.pem": CANARY}


@pytest.mark.parametrize(
    "thing",
    [
        hr.to_kafka("spend", servers="broker:9092", options=OPTIONS),
        hr.to_postgres("spend", dsn=f"host=db user=ann password='{CANARY}' sslpassword={CANARY}"),
        hr.to_postgres("spend", dsn=f"postgresql://ann:{CANARY}@db/shop", password=CANARY),
        hr.to_redis(f"redis://ann:{CANARY}@cache", key="{id}", password=CANARY),
        hr.to_http(f"https://ann:{CANARY}@shop/in?token={CANARY}", identity="id", headers=HEADERS),
        hr.to_opensearch(f"https://ann:{CANARY}@search", "spend", id="{id}"),
        hr.to_opensearch("https://search", "spend", id="{id}", username="ann", password=CANARY),
        hr.http_lookup(f"https://ann:{CANARY}@crm/{{id}}?key={CANARY}", headers=HEADERS),
        hr.redis_lookup(f"redis://:{CANARY}@cache", key="{id}", password=CANARY),
        hr.postgres_lookup(f"host=db password={CANARY}", "select 1", password=CANARY),
        hr.postgres_table("select 1", dsn=f"host=db password={CANARY}", schema="id INT", password=CANARY),
        RedisAddress(f"redis://:{CANARY}@cache", CANARY),
        PostgresServer(f"host=db password={CANARY}", CANARY),
        parse_endpoint(f"https://ann:{CANARY}@shop/in", headers=HEADERS),
        Broker("broker:1883", ("#",), "ann", CANARY),
        Subscription("broker:9092", ("spend",), False, "earliest", "fail", tuple(OPTIONS.items())),
        ReplicationSlot(PostgresServer(f"host=db password={CANARY}"), "shop", "shop"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_plain_password_is_in_no_text_about_a_sink_a_source_or_a_lookup(thing: Any) -> None:
    about = [repr(thing), str(thing), f"{thing}"]
    if isinstance(thing, TaskSink):
        about += [thing.place, thing.target, thing.why]
    assert not [text for text in about if CANARY in text]


def test_options_are_hidden_by_name_and_by_kind() -> None:
    options: dict[str, str | Secret] = {
        "sasl.username": "ann",
        "sasl.password": CANARY,
        "ssl.key.pem": CANARY,
        "sasl.jaas.config": CANARY,
        "client.rack": hr.secret(env="RACK"),
    }
    shown = shown_options(options)
    assert shown.pop("sasl.username") == "ann"
    assert set(shown.values()) == {"***"}


def test_kafka_options_are_in_no_text_for_people_and_only_the_place_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SASL", CANARY)
    options: dict[str, str | Secret] = {"sasl.password": hr.secret(env="SASL")}
    source = Subscription("broker:9092", ("payments",), False, "earliest", "fail", tuple(options.items()))
    sink = hr.to_kafka("spend", servers="broker:9092", options=options)
    texts = [repr(source), repr(sink), sink.place, sink.why, str(sink.cluster)]
    assert not [text for text in texts if CANARY in text]
    assert source.options == (("sasl.password", hr.secret(env="SASL")),)
    sent = pickle.dumps(source)
    assert CANARY.encode() not in sent
    assert pickle.loads(sent).client_options()["sasl.password"] == CANARY


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_the_line_end_of_a_file_is_not_part_of_its_secret(tmp_path: Path, end: str) -> None:
    (tmp_path / "password").write_bytes(f"{CANARY}{end}".encode())
    assert hr.secret(file=str(tmp_path / "password")).reveal() == CANARY


def test_what_was_revealed_is_redacted_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    hr.secret(env="SHOP_PASSWORD").reveal()
    assert str(hr.HeadraceError("SINK_REFUSED", f"no {CANARY}")) == "[SINK_REFUSED] no ***"
    assert revealed_options([("client.id", "shop-1"), ("sasl.password", "hunter-2")]) == {
        "client.id": "shop-1",
        "sasl.password": "hunter-2",
    }
    assert redacted("shop-1 hunter-2") == "shop-1 ***"
