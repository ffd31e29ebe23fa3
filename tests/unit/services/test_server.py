"""Ports and processes for servers."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from headrace.errors import HeadraceError
from headrace.services.server import ANY, HOST, ServerProcess, free_ports, is_free, known


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


SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
PARENT = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"


def start(code: str) -> ServerProcess:
    process = known(os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", code], os.environ))
    assert process is not None
    return process


@pytest.fixture
def sleeper() -> Iterator[ServerProcess]:
    """A process that does nothing."""
    process = start(SLEEP)
    yield process
    process.kill()


def test_a_process_with_the_same_id_that_started_at_another_time_is_somebody_else(sleeper: ServerProcess) -> None:
    assert sleeper.is_alive()
    another = ServerProcess(sleeper.pid, sleeper.started - 1)
    assert not another.is_alive()
    another.kill()
    another.end(signal.SIGTERM, 0.1)
    assert sleeper.is_alive()


def test_a_process_that_ended_is_not_alive_even_before_its_parent_looked(sleeper: ServerProcess) -> None:
    os.kill(sleeper.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while sleeper.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    assert not sleeper.is_alive()


def test_a_process_that_does_not_listen_is_ended_by_force() -> None:
    process = start(DEAF)
    time.sleep(0.3)
    process.end(signal.SIGTERM, 0.2)
    assert not process.is_alive()


def test_children_in_sessions_of_their_own_are_killed_too() -> None:
    process = start(f"{PARENT}; import time; time.sleep(60)")
    until = time.monotonic() + 60
    while not (children := process.children()) and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    assert len(children) == 1
    assert not children[0].is_alive()
