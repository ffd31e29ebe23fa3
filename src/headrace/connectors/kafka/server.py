"""The development server: an Apache Kafka broker that is its own controller, from Maven's jars."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import HeadraceError
from headrace.services.jars import jars
from headrace.services.server import ANY, HOST, is_free, java
from headrace.services.service import Service

# Quick to start and small: it is for development and tests, not for load.
JAVA_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

SETTINGS_FILE = "server.properties"
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.max.timeout.ms": str(24 * 3600 * 1000),
    # The marks of Headrace's sinks are group offsets, and those of an idle group would expire.
    "offsets.retention.minutes": str(2**31 - 1),
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.hours": "-1",
    # After a crash the broker may only return once the controller has given up its predecessor (default 9 seconds).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controlled.shutdown.enable": "false",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

LOGGING = """\
<Configuration status="ERROR">
  <Appenders><Console name="log"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="log"/></Root></Loggers>
</Configuration>
"""


class Kafka(Service):
    """A cluster of one broker."""

    name: ClassVar[str] = "kafka"
    # The second one is the controller's.
    port_ranges: ClassVar[tuple[range, ...]] = (ANY, ANY)

    def prepare(self, ports: tuple[int, ...]) -> None:
        broker, controller = ports
        settings = {
            **SETTINGS,
            "listeners": f"CLIENTS://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENTS://{HOST}:{broker}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.data),
        }
        (self.folder / "logging.xml").write_text(LOGGING)
        (self.folder / SETTINGS_FILE).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", SETTINGS_FILE)
        command, silent = [*java_command(self.folder, "kafka-broker"), *tool], subprocess.DEVNULL
        outcome = subprocess.run(command, stdin=silent, capture_output=True, text=True, check=False, cwd=self.folder)
        if outcome.returncode != 0:
            raise HeadraceError("SERVICE_FAILED", f"Kafka could not format its store: {outcome.stderr.strip()}")

    def command(self) -> tuple[str, ...]:
        return (*java_command(self.folder, "kafka-broker"), "kafka.Kafka", str(self.folder / SETTINGS_FILE))

    def is_ready(self) -> bool:
        # Cheaper than a client without a server, which also logs to standard error.
        if is_free(self.port):
            return False
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return len(client.list_topics(timeout=2).brokers) == 1
        except KafkaException:
            return False

    @property
    def url(self) -> str:
        return self.address


def java_command(folder: Path, jar_set: str) -> tuple[str, ...]:
    """Java with a set of jars, and with the settings for logging in the folder."""
    logging = f"-Dlog4j2.configurationFile={folder / 'logging.xml'}"
    return (java(), *JAVA_OPTIONS, logging, "-cp", os.pathsep.join(map(str, jars(jar_set))))
