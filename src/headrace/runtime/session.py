"""A Spark session with everything that Headrace needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.runtime.connectors import connector_settings, require_connectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

QUERY_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # mapInArrow and transformWithState share one Python daemon and its workers only without this.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""Settings that can be made on a running session, so a user's own works too."""

START_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.daemon.module": "headrace.runtime.worker_daemon",
    "spark.speculation": "false",
    # A step of more than a megabyte would travel as a broadcast variable, which Spark's stateful workers never load.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # One thread a worker: tasks already use every core, and sums of floats keep one order.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # The default forks a process for every small file on local disks.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1",
    # The first compiler alone has a cache so small that a session of many queries compiles the same code over and over.
    "-XX:ReservedCodeCacheSize=256m",
)


def spark_session(
    app: str = "headrace",
    *,
    master: str = "local[*]",
    connectors: Sequence[str] = (),
    quick_start: bool = False,
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """A session on this machine; ``quick_start`` trades peak speed for a faster first batch (demos, tests).

    ``connectors`` (``"kafka"``, ``"delta"``) brings their jars, unless Spark or your settings have them already.
    A session of your own works too: Headrace makes the settings of its queries on it.
    """
    require_java()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    cores = _cores(master)
    chosen = {
        **START_SETTINGS,
        **QUERY_SETTINGS,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.extraJavaOptions": _java_options(quick_start),
        **(settings or {}),
        **connector_settings(connectors, settings or {}),
    }
    builder: Any = SparkSession.builder
    for name, value in {"spark.app.name": app, "spark.master": master, **chosen}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    require_connectors(session, connectors)
    return session


def prepare(spark: SparkSession) -> None:
    """Make the settings of Headrace's queries on a session, and refuse one on which they could not be right."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise HeadraceError(
            "SPECULATION_ON",
            "spark.speculation=true runs a task twice at once, and both would write. Set it to false for this session.",
        )
    for name, value in QUERY_SETTINGS.items():
        spark.conf.set(name, value)


def require_java() -> None:
    """Fail with a clear sentence when there is no Java that Spark can run on."""
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


def _cores(master: str) -> int:
    inside = re.fullmatch(r"local\[(\*|\d+)(?:,\d+)?\]", master)
    return int(inside[1]) if inside is not None and inside[1] != "*" else os.cpu_count() or 1


def _java_options(quick_start: bool) -> str:
    archive = Path(sys.prefix) / "headrace.jsa"
    options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return " ".join([*(options if archive.exists() else []), *(QUICK_JAVA if quick_start else [])])
