"""A session of the user's own works too, unless it could not be right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import HeadraceError
from headrace.runtime.pipeline import Pipeline, writable
from headrace.runtime.session import BATCH_SETTINGS, DOMAIN_SOCKETS, batch_session, connector_settings


@pytest.mark.spark
def test_batches_run_in_a_session_with_the_authors_views_and_leave_the_authors_settings_alone(
    spark: SparkSession,
) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "true")
    own.range(3).createTempView("three")
    batches = batch_session(own)
    assert {name: batches.conf.get(name) for name in BATCH_SETTINGS} == BATCH_SETTINGS
    assert batches.table("three").count() == 3
    assert own.conf.get("spark.sql.adaptive.enabled") == "true"


STARTS = "import sys, headrace as hr; hr.spark_session(log=sys.argv[1] or None)"


@pytest.mark.parametrize("given", [False, True])
def test_a_spark_that_does_not_start_is_shown_with_the_end_of_its_log(given: bool, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\necho 'version \"17.0.1\"' >&2\n[ $1 = -version ] || echo no room for the heap >&2 && exit 1\n"
    )
    java.chmod(0o755)
    log = tmp_path / "spark.log"
    said = subprocess.run(
        [sys.executable, "-c", STARTS, str(log) if given else ""],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    named = re.findall(r"^Spark's log: (.*)$", said.stderr, re.MULTILINE)
    [written] = [str(log)] if given else named
    assert len(named) == (0 if given else 1)
    assert f"[SPARK_NOT_STARTED] Spark has ended while it started. '{written}' ends with:\n" in said.stderr
    assert "\nno room for the heap\n" in said.stderr
    assert said.stderr.count("Traceback") == 1
    assert said.stdout == ""


def landing_pipeline(landing: Path, *, looks_up: bool = False) -> Pipeline:
    async def name_of(keys: Any) -> Any:
        return {key: {"name": key[0]} for key in keys}

    @hr.pipeline(name="landing")
    def define(spark: SparkSession) -> None:
        rows = hr.read_files(spark, str(landing), format="json", schema="shop STRING, at TIMESTAMP")
        rows = rows.transform(hr.event_time("at", out_of_order="1 second"))
        if looks_up:
            rows = rows.transform(hr.lookup("names", name_of, on="shop", output="name STRING", on_failure="null"))
        hr.write("out", rows, hr.to_console())

    return define


@pytest.mark.spark
def test_check_advises_domain_sockets_where_a_session_has_none(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "SOCKETS_SLOW" not in {finding.id for finding in landing_pipeline(tmp_path).check(spark=spark)}
    settings = spark.sparkContext.getConf().set(DOMAIN_SOCKETS, "false")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda context: settings)
    (finding,) = (found for found in landing_pipeline(tmp_path).check(spark=spark) if found.id == "SOCKETS_SLOW")
    assert str(finding) == (
        "warning: spark.python.unix.domain.socket.enabled is off, so each exchange with a Python worker may wait 40 ms "
        "for a TCP acknowledgement. Set it to true where the session is built: "
        ".config('spark.python.unix.domain.socket.enabled', 'true')."
    )


def test_that_a_checkpoint_can_be_written_is_found_out_without_leaving_anything(tmp_path: Path) -> None:
    assert writable(tmp_path / "some" / "where") == tmp_path / "some" / "where"
    assert list(tmp_path.iterdir()) == []


KAFKA = "spark-sql-kafka-0-10_2.13-4.2.0.jar"
DELTA = "delta-spark_4.1_2.13-4.3.1.jar"


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the machine that runs the tests do not count."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)


def names(settings: dict[str, str]) -> set[str]:
    return {Path(jar).name for jar in settings.get("spark.jars", "").split(",")}


def test_no_connectors_change_nothing() -> None:
    assert connector_settings([], {"spark.jars": "mine.jar"}) == {}


def test_kafka_and_delta_bring_their_jars_and_deltas_settings() -> None:
    settings = connector_settings(["kafka", "delta"], {})
    assert {KAFKA, DELTA, "delta-storage-4.3.1.jar", "kafka-clients-3.9.2.jar"} <= names(settings)
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_a_users_own_jars_and_extensions_stay() -> None:
    users = {"spark.jars": "mine.jar", "spark.sql.extensions": "my.Extension"}
    settings = connector_settings(["delta"], users)
    assert {"mine.jar", DELTA} <= names(settings)
    assert settings["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"


def test_a_users_own_catalog_stays() -> None:
    settings = connector_settings(["delta"], {"spark.sql.catalog.spark_catalog": "my.Catalog"})
    assert "spark.sql.catalog.spark_catalog" not in settings


@pytest.mark.parametrize(
    "users",
    [
        {"spark.jars": f"/somewhere/{KAFKA}"},
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
    ],
)
def test_a_connector_among_the_users_jars_is_left_alone(users: dict[str, str]) -> None:
    assert connector_settings(["kafka"], users) == {}


def test_a_connector_in_a_folder_of_the_class_path_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / KAFKA).touch()
    assert connector_settings(["kafka"], {"spark.driver.extraClassPath": f"/etc:{tmp_path}/*"}) == {}


def test_a_connector_that_spark_has_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / DELTA).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    settings = connector_settings(["delta"], {})
    assert "spark.jars" not in settings
    assert "spark.sql.extensions" in settings


def test_jars_of_sparks_defaults_are_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.jars  /a/one.jar,/a/two.jar\nspark.x=1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert {"one.jar", "two.jar", KAFKA} <= names(connector_settings(["kafka"], {}))


def test_an_unknown_connector_lists_the_known_ones() -> None:
    with pytest.raises(HeadraceError, match=r"\[CONNECTOR_UNKNOWN\].*'kafak'.*delta, kafka"):
        connector_settings(["kafak"], {})
