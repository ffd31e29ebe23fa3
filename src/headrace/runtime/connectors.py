"""Jars that let Spark read and write more systems, brought along unless the user has them already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where a user says which jars Spark has besides its own.
USERS_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

# Settings that take many values; of the others a user's own one wins.
LISTS = ("spark.sql.extensions",)


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector: its set in jars.toml, how its main jar's name begins, a class in it, and settings it needs."""

    jars: str
    artifact: str
    known_by: str
    settings: Mapping[str, str] = field(default_factory=dict)


CONNECTORS = {
    "kafka": Connector(
        jars="connector-kafka",
        artifact="spark-sql-kafka-0-10",
        known_by="org.apache.spark.sql.kafka010.KafkaSourceProvider",
    ),
    "delta": Connector(
        jars="connector-delta",
        artifact="delta-spark",
        known_by="io.delta.sql.DeltaSparkSessionExtension",
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # The default of 50 tasks to read a table's log is for clusters: on two cores a MERGE took 5.5 s, now 2 s.
            "spark.databricks.delta.snapshotPartitions": "2",
        },
    ),
}


def connector_settings(names: Sequence[str], users: Mapping[str, str]) -> dict[str, str]:
    """The settings that a session with these connectors needs, merged with the user's own.

    >>> connector_settings(["kafka"], {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"})
    {}
    """
    # Not at the top: with it come the clients of every server, and few sessions need them.
    from headrace.services.jars import jars

    for name in names:
        if name not in CONNECTORS:
            raise HeadraceError(
                "CONNECTOR_UNKNOWN", f"there is no connector {name!r}. Known: {', '.join(sorted(CONNECTORS))}."
            )
    given = {**_defaults(), **users}
    present = " ".join([*_sparks_own_jars(), *(_expanded(given.get(place, "")) for place in USERS_JARS)])
    chosen: dict[str, str] = {}
    added: list[str] = []
    for connector in (CONNECTORS[name] for name in names):
        if connector.artifact not in present:
            added += [str(jar) for jar in jars(connector.jars)]
        for setting, value in connector.settings.items():
            if setting in LISTS:
                chosen[setting] = _joined(given.get(setting, ""), value)
            elif setting not in given:
                chosen[setting] = value
    if added:
        chosen["spark.jars"] = _joined(given.get("spark.jars", ""), *added)
    return chosen


def require_connectors(spark: SparkSession, names: Sequence[str]) -> None:
    """Fail when a session lacks a connector, as one does that was already running when it was asked for."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in names:
        if loader.getResource(CONNECTORS[name].known_by.replace(".", "/") + ".class") is None:
            raise HeadraceError(
                "CONNECTOR_TOO_LATE",
                f"Spark was started in this process without the connector {name!r}, and a running Java cannot take up "
                "jars. Ask for all connectors in the process's first hr.spark_session(connectors=...).",
            )


def _sparks_own_jars() -> list[str]:
    home = os.environ.get("SPARK_HOME")
    if home is None:
        package = find_spec("pyspark")
        home = "" if package is None or package.origin is None else str(Path(package.origin).parent)
    return [jar.name for jar in Path(home, "jars").glob("*.jar")]


def _defaults() -> dict[str, str]:
    """What the user's spark-defaults.conf says: a setting made in a session would replace it, not add to it."""
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(os.environ.get("SPARK_HOME", ""), "conf"))
    file = Path(folder, "spark-defaults.conf")
    if not file.exists():
        return {}
    lines = (line.strip() for line in file.read_text().splitlines())
    pairs = (line.replace("=", " ", 1).split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _expanded(class_path: str) -> str:
    """A class path with the jars that its folders hold."""
    folders = [Path(entry[:-1]) for entry in class_path.split(os.pathsep) if entry.endswith("/*")]
    return " ".join([class_path, *(jar.name for folder in folders for jar in folder.glob("*.jar"))])


def _joined(*lists: str) -> str:
    """Comma-separated lists as one, each entry once.

    >>> _joined("a,b", "", "b", "c")
    'a,b,c'
    """
    return ",".join(dict.fromkeys(entry.strip() for text in lists for entry in text.split(",") if entry.strip()))
