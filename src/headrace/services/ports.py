"""Ports on the loopback address that nobody listens on."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from headrace.errors import HeadraceError

HOST = "127.0.0.1"
# Below the range from which Linux gives ports to outgoing connections: else, while a server is down, one of them could
# take its port, and a client that keeps trying to reconnect can even be connected to itself.
ANY = range(20_000, 32_000)
TRIES = 1_000


def free_ports(ranges: Sequence[range]) -> tuple[int, ...]:
    """Different ports that are free now, one out of each range.

    >>> len(set(free_ports([ANY, ANY, ANY])))
    3
    """
    found: list[int] = []
    for wanted in ranges:
        candidates = (random.choice(wanted) for _ in range(TRIES))
        port = next((port for port in candidates if port not in found and is_free(port)), None)
        if port is None:
            raise HeadraceError(
                "NO_FREE_PORT", f"no free port was found in {wanted.start}-{wanted.stop - 1}. Stop some servers."
            )
        found.append(port)
    return tuple(found)


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
