"""The development server: PostgreSQL with logical decoding, reached over TCP with a password."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import tempfile
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import psycopg

from headrace.errors import HeadraceError
from headrace.services.server import HOST, program
from headrace.services.service import Service

USER = "headrace"
DATABASE = "postgres"
# PostgreSQL refuses to run as root; Debian's package creates this user for it.
UNPRIVILEGED = "postgres"


class Postgres(Service):
    """A PostgreSQL server with one superuser, ``headrace``."""

    name: ClassVar[str] = "postgres"
    # Fast shutdown, which does not wait until all clients have disconnected.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def prepare(self, ports: tuple[int, ...]) -> None:
        initdb = _program("initdb")
        user = _server_user()
        as_user: dict[str, Any] = {}
        if user is not None:
            as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            _check_access(self.data, user)
            os.chown(self.data, user.pw_uid, user.pw_gid)
        self.data.chmod(0o700)
        password = secrets.token_urlsafe(24)
        secret = self.secret_file
        secret.unlink(missing_ok=True)
        secret.touch(mode=0o600, exist_ok=False)
        secret.write_text(f"{HOST}:{ports[0]}:*:{USER}:{password}\n")
        with tempfile.NamedTemporaryFile("w", dir=self.folder) as given:
            given.write(password)
            given.flush()
            if user is not None:
                os.chown(given.name, user.pw_uid, user.pw_gid)
            settings = ("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync")
            who = (f"--username={USER}", f"--pwfile={given.name}")
            self.run_tool("create the database", initdb, f"--pgdata={self.data}", *who, *settings, **as_user)

    def command(self) -> tuple[str, ...]:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "wal_level": "logical",
            "max_replication_slots": "32",
            "max_wal_senders": "32",
        }
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        return (_program("postgres"), "-D", str(self.data), *options)

    @property
    def user(self) -> str | None:
        account = _server_user()
        return None if account is None else account.pw_name

    def is_ready(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    @property
    def url(self) -> str:
        """The URL for clients that use libpq (psql, psycopg); the password stays in its file."""
        return f"postgresql://{USER}@{self.address}/{DATABASE}?passfile={quote(str(self.secret_file))}"

    @property
    def dsn(self) -> str:
        """The URL with the password, for clients that do not use libpq."""
        password = self.secret_file.read_text().strip().rpartition(":")[2]
        return f"postgresql://{USER}:{password}@{self.address}/{DATABASE}"

    @property
    def secret_file(self) -> Path:
        return self.folder / "pgpass"


def _program(name: str) -> str:
    # Debian installs them outside of PATH, one folder per version.
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return program(name, package="postgresql", folders=os.pathsep.join(str(path) for path in versions))


def _server_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(UNPRIVILEGED)
    except KeyError as error:
        raise HeadraceError(
            "SERVICE_USER",
            f"PostgreSQL does not run as root, and there is no user {UNPRIVILEGED!r}. Run apt-get install postgresql.",
        ) from error


def _check_access(data: Path, user: pwd.struct_passwd) -> None:
    for folder in data.parents:
        about = folder.stat()
        owned = about.st_uid == user.pw_uid and about.st_mode & 0o100
        grouped = about.st_gid == user.pw_gid and about.st_mode & 0o010
        if not (owned or grouped or about.st_mode & 0o001):
            raise HeadraceError(
                "SERVICE_FOLDER",
                f"PostgreSQL runs as {user.pw_name!r}, who may not enter {folder}. Choose a folder below /var/tmp.",
            )
