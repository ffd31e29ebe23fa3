"""Ports for servers."""

from __future__ import annotations

import socket

import pytest

from headrace.errors import HeadraceError
from headrace.services.server import ANY, HOST, free_ports, is_free


def test_no_outgoing_connection_of_linux_can_take_a_servers_port() -> None:
    first_of_linux = 32_768
    assert ANY.stop <= first_of_linux


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    (port,) = free_ports([ANY])
    assert is_free(port)
    with socket.create_server((HOST, port)):
        assert not is_free(port)
        with pytest.raises(HeadraceError, match=r"\[NO_FREE_PORT\]"):
            free_ports([range(port, port + 1)])
