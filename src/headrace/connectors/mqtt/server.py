"""Mosquitto, an MQTT broker that keeps its queues in a file."""

from __future__ import annotations

import os
import socket
from typing import ClassVar

from headrace.services.server import HOST, Command, Place, ServerKind, program

SETTINGS_FILE = "mosquitto.conf"
# An MQTT 3.1.1 greeting with a clean session and an empty client name, and how its acceptance begins.
GREETING = bytes.fromhex("100c 0004 4d515454 04 02 003c 0000")
ACCEPTED = bytes.fromhex("20020000")


class Mosquitto(ServerKind):
    """An MQTT broker that lets everybody on this machine in."""

    __slots__ = ()
    name: ClassVar[str] = "mosquitto"

    def prepare(self, place: Place) -> None:
        settings = {
            "listener": f"{place.port} {HOST}",
            "allow_anonymous": "true",
            "persistence": "true",
            "persistence_location": f"{place.data}/",
            # After every change, so that a crash forgets no queued message.
            "autosave_on_changes": "true",
            "autosave_interval": "1",
            "max_queued_messages": "0",
        }
        if os.geteuid() == 0:
            # As root it would become a user of its own, who may not write here.
            settings["user"] = "root"
        (place.folder / SETTINGS_FILE).write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def command(self, place: Place) -> Command:
        return Command((program("mosquitto", package="mosquitto"), "-c", str(place.folder / SETTINGS_FILE)))

    def is_ready(self, place: Place) -> bool:
        try:
            with socket.create_connection((HOST, place.port), timeout=1) as connection:
                connection.sendall(GREETING)
                return connection.recv(4) == ACCEPTED
        except OSError:
            return False

    def url(self, place: Place) -> str:
        return f"mqtt://{place.address}"
