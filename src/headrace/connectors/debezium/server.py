"""Kafka Connect with Debezium's connector for PostgreSQL, from Maven's jars, beside a Kafka broker."""

from __future__ import annotations

from typing import ClassVar

from headrace.connectors.kafka.server import Kafka, log_quietly
from headrace.errors import HeadraceError
from headrace.services.jars import java_command
from headrace.services.service import HttpService

SETTINGS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    # Often, so that after a crash few changes are sent again.
    "offset.flush.interval.ms": "500",
    # The connectors are on the class path; looking through all classes for more takes seconds.
    "plugin.discovery": "service_load",
    "topic.creation.enable": "true",
}


class Connect(HttpService):
    """One worker that runs the connectors which clients put into it over HTTP."""

    name: ClassVar[str] = "connect"
    ready_path: ClassVar[str] = "/connectors"

    def command(self) -> tuple[str, ...]:
        settings = {
            **SETTINGS,
            "bootstrap.servers": self._broker(),
            "listeners": f"http://{self.address}",
            "offset.storage.file.filename": str(self.data / "offsets"),
        }
        file = self.folder / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        worker = "org.apache.kafka.connect.cli.ConnectStandalone"
        return (*java_command("connect", log_quietly(self.folder)), worker, str(file))

    def _broker(self) -> str:
        broker = Kafka(self.folder.parent / Kafka.name)
        if not broker.is_running():
            raise HeadraceError(
                "SERVICE_NEEDS_KAFKA",
                f"no Kafka broker runs in {broker.folder}. Start it first: headrace services up kafka connect",
            )
        return broker.address
