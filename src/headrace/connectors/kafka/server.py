"""The development server: an Apache Kafka broker that is its own controller, from Maven's jars."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.services.jars import java_command
from headrace.services.server import ANY, HOST, is_free
from headrace.services.service import Service

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


def log_quietly(folder: Path) -> str:
    """The option by which Java logs warnings only."""
    (folder / "logging.xml").write_text(LOGGING)
    return f"-Dlog4j2.configurationFile={folder / 'logging.xml'}"


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
        (self.folder / SETTINGS_FILE).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", SETTINGS_FILE)
        self.run_tool("format the store", *java_command("kafka-broker", log_quietly(self.folder)), *tool)

    def command(self) -> tuple[str, ...]:
        java = java_command("kafka-broker", log_quietly(self.folder))
        return (*java, "kafka.Kafka", str(self.folder / SETTINGS_FILE))

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
