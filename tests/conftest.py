"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

import headrace as hr
from headrace import redaction
from headrace.connectors.servers import running
from headrace.services.service import Service

# How long an example takes says something about the machine, not about the code. The examples are the same whenever the
# same tests are run (some come from constants in loaded modules), so that a failure comes from a change; others are
# looked for with --examples.
settings.register_profile("usual", deadline=None, derandomize=True)
settings.register_profile("on Spark", settings.get_profile("usual"), max_examples=settings().max_examples // 10)
settings.load_profile("usual")


def pytest_configure(config: pytest.Config) -> None:
    times = config.getoption("examples")
    if config.getoption("engine") == "spark":
        settings.load_profile("on Spark")
    if times > 1:
        settings.register_profile("many", settings(), derandomize=False, max_examples=settings().max_examples * times)
        settings.load_profile("many")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options must be known before any folder is collected, so this one is not beside the timelines that use it."""
    parser.addoption(
        "--engine",
        choices=("inline", "spark", "both"),
        default="both",
        help="timelines: all of them inline; all of them on Spark; or (default) all inline, and on Spark as well "
        "those that are marked",
    )
    parser.addoption(
        "--examples", type=int, default=1, help="so many times as many examples of each property, chosen anew"
    )
    parser.addoption("--kills", type=int, default=3, help="how often a job with a real sink is killed")
    parser.addoption("--rows", type=int, default=40_000, help="how many events a job with a real sink gets")
    parser.addoption("--rounds", type=int, default=5, help="so many rounds with copied checkpoints, for all sinks")
    parser.addoption("--seed", type=int, default=0, help="what these rounds do; 0: chosen anew")
    parser.addoption("--soak", type=float, default=0, help="for how many minutes jobs are killed; 0: no such test")
    parser.addoption("--changes", type=int, default=0, help="how many changes of tables are followed; 0: no such test")
    parser.addoption("--view-kills", type=int, default=1, help="how often the job that follows tables is killed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The soak takes hours, so ``make soak-kills`` asks for it."""
    if not config.getoption("soak"):
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test says is not hidden because it was a secret in another one."""
    monkeypatch.setattr(redaction, "_known", redaction.Known())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole run; a failed task is tried again, as on a cluster."""
    session = hr.spark_session("tests", master="local[2,3]", connectors=("kafka", "delta"), quick_start=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Service]:
    """One Kafka broker for the whole run; tests use topics of their own."""
    with running("kafka") as service:
        yield service


@pytest.fixture(scope="session")
def postgres() -> Iterator[Service]:
    """One PostgreSQL for the whole run; tests use tables of their own."""
    with running("postgres") as service:
        yield service


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Service]:
    """One Redis for the whole run; tests use keys of their own."""
    with running("redis") as service:
        yield service


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[Service]:
    """One MQTT broker for the whole run; tests use topics of their own."""
    with running("mosquitto") as service:
        yield service


@pytest.fixture(scope="session")
def opensearch() -> Iterator[Service]:
    """One OpenSearch for the whole run; tests use indices of their own."""
    with running("opensearch") as service:
        yield service
