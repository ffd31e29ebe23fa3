"""What every service does, shown with a server of a few lines."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from headrace.connectors.servers import running, service
from headrace.errors import HeadraceError
from headrace.services import server as server_module
from headrace.services.server import HOST
from headrace.services.service import Service

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        listener.accept()[0].close()
"""
FAIL = "import sys; print('no luck today'); sys.exit(3)"


class Small(Service):
    """A server that accepts connections, or does what its code says."""

    name: ClassVar[str] = "small"

    def __init__(self, folder: Path, code: str = LISTEN) -> None:
        super().__init__(folder)
        self.code = code

    def prepare(self, ports: tuple[int, ...]) -> None:
        (self.data / "prepared").touch(exist_ok=False)

    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", self.code, str(self.port))

    def is_ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"small://{self.address}"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Service]:
    """A small server that is not started yet."""
    server = Small(tmp_path / "small")
    yield server
    server.stop()


def test_it_starts_once_and_is_ready(small: Service) -> None:
    assert small.state == "absent"
    assert small.start()
    assert small.state == "running"
    socket.create_connection((HOST, small.port), timeout=1).close()
    pid = small.pid
    assert not small.start()
    assert small.pid == pid


def test_after_a_crash_it_is_dead_and_comes_back_on_the_same_port(small: Service) -> None:
    small.start()
    port, pid = small.port, small.pid
    small.kill()
    assert (small.state, small.pid) == ("died", None)
    assert small.start()
    assert small.port == port
    assert small.pid != pid


def test_a_stopped_server_is_not_a_dead_one(small: Service) -> None:
    small.start()
    assert small.stop()
    assert small.state == "stopped"
    assert not small.stop()


def test_two_starts_at_once_start_one_server(small: Service) -> None:
    outcomes: list[bool] = []
    threads = [threading.Thread(target=lambda: outcomes.append(small.start())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]


def test_an_interrupted_set_up_begins_anew(small: Service) -> None:
    (small.folder / "data").mkdir(parents=True)
    (small.folder / "data/half").touch()
    small.start()
    assert [file.name for file in (small.folder / "data").iterdir()] == ["prepared"]


def test_a_server_that_ends_while_starting_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    server = Small(tmp_path, FAIL)
    with pytest.raises(HeadraceError, match=r"(?s)\[SERVICE_FAILED\] small ended while it was starting.*no luck today"):
        server.start()
    assert not server.is_running()


def test_a_server_of_which_the_starter_died_at_once_is_known(small: Service) -> None:
    small.start()
    small.stop()
    # The launcher alone, as if the process that spawned it had been killed in the same moment.
    code = (
        "import os, sys; from pathlib import Path;"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_service import Small;"
        "spawn = os.posix_spawn\n"
        "def die(*given, **more): spawn(*given, **more); os._exit(9)\n"
        f"os.posix_spawn = die; Small(Path({str(small.folder)!r})).start()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 9
    until = time.monotonic() + 60
    while not small.is_running() and time.monotonic() < until:
        time.sleep(0.02)
    assert small.is_running()
    assert small.stop()


def test_a_port_that_somebody_took_meanwhile_is_named(small: Service) -> None:
    small.start()
    small.stop()
    taken = pytest.raises(HeadraceError, match=rf"\[SERVICE_PORT_TAKEN\].*{small.port}")
    with socket.create_server((HOST, small.port)), taken:
        small.start()


def test_a_state_file_that_is_not_ours_is_refused(small: Service) -> None:
    small.folder.mkdir()
    (small.folder / "service.json").write_text(json.dumps({"name": "small"}))
    with pytest.raises(HeadraceError, match=r"\[SERVICE_STATE\]"):
        small.start()
    shutil.rmtree(small.folder)


def test_before_the_first_start_there_is_no_address(small: Service) -> None:
    with pytest.raises(HeadraceError, match=r"\[SERVICE_NOT_STARTED\]"):
        small.address  # noqa: B018 - to read it is the test


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=r"\[SERVICE_UNKNOWN\].*'reddis'.*redis, mosquitto"):
        service("reddis", tmp_path)


def test_a_program_that_is_not_installed_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server_module, "SYSTEM_FOLDERS", str(tmp_path))
    with (
        pytest.raises(HeadraceError, match=r"\[SERVICE_MISSING\].*apt-get install redis-server"),
        running("redis", tmp_path),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must run PostgreSQL as somebody else")
def test_a_folder_that_the_servers_user_may_not_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(HeadraceError, match=r"\[SERVICE_FOLDER\].*may not enter"), running("postgres", closed):
        pass
