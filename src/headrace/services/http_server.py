"""Servers that speak HTTP and ask for no password."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import ClassVar

from headrace.services.ports import HOST
from headrace.services.server import Place


class HttpServer:
    """A server that is ready when it answers a request well."""

    __slots__ = ()
    ready_path: ClassVar[str]

    def is_ready(self, place: Place) -> bool:
        """It answers, and says that all is well."""
        connection = http.client.HTTPConnection(HOST, place.port, timeout=5)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def url(self, place: Place) -> str:
        """How clients name it."""
        return f"http://{place.address}"

    def dsn(self, place: Place) -> str:
        """The same: it has no password."""
        return self.url(place)

    def secret_file(self, place: Place) -> Path | None:
        """It has no password."""
        return None
