"""A replication slot: where the server keeps what has not been read yet."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from headrace.connectors.postgres.changes.server import Server, lsn_number, lsn_text
from headrace.errors import DefinitionError, HeadraceError

CHANGES_AT_ONCE = 100_000
TAKEOVER_SECONDS = 10.0
_NAME = re.compile(r"[a-z0-9_]{1,63}")
# Any number: advisory locks of other programs with the same first half and the same slot are not to be expected.
_OURS = 1_752_461_938
_HOLDERS = """
select l.pid, a.application_name from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted
    and l.classid = %s::int8::oid and l.objid = (hashtext(%s)::int8 & 4294967295)::oid
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot, and the publication that says which tables' changes it is about."""

    server: Server
    name: str
    publication: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise DefinitionError(
                "SLOT_INVALID",
                f"slot={self.name!r} cannot name a replication slot. Use lower-case letters, digits and _, 63 at most.",
            )

    def __repr__(self) -> str:
        return f"slot {self.name!r} at PostgreSQL {self.server.address}"

    def lock(self, connection: psycopg.Connection[Any], session: str) -> None:
        """Be the only reader, for as long as the connection lives.

        A session of the same name is one that was cut off, or a driver's that this one has replaced: it is ended.
        """
        until = time.monotonic() + TAKEOVER_SECONDS
        arguments = (_OURS, self.name)
        while not connection.execute("select pg_try_advisory_lock(%s, hashtext(%s))", arguments).fetchall()[0][0]:
            holders = connection.execute(_HOLDERS, arguments).fetchall()
            if any(name != session for _, name in holders) or time.monotonic() > until:
                raise HeadraceError(
                    "SLOT_IN_USE",
                    f"{self!r} is read by another pipeline, and what one of them takes the other would miss. Stop it, "
                    "or give this pipeline a slot of its own: slot='...'.",
                )
            for process, _ in holders:
                connection.execute("select pg_terminate_backend(%s)", (process,))
            time.sleep(0.1)

    def confirmed(self, connection: psycopg.Connection[Any]) -> int | None:
        """How far the server believes this slot has been read; None when there is no such slot."""
        row = connection.execute(
            "select confirmed_flush_lsn::text, wal_status, plugin, database = current_database() "
            "from pg_replication_slots where slot_name = %s",
            (self.name,),
        ).fetchone()
        if row is None:
            return None
        if row[2] != "pgoutput" or not row[3]:
            raise HeadraceError(
                "SLOT_TAKEN",
                f"{self!r} belongs to another database or another program. Choose another name: slot='...'.",
            )
        if row[1] == "lost" or row[0] is None:
            raise HeadraceError(
                "SLOT_LOST",
                f"{self!r}: the server has thrown away changes that were not read yet (max_slot_wal_keep_size). Drop "
                f"it (SELECT pg_drop_replication_slot('{self.name}')) and start with a new checkpoint.",
            )
        return lsn_number(row[0])

    def create(self, session: str) -> tuple[psycopg.Connection[Any], int, str]:
        """Make the slot; a connection that keeps its snapshot alive, where changes begin, and the snapshot's name."""
        connection = self.server.connect(session, replication="database")
        try:
            command = f'CREATE_REPLICATION_SLOT "{self.name}" LOGICAL pgoutput EXPORT_SNAPSHOT'
            result = connection.pgconn.exec_(command.encode())
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                said = result.get_error_message()
                raise HeadraceError(
                    "SLOT_FAILED",
                    f"{self!r} cannot be made: {said}. Check the user's right to replicate (ALTER ROLE ... "
                    "REPLICATION) and the server's max_replication_slots.",
                )
            point, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
            return connection, lsn_number(point.decode()), snapshot.decode()
        except BaseException:
            connection.close()
            raise

    def drop(self, connection: psycopg.Connection[Any]) -> None:
        """Remove the slot, if there is one."""
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (self.name,)
        )

    def messages(self, connection: psycopg.Connection[Any], upto: int) -> Iterator[bytes]:
        """What has been committed up to a place and was not confirmed, in whole transactions; it stays there."""
        publications = '"' + self.publication.replace('"', '""') + '"'
        query = sql.SQL(
            "copy (select data from pg_logical_slot_peek_binary_changes({}, {}, {}, "
            "'proto_version', '1', 'publication_names', {})) to stdout (format binary)"
        ).format(*map(sql.Literal, (self.name, lsn_text(upto), CHANGES_AT_ONCE, publications)))
        with connection.cursor().copy(query) as copy:
            copy.set_types(["bytea"])
            for (data,) in copy.rows():
                yield data

    def written(self, connection: psycopg.Connection[Any]) -> int:
        """How far the server's log is on disk."""
        return lsn_number(connection.execute("select pg_current_wal_flush_lsn()::text").fetchall()[0][0])

    def advance(self, connection: psycopg.Connection[Any], end: int) -> None:
        """Let the server forget what ends here."""
        # Asked for a place that it has passed the server fails, as after a crash between the log and this.
        connection.execute(
            "select pg_replication_slot_advance(slot_name, %s::pg_lsn) from pg_replication_slots "
            "where slot_name = %s and confirmed_flush_lsn < %s::pg_lsn",
            (lsn_text(end), self.name, lsn_text(end)),
        )
