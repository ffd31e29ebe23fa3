"""A Mosquitto broker for development and tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from headrace.services.server import HOST, answers, program
from headrace.services.service import Service

# An MQTT 3.1.1 greeting with a clean session and an empty client name, and how its acceptance begins.
GREETING = bytes.fromhex("100c 0004 4d515454 04 02 003c 0000")
ACCEPTED = bytes.fromhex("20020000")


class Mosquitto(Service):
    """An MQTT broker that lets everybody on this machine in and keeps its queues in a file."""

    name: ClassVar[str] = "mosquitto"
    url_form: ClassVar[str] = "mqtt://{}"

    @property
    def _settings(self) -> Path:
        return self.folder / "mosquitto.conf"

    def prepare(self, ports: tuple[int, ...]) -> None:
        settings = {
            "listener": f"{ports[0]} {HOST}",
            "allow_anonymous": "true",
            "persistence": "true",
            "persistence_location": f"{self.data}/",
            # After every change, so that a crash forgets no queued message.
            "autosave_on_changes": "true",
            "autosave_interval": "1",
            "max_queued_messages": "0",
        }
        if os.geteuid() == 0:
            # As root it would become a user of its own, who may not write here.
            settings["user"] = "root"
        self._settings.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def command(self) -> tuple[str, ...]:
        return (program("mosquitto", package="mosquitto"), "-c", str(self._settings))

    def is_ready(self) -> bool:
        return answers(self.port, GREETING, ACCEPTED)
