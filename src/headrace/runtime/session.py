"""A Spark session with the settings and connector jars that Headrace needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.plan.check import Finding
from headrace.stability import stable

# Where a user says which jars Spark has besides its own.
USERS_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector: how its main jar's name begins, a class in it, and settings it needs."""

    artifact: str
    known_by: str
    settings: Mapping[str, str] = field(default_factory=dict)


CONNECTORS = {
    "kafka": Connector(
        artifact="spark-sql-kafka-0-10",
        known_by="org.apache.spark.sql.kafka010.KafkaSourceProvider",
    ),
    "delta": Connector(
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
    import pyspark

    # Not at the top: with it come the clients of every server, and few sessions need them.
    from headrace.services.jars import jars

    for name in names:
        if name not in CONNECTORS:
            raise HeadraceError(
                "CONNECTOR_UNKNOWN", f"there is no connector {name!r}. Known: {', '.join(sorted(CONNECTORS))}."
            )
    given = {**_defaults(), **users}
    home = os.environ.get("SPARK_HOME", pyspark.__path__[0])
    own = [jar.name for jar in Path(home, "jars").glob("*.jar")]
    present = " ".join([*own, *(_expanded(given.get(place, "")) for place in USERS_JARS)])
    chosen: dict[str, str] = {}
    added: list[str] = []
    for name in names:
        if CONNECTORS[name].artifact not in present:
            added += [str(jar) for jar in jars(f"connector-{name}")]
        for setting, value in CONNECTORS[name].settings.items():
            # The one setting that takes many values; of the others a user's own one wins.
            if setting == "spark.sql.extensions":
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
                f"Spark was started in this process without the connector {name!r}, and a running JVM cannot load new "
                "jars. Ask for all connectors in the process's first hr.spark_session(connectors=...).",
            )


def _defaults() -> dict[str, str]:
    """The user's spark-defaults.conf: a setting made in a session would replace it, not add to it."""
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


OLDEST_JAVA = 17

BATCH_SETTINGS = {
    # It would replan a batch after each shuffle, and join the small partitions that slots are.
    "spark.sql.adaptive.enabled": "false",
    # Delta gives the rows of a batch as a stream, which Spark would not run in a job of its own.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""Settings of the session that batches run in."""

DOMAIN_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Over TCP an exchange with a Python worker may wait 40 ms for an acknowledgement."""

START_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.daemon.module": "headrace.runtime.worker_daemon",
    DOMAIN_SOCKETS: "true",
    # One thread a worker: tasks already use every core, and sums of floats keep one order.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
}

LAST_WORDS = 2000
"""How many characters of its log are shown of a Spark that did not start."""

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1",
    # The first compiler alone has a cache so small that a session of many queries compiles the same code over and over.
    "-XX:ReservedCodeCacheSize=256m",
)


@stable
def spark_session(
    app: str = "headrace",
    *,
    master: str = "local[*]",
    connectors: Sequence[str] = (),
    quick_start: bool = False,
    settings: dict[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session on this machine; ``quick_start`` trades peak speed for a faster first batch (demos, tests).

    ``connectors`` (``"kafka"``, ``"delta"``) brings their jars, unless Spark or your settings have them already.
    What Spark's processes say goes to the file ``log``, else to a temporary one that is named on standard error;
    ``log="/dev/stderr"`` shows it. A session of your own works too.

    >>> import headrace as hr
    >>> def run(pipeline):
    ...     spark = hr.spark_session("shop", master="local[4]", connectors=["kafka"])
    ...     pipeline.run(checkpoint="checkpoints/shop", spark=spark)
    """
    require_java()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master)
    cores = os.cpu_count() or 1 if local is None else int(local[1])
    chosen = {
        **START_SETTINGS,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.extraJavaOptions": _java_options(quick_start),
        **(settings or {}),
        **connector_settings(connectors, settings or {}),
    }
    chosen = {"spark.app.name": app, "spark.master": master, **chosen}
    _start_java(chosen, log)
    builder: Any = SparkSession.builder
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    require_connectors(session, connectors)
    return session


def _start_java(settings: Mapping[str, str], log: str | os.PathLike[str] | None) -> None:
    """Start the JVM of this process, unless it runs; what it and its Python workers say goes to a file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    context: Any = SparkContext
    launch: Any = launch_gateway
    # With spark-submit there is a JVM, and its screen is not ours.
    if context._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    if log is None:
        handle, log = tempfile.mkstemp(prefix="headrace-spark-", suffix=".log")
        os.close(handle)
        print(f"Spark's log: {log}", file=sys.stderr, flush=True)
    conf: Any = SparkConf().setAll([*settings.items()])
    with Path(log).open("ab") as said:
        try:
            context._ensure_initialized(gateway=launch(conf, {"stdout": said, "stderr": said}), conf=conf)
        except PySparkRuntimeError:
            last = Path(log).read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]
            raise HeadraceError(
                "SPARK_NOT_STARTED", f"Spark has ended while it started. {str(log)!r} ends with:\n{last}"
            ) from None


def batch_session(spark: SparkSession) -> SparkSession:
    """A copy of a session, with its tables and views, in which a flow's batches run with their own settings."""
    given: Any = spark
    copy: SparkSession = type(given)(given.sparkContext, given._jsparkSession.cloneSession())
    for name, value in BATCH_SETTINGS.items():
        copy.conf.set(name, value)
    return copy


def session_findings(spark: SparkSession) -> Iterator[Finding]:
    """What makes a session of the user's own slower than it has to be."""
    if spark.sparkContext.getConf().get(DOMAIN_SOCKETS, "false") != "true":
        message = (
            f"{DOMAIN_SOCKETS} is off, so each exchange with a Python worker may wait 40 ms for a TCP "
            f"acknowledgement. Set it to true where the session is built: .config({DOMAIN_SOCKETS!r}, 'true')."
        )
        yield Finding("SOCKETS_SLOW", "warning", None, message)


def require_java() -> None:
    """Check that there is a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Install it (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME."
    if java is None or not Path(java).exists():
        raise HeadraceError("JAVA_MISSING", f"Spark needs Java {OLDEST_JAVA} or newer, and none was found. {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = version[1] if version is not None else "of unknown version"
        raise HeadraceError("JAVA_TOO_OLD", f"Spark needs Java {OLDEST_JAVA} or newer, found {found}: {java}. {advice}")


def _java_options(quick_start: bool) -> str:
    archive = Path(sys.prefix) / "headrace.jsa"
    options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return " ".join([*(options if archive.exists() else []), *(QUICK_JAVA if quick_start else [])])
