"""The replication slot, in which the server keeps changes until they are logged, and its publication."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headrace.connectors.postgres.changes.catalogue import (
    START_OVER,
    SourceTable,
    TableAltered,
    renamed_or_dropped,
    split_name,
)
from headrace.connectors.postgres.changes.landing import LandingMetadata
from headrace.connectors.postgres.connection import PgConnection, PostgresServer
from headrace.errors import DefinitionError, HeadraceError

CHANGES_AT_ONCE = 100_000
TAKEOVER_SECONDS = 10.0
INCOMPLETE = "PUBLICATION_INCOMPLETE"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
# The first half of our advisory locks; an arbitrary number that other programs hardly use for the same slot.
_LOCK_CLASS = 1_752_461_938
_HOLDERS = """
select l.pid, a.application_name from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted
    and l.classid = %s::int8::oid and l.objid = (hashtext(%s)::int8 & 4294967295)::oid
"""
_TABLE_NAMES = """
select c.oid::int8, format('%%s.%%s', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s::int8[]::oid[])
"""
_PUBLISHED = """
select p.oid::int8 from pg_publication p where p.pubname = %(publication)s
union all
select r.oid::int8 from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
where p.pubname = %(publication)s and r.prrelid = any(%(tables)s::int8[]::oid[])
"""
# Through JSON, because older servers have no column rowfilter.
_ROW_FILTERS = """
select format('%%s.%%s', schemaname, tablename), to_jsonb(p) ->> 'rowfilter' from pg_publication_tables p
where pubname = %s
"""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A slot, and the publication that says which tables' changes it returns."""

    server: PostgresServer
    name: str
    publication: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise DefinitionError(
                "SLOT_INVALID",
                f"slot={self.name!r} cannot name a replication slot. Use at most 63 lower-case letters, digits and _.",
            )

    def __repr__(self) -> str:
        return f"slot {self.name!r} at {self.server.place}"

    def lock(self, connection: PgConnection, session: str) -> None:
        """Be the only reader for as long as the connection lives.

        A session with our name belongs to a driver that was cut off or that this one has replaced: it is ended.
        """
        until = time.monotonic() + TAKEOVER_SECONDS
        arguments = (_LOCK_CLASS, self.name)
        while not connection.execute("select pg_try_advisory_lock(%s, hashtext(%s))", arguments).fetchall()[0][0]:
            holders = connection.execute(_HOLDERS, arguments).fetchall()
            if any(name != session for _, name in holders) or time.monotonic() > until:
                raise HeadraceError(
                    "SLOT_IN_USE",
                    f"{self!r} is read by another pipeline. Stop that one, or give this pipeline its own slot='...'.",
                )
            for process, _ in holders:
                connection.execute("select pg_terminate_backend(%s)", (process,))
            time.sleep(0.1)

    def confirmed(self, connection: PgConnection) -> int | None:
        """The LSN up to which the slot has been read; None when there is no such slot."""
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
                f"{self!r}: the server has discarded changes that were not read yet (max_slot_wal_keep_size). Drop it "
                f"(SELECT pg_drop_replication_slot('{self.name}')) and start with a new checkpoint.",
            )
        return parse_lsn(row[0])

    def create(self, session: str) -> tuple[PgConnection, int, str]:
        """Create the slot: a connection that keeps its snapshot alive, where changes begin, and the snapshot's name."""
        connection = self.server.connect_for_changes(session, replication="database")
        try:
            command = f'CREATE_REPLICATION_SLOT "{self.name}" LOGICAL pgoutput EXPORT_SNAPSHOT'
            result = connection.pgconn.exec_(command.encode())
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise HeadraceError(
                    "SLOT_FAILED",
                    f"{self!r} cannot be created: {result.get_error_message()}. Check the user's REPLICATION privilege "
                    "(ALTER ROLE ... REPLICATION) and the server's max_replication_slots.",
                )
            start, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
            return connection, parse_lsn(start.decode()), snapshot.decode()
        except BaseException:
            connection.close()
            raise

    def drop(self, connection: PgConnection) -> None:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", (self.name,)
        )

    def messages(self, connection: PgConnection, upto: int) -> Iterator[bytes]:
        """Whole transactions that were committed up to an LSN and not confirmed; they stay in the slot."""
        publications = '"' + self.publication.replace('"', '""') + '"'
        query = sql.SQL(
            "copy (select data from pg_logical_slot_peek_binary_changes({}, {}, {}, "
            "'proto_version', '1', 'publication_names', {})) to stdout (format binary)"
        ).format(*map(sql.Literal, (self.name, format_lsn(upto), CHANGES_AT_ONCE, publications)))
        with connection.cursor().copy(query) as copy:
            copy.set_types(["bytea"])
            for (data,) in copy.rows():
                yield data

    def written(self, connection: PgConnection) -> int:
        """How far the server's WAL is on disk."""
        return parse_lsn(connection.execute("select pg_current_wal_flush_lsn()::text").fetchall()[0][0])

    def advance(self, connection: PgConnection, end: int) -> None:
        """Confirm everything before an LSN: the server may discard it."""
        # To go back is an error for the server, as after a crash between the log and this.
        connection.execute(
            "select pg_replication_slot_advance(slot_name, %s::pg_lsn) from pg_replication_slots "
            "where slot_name = %s and confirmed_flush_lsn < %s::pg_lsn",
            (format_lsn(end), self.name, format_lsn(end)),
        )

    def check_server(self, connection: PgConnection) -> None:
        """Fail unless the server logs changes and the user may read them."""
        rows = connection.execute(
            "select current_setting('wal_level'), pg_is_in_recovery(), rolreplication or rolsuper, current_user "
            "from pg_roles where rolname = current_user"
        ).fetchall()
        (level, standby, allowed, user), place = rows[0], self.server.place
        if level != "logical":
            raise HeadraceError(
                "WAL_LEVEL",
                f"{place} has wal_level={level}. Run ALTER SYSTEM SET wal_level = 'logical', then restart the server.",
            )
        if standby:
            raise HeadraceError("SOURCE_REFUSED", f"{place} is a standby; connect to its primary in dsn=.")
        if not allowed:
            raise HeadraceError(
                "SOURCE_REFUSED", f'{place}: user {user!r} may not read changes. Run ALTER ROLE "{user}" REPLICATION.'
            )

    def publish(self, connection: PgConnection, tables: Sequence[SourceTable]) -> None:
        """Create the publication, or check that the existing one has all changes of all tables."""
        query = "select from pg_publication where pubname = %s"
        if connection.execute(query, (self.publication,)).fetchone() is None:
            names = sql.SQL(", ").join(sql.Identifier(*split_name(table.name)) for table in tables)
            create = sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)")
            connection.execute(create.format(sql.Identifier(self.publication), names))
            return
        gap = self._gap(connection, tables)
        if gap is not None:
            raise HeadraceError(INCOMPLETE, f"publication {self.publication!r} {gap[0]}. {gap[1]}")

    def published(self, connection: PgConnection, tables: Sequence[SourceTable]) -> tuple[int, ...]:
        """The OIDs of the publication and of its entries for the tables."""
        given = {"publication": self.publication, "tables": [table.oid for table in tables]}
        return tuple(oid for (oid,) in connection.execute(_PUBLISHED, given).fetchall())

    def check_published(self, connection: PgConnection, metadata: LandingMetadata) -> None:
        """Fail unless the slot has returned all changes of every table since the log began."""
        found = dict(connection.execute(_TABLE_NAMES, ([table.oid for table in metadata.tables],)).fetchall())
        for table in metadata.tables:
            if found.get(table.oid) != table.name:
                raise renamed_or_dropped(table.name, found.get(table.oid))
        gap = self._gap(connection, metadata.tables)
        # When a table is removed and added again, nothing seems to be missing, but the changes in between never come.
        if gap is None and not set(metadata.published) <= set(self.published(connection, metadata.tables)):
            gap = ("was created again, or a table was removed from it for a time", "")
        if gap is not None:
            raise TableAltered(
                INCOMPLETE,
                f"publication {self.publication!r} {gap[0]}, so changes made since then are missing. {START_OVER}",
            )

    def _gap(self, connection: PgConnection, tables: Sequence[SourceTable]) -> tuple[str, str] | None:
        """What the publication leaves out, and what to do about it before anything is read."""
        name = self.publication
        found = connection.execute(
            "select pubinsert and pubupdate and pubdelete and pubtruncate from pg_publication where pubname = %s",
            (name,),
        ).fetchone()
        if found is None:
            return "is gone", ""
        if not found[0]:
            advice = f"Run ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')."
            return "leaves out some kinds of changes", advice
        filters = dict(connection.execute(_ROW_FILTERS, (name,)).fetchall())
        for table in tables:
            if table.name not in filters:
                return f"has no table {table.name}", f"Run ALTER PUBLICATION {name} ADD TABLE {table.name}."
            if filters[table.name] is not None:
                advice = "Rows would appear and vanish: remove the row filter, or use another publication."
                return f"has only rows of {table.name} where {filters[table.name]}", advice
        return None


def format_lsn(lsn: int) -> str:
    """An LSN as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """An LSN as a number.

    >>> parse_lsn("16/B374D848") == 0x16B374D848, format_lsn(0x16B374D848)
    (True, '16/B374D848')
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
