"""Secrets: found where they are used, hidden everywhere else."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import headrace as hr
from headrace.connectors.kafka.positions import Subscription
from headrace.secrets import Secret, revealed, shown_options, without_password

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
