"""The development servers: an Apache Kafka broker that is its own controller, and Kafka Connect, from Maven's jars."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import HeadraceError
from headrace.services.jars import java_command
from headrace.services.server import ANY, HOST, is_free
from headrace.services.service import HttpService, Service

SETTINGS_FILE = "server.properties"
BROKER_SETTINGS = {
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

CONNECT_SETTINGS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    # Often, so that after a crash few changes are sent again.
    "offset.flush.interval.ms": "500",
    # The connectors are on the class path; looking through all classes for more takes seconds.
    "plugin.discovery": "service_load",
    "topic.creation.enable": "true",
}

LOGGING = """\
<Configuration status="ERROR">
  <Appenders><Console name="log"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="log"/></Root></Loggers>
</Configuration>
"""


def properties(folder: Path, settings: Mapping[str, str]) -> str:
    """The path of a file with these settings."""
    (folder / SETTINGS_FILE).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(folder / SETTINGS_FILE)


def log_quietly(folder: Path) -> str:
    """The option by which Java logs warnings only."""
    (folder / "logging.xml").write_text(LOGGING)
    return f"-Dlog4j2.configurationFile={folder / 'logging.xml'}"


class Kafka(Service):
    """A cluster of one broker."""

    name: ClassVar[str] = "kafka"
    url_form: ClassVar[str] = "{}"
    # The second one is the controller's.
    port_ranges: ClassVar[tuple[range, ...]] = (ANY, ANY)

    def prepare(self, ports: tuple[int, ...]) -> None:
        broker, controller = ports
        settings = {
            **BROKER_SETTINGS,
            "listeners": f"CLIENTS://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENTS://{HOST}:{broker}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.data),
        }
        properties(self.folder, settings)
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


class Connect(HttpService):
    """Kafka Connect with Debezium's connector for PostgreSQL: a worker for connectors that clients put into it."""

    name: ClassVar[str] = "connect"
    ready_path: ClassVar[str] = "/connectors"

    def command(self) -> tuple[str, ...]:
        settings = {
            **CONNECT_SETTINGS,
            "bootstrap.servers": self._broker(),
            "listeners": f"http://{self.address}",
            "offset.storage.file.filename": str(self.data / "offsets"),
        }
        worker, file = "org.apache.kafka.connect.cli.ConnectStandalone", properties(self.folder, settings)
        return (*java_command("connect", log_quietly(self.folder)), worker, file)

    def _broker(self) -> str:
        broker = Kafka(self.folder.parent / Kafka.name)
        if not broker.is_running():
            raise HeadraceError(
                "SERVICE_NEEDS_KAFKA",
                f"no Kafka broker runs in {broker.folder}. Start it first: headrace services up kafka connect",
            )
        return broker.address
