"""Commit marks in a table beside the rows: each writer's batch and its mark are one transaction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO

import polars as pl
import psycopg
from psycopg import sql

from headrace.connectors.base.sink import Mark, Unreachable, WriterBatch, check_epoch
from headrace.connectors.postgres.connection import PgConnection
from headrace.connectors.postgres.target_table import TableName
from headrace.errors import HeadraceError

TABLE = "headrace_marks"
_CREATE = """
create table {} (writer text, target text, epoch bigint not null, generation bigint, batch bigint, rows bigint,
    refused bytea, primary key (writer, target))
"""
_CLAIM = """
insert into {} as m (writer, target, epoch) values (%s, %s, %s)
on conflict (writer, target) do update set epoch = excluded.epoch where m.epoch <= excluded.epoch
"""
_MOVE = "update {} set generation = %s, batch = %s, rows = %s, refused = %s where writer = %s and target = %s"
_SELECT = "select epoch, generation, batch, rows, refused from {} where writer = %s and target = %s {}"
_ATTEMPTS = 5
MarkRow = tuple[Mark, pl.DataFrame | None]
"""A writer's mark, and the rows of the marked batch that the table rejected."""


@dataclass(frozen=True, slots=True)
class MarkTable:
    """The marks of the writers of one target, in the target's schema."""

    schema: str | None
    target: str
    """The table whose rows the marks are for: one output can be written to several."""
    place: str

    @property
    def table(self) -> sql.Identifier:
        return TableName(self.schema, TABLE).identifier

    def session(self, writer: str) -> str:
        """The application_name of a writer's sessions: at most 63 ASCII characters.

        >>> MarkTable(None, "spend", "table spend").session("headrace.spend-1f0c.main.0")
        'headrace.spend-1f0c.main.0.93a264f693c0b5d4'
        """
        whole = blake2b(f"{writer}\n{self.schema}\n{self.target}".encode(), digest_size=8).hexdigest()
        return f"{writer.encode('ascii', 'replace').decode()[:46]}.{whole}"

    def create(self, connection: PgConnection) -> None:
        """Create the table unless it exists; the lock lets one of several flows do it."""
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [TABLE])
            if connection.execute("select to_regclass(%s)", [self.table.as_string(connection)]).fetchone() == (None,):
                connection.execute(sql.SQL(_CREATE).format(self.table))

    def claim(self, connection: PgConnection, writer: str, epoch: int) -> None:
        """Fence off older epochs of this writer, and end a transaction that one of them left open."""
        for _ in range(_ATTEMPTS):
            self._check_not_fenced(connection, writer, epoch)
            self._end_predecessors(connection, writer)
            with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                connection.execute("set local lock_timeout = '2s'")
                claimed = connection.execute(sql.SQL(_CLAIM).format(self.table), [writer, self.target, epoch])
                if claimed.rowcount == 1:
                    return
        self._check_not_fenced(connection, writer, epoch)
        raise Unreachable(f"{self.place}: the mark of writer {writer!r} is locked by another session")

    def lock(self, connection: PgConnection, part: WriterBatch) -> MarkRow:
        """The writer's mark, locked until the transaction ends."""
        try:
            with connection.transaction():
                stored = self._select(connection, part.writer, "for update nowait")
        except psycopg.errors.LockNotAvailable:
            # An earlier attempt of this writer is frozen or cut off: end it, then the mark says what it has done.
            self._check_not_fenced(connection, part.writer, part.batch.epoch)
            self._end_predecessors(connection, part.writer)
            stored = self._select(connection, part.writer, "for update")
        if stored is None:
            raise HeadraceError(
                "MARK_LOST",
                f"{self.place}: the mark of writer {part.writer!r} is no longer in {TABLE}, so it is unknown "
                f"whether batch {part.batch.batch} was written. Check which rows are there, then start from a new "
                "checkpoint.",
            )
        return stored

    def move(self, connection: PgConnection, part: WriterBatch, rows: int, refused: pl.DataFrame | None) -> None:
        """Mark a batch as written, in the transaction that writes it."""
        left_out = None if refused is None else refused.write_ipc(None).getvalue()
        given = [part.batch.generation, part.batch.batch, rows, left_out, part.writer, self.target]
        connection.execute(sql.SQL(_MOVE).format(self.table), given)

    def _check_not_fenced(self, connection: PgConnection, writer: str, epoch: int) -> None:
        """Stop a driver whose lease was taken over, without waiting for a lock."""
        stored = self._select(connection, writer, "")
        if stored is not None:
            check_epoch(epoch, stored[0].epoch, place=self.place, writer=writer)

    def _end_predecessors(self, connection: PgConnection, writer: str) -> None:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s "
            "and pid <> pg_backend_pid() and datname = current_database() and usename = current_user",
            [self.session(writer)],
        )

    def _select(self, connection: PgConnection, writer: str, locking: str) -> MarkRow | None:
        query = sql.SQL(_SELECT).format(self.table, sql.SQL(locking))
        found = connection.execute(query, [writer, self.target], binary=True).fetchone()
        if found is None:
            return None
        epoch, generation, batch, rows, refused = found
        return Mark(epoch, generation, batch, rows or 0), None if refused is None else pl.read_ipc(BytesIO(refused))
