"""The PostgreSQL sink: exactly once, because each writer's rows and its mark are one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

import polars as pl
import psycopg
from psycopg import sql

from headrace.connectors.base.sink import (
    ChangelogMode,
    Delivered,
    Guarantee,
    Mark,
    Unreachable,
    WriterBatch,
    already_written,
    check_delivery,
    check_epoch,
)
from headrace.connectors.postgres.connection import PgConnection, PostgresServer
from headrace.connectors.postgres.row_writer import CopyTarget, RowWriter, takes_binary
from headrace.connectors.postgres.target_table import (
    TableName,
    TargetColumn,
    check_columns,
    check_kind,
    check_unique,
    create_table,
    existing_columns,
    has_no_type,
    parse_table,
)
from headrace.errors import DefinitionError, HeadraceError
from headrace.keys import key_columns
from headrace.rendering import Changes, flat, flat_schema, last_changes, refused_rows
from headrace.schemas import shown_type
from headrace.secrets import Secret, call_text
from headrace.stability import stable

# A deferred constraint would fail only at the commit, where the row at fault is no longer known.
_SETTINGS = "set constraints all immediate; set local lock_timeout = '5s'; set local application_name = {}"
_MARKS = "headrace_marks"
_CREATE_MARKS = """
create table {} (writer text, target text, epoch bigint not null, generation bigint, batch bigint, rows bigint,
    refused bytea, token text not null default '', skipped bigint, primary key (writer, target))
"""
_CLAIM = """
insert into {} as m (writer, target, epoch) values (%s, %s, %s)
on conflict (writer, target) do update set epoch = excluded.epoch where m.epoch <= excluded.epoch
"""
_MOVE = """
update {} set generation = %s, batch = %s, rows = %s, refused = %s, token = %s, skipped = %s
where writer = %s and target = %s
"""
_SELECT = "select epoch, generation, batch, rows, refused, token, skipped from {} where writer = %s and target = %s {}"
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, repr=False)
class PostgresSink:
    """A table that rows are appended to, or (with ``upsert_on``) upserted into by key."""

    table: str
    server: PostgresServer
    upsert_on: tuple[str, ...]
    create: bool
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        return f"postgres table {self.table!r}"

    @property
    def place(self) -> str:
        return f"{self.target} at {self.server.address}"

    @property
    def why(self) -> str:
        if self.guarantee == "exactly_once":
            return "each writer's rows and its mark are one transaction; a batch that runs again finds the mark"
        if self.upsert_on:
            return "no mark; a batch that runs again replaces its rows with the same rows"
        return "no mark; a batch that runs again adds its rows again"

    @property
    def partition_by(self) -> tuple[str, ...]:
        """All changes of one key go to one writer, in their order."""
        return self.upsert_on

    @property
    def name(self) -> TableName:
        return parse_table(self.table)

    @property
    def marks(self) -> MarkTable:
        return MarkTable(self.name, self.place)

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Only a row with a key can be retracted."""
        return "upsert" if self.upsert_on else "append"

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        kinds = flat_schema(columns)
        for name in self.key(columns):
            if name not in kinds:
                raise DefinitionError(
                    "UPSERT_COLUMN",
                    f"{self.place}: upsert_on={name!r}, but the rows have only {', '.join(kinds)}. Correct it.",
                )
        for name, kind in columns.items():
            for column, inner in flat_schema({name: kind}).items():
                if has_no_type(inner):
                    raise DefinitionError(
                        "COLUMN_TYPE",
                        f"{self.place}: column {column!r} is {shown_type(inner)}, for which PostgreSQL has no type. "
                        f"Convert it before the sink: frame.withColumn({name!r}, F.to_json({name!r})).",
                    )

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        with self.server.pooled(self.place) as connection:
            self._check(connection, columns, existing_columns(connection, self.name), missing=self.create)
        self.server.drop_pooled()

    def _check(
        self,
        connection: PgConnection,
        columns: Mapping[str, pl.DataType],
        existing: Mapping[str, TargetColumn] | None,
        *,
        missing: bool,
    ) -> None:
        """Fail unless the table as it is now takes these rows; it may be ``missing`` if it is created later."""
        kinds, key = flat_schema(columns), self.key(columns)
        if existing is None and missing:
            return
        if existing is None:
            raise HeadraceError("TABLE_MISSING", f"{self.place} does not exist. Create it, or use create=True.")
        check_kind(connection, self.name, self.place, upserts=bool(key))
        check_columns(existing, kinds, self.place, upserts=bool(key))
        if key:
            check_unique(connection, self.name, key, self.place)

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self.check_columns(columns)
        with self.server.pooled(self.place) as connection:
            existing = existing_columns(connection, self.name)
            if existing is None and self.create:
                create_table(connection, self.name, flat_schema(columns), self.key(columns))
                existing = existing_columns(connection, self.name)
            self._check(connection, columns, existing, missing=False)
            if self.guarantee == "exactly_once":
                self.marks.create(connection)
                for writer in writers:
                    self.marks.claim(connection, writer, epoch)
        # The driver writes no rows, and a connection kept until the next start of the flow could be dead by then.
        self.server.drop_pooled()

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        if self.guarantee == "at_least_once":
            return ()
        with self.server.pooled(self.place) as connection:
            return [self.marks.read(connection, part.writer) for part in parts]

    def key(self, columns: Mapping[str, pl.DataType]) -> tuple[str, ...]:
        """The flat columns of ``upsert_on``; a window is two, its start and its end."""
        flattened = (flat_schema({name: columns[name]}) if name in columns else (name,) for name in self.upsert_on)
        return tuple(column for columns in flattened for column in columns)

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        key, flattened = self.key(rows.schema), flat(rows)
        lacking = pl.any_horizontal(pl.col(name).is_null() for name in key) if key else pl.lit(False)
        keyless = refused_rows(flattened.filter(lacking), "KEY_NULL", f"a key column ({', '.join(key)}) is null")
        changes = Changes(flattened, flattened.clear(), 0)
        if key:
            changes = last_changes(flattened.filter(~lacking), key, changelog=part.batch.changelog)
        marks = self.marks if self.guarantee == "exactly_once" else None
        with self.server.pooled(self.place) as connection, connection.transaction():
            session = "headrace" if marks is None else marks.session(part.writer)
            connection.execute(sql.SQL(_SETTINGS).format(sql.Literal(session)))
            if marks is not None:
                mark, refused = marks.lock(connection, part)
                if already_written(part, mark, place=self.place):
                    return Delivered(0, changes.superseded, mark.rows, refused, mark.skipped)
            delivered = self._write(connection, changes, keyless, key)
            if marks is not None:
                marks.move(connection, part, delivered)
        return delivered

    def _write(
        self, connection: PgConnection, changes: Changes, keyless: pl.DataFrame, key: tuple[str, ...]
    ) -> Delivered:
        existing = existing_columns(connection, self.name) or {}
        target = CopyTarget(self.name.identifier, key, takes_binary(existing, changes.upserts.schema))
        # Deletes first: a row that replaces a deleted one may share a unique value with it.
        deletes, kept = RowWriter(connection, target.delete).write(changes.deletes)
        put = target.upsert if key else target.append
        upserts, unset = RowWriter(connection, put).write(changes.upserts)
        left_out, skipped = pl.concat([keyless, deletes, upserts]), kept + unset
        written = changes.upserts.height + changes.deletes.height - deletes.height - upserts.height - skipped
        return Delivered(written, changes.superseded, 0, None if left_out.is_empty() else left_out, skipped)

    def __repr__(self) -> str:
        where = {"dsn": self.server.shown, "password": self.server.password, "upsert_on": self.upsert_on}
        how = {"create": self.create, "writers": self.writers, "guarantee": self.guarantee}
        return call_text(to_postgres, self.table, **where, **how)


@dataclass(frozen=True, slots=True)
class MarkTable:
    """The marks of a target's writers, in a table beside it: one output can be written to several targets."""

    target: TableName
    place: str

    @property
    def table(self) -> sql.Identifier:
        return TableName(self.target.schema, _MARKS).identifier

    def session(self, writer: str) -> str:
        """The application_name of a writer's sessions: at most 63 ASCII characters.

        >>> MarkTable(TableName(None, "spend"), "table spend").session("headrace.spend-1f0c.main.0")
        'headrace.spend-1f0c.main.0.93a264f693c0b5d4'
        """
        whole = blake2b(f"{writer}\n{self.target.schema}\n{self.target.name}".encode(), digest_size=8).hexdigest()
        return f"{writer.encode('ascii', 'replace').decode()[:46]}.{whole}"

    def create(self, connection: PgConnection) -> None:
        """Create the table unless it exists; the lock lets one of several flows do it."""
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [_MARKS])
            if not self._exists(connection):
                connection.execute(sql.SQL(_CREATE_MARKS).format(self.table))

    def _exists(self, connection: PgConnection) -> bool:
        return connection.execute("select to_regclass(%s)", [self.table.as_string(connection)]).fetchone() != (None,)

    def read(self, connection: PgConnection, writer: str) -> Mark | None:
        """A writer's mark as it was last committed."""
        found = self._select(connection, writer, "") if self._exists(connection) else None
        return None if found is None else found[0]

    def claim(self, connection: PgConnection, writer: str, epoch: int) -> None:
        """Fence off older epochs of this writer, and end a transaction that one of them left open."""
        for _ in range(_ATTEMPTS):
            self._end_predecessors(connection, writer, epoch)
            with suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                connection.execute("set local lock_timeout = '2s'")
                claimed = connection.execute(sql.SQL(_CLAIM).format(self.table), [writer, self.target.name, epoch])
                if claimed.rowcount == 1:
                    return
        self._end_predecessors(connection, writer, epoch)
        raise Unreachable(f"{self.place}: the mark of writer {writer!r} is locked by another session")

    def lock(self, connection: PgConnection, part: WriterBatch) -> tuple[Mark, pl.DataFrame | None]:
        """The writer's mark, locked until the transaction ends."""
        try:
            with connection.transaction():
                stored = self._select(connection, part.writer, "for update nowait")
        except psycopg.errors.LockNotAvailable:
            # An earlier attempt of this writer is frozen or cut off: end it, then the mark says what it has done.
            self._end_predecessors(connection, part.writer, part.batch.epoch)
            stored = self._select(connection, part.writer, "for update")
        if stored is None:
            raise HeadraceError(
                "MARK_LOST",
                f"{self.place}: the mark of writer {part.writer!r} is gone from {_MARKS}; whether batch "
                f"{part.batch.batch} was written is unknown. Check which rows are there, then start from a new "
                "checkpoint.",
            )
        return stored

    def move(self, connection: PgConnection, part: WriterBatch, delivered: Delivered) -> None:
        """Mark a batch as written, in the transaction that writes it."""
        left_out = None if delivered.refused is None else delivered.refused.write_ipc(None).getvalue()
        what = [delivered.written, left_out, part.batch.token, delivered.skipped]
        given = [part.batch.generation, part.batch.batch, *what, part.writer, self.target.name]
        connection.execute(sql.SQL(_MOVE).format(self.table), given)

    def _end_predecessors(self, connection: PgConnection, writer: str, epoch: int) -> None:
        """End earlier sessions of this writer, unless this driver's own lease was taken over; waits for no lock."""
        stored = self._select(connection, writer, "")
        if stored is not None:
            check_epoch(epoch, stored[0].epoch, place=self.place, writer=writer)
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s "
            "and pid <> pg_backend_pid() and datname = current_database() and usename = current_user",
            [self.session(writer)],
        )

    def _select(self, connection: PgConnection, writer: str, locking: str) -> tuple[Mark, pl.DataFrame | None] | None:
        query = sql.SQL(_SELECT).format(self.table, sql.SQL(locking))
        found = connection.execute(query, [writer, self.target.name], binary=True).fetchone()
        if found is None:
            return None
        epoch, generation, batch, rows, refused, token, skipped = found
        letters = None if refused is None else pl.read_ipc(refused)
        return Mark(epoch, generation, batch, rows or 0, token, skipped or 0), letters


@stable
def to_postgres(
    table: str,
    *,
    dsn: str,
    password: str | Secret | None = None,
    upsert_on: str | Sequence[str] | None = None,
    create: bool = True,
    writers: int | None = None,
    guarantee: Guarantee = "exactly_once",
) -> PostgresSink:
    """Write rows to a PostgreSQL table, exactly once; structs become columns (``window_start``, ``window_end``).

    ``table`` is ``table`` or ``schema.table``; letter case counts, and names with special characters go into double
    quotes. With ``upsert_on`` a row replaces the one with its key, and a changelog's deletes remove it. ``create``
    creates a missing table. Marks are kept in ``headrace_marks`` in the same schema.

    >>> import headrace as hr
    >>> hr.to_postgres("spend", dsn="host=db dbname=shop", upsert_on="account")
    hr.to_postgres('spend', dsn='host=db dbname=shop', upsert_on=['account'])
    """
    parse_table(table)
    check_delivery(guarantee, writers)
    key = key_columns(upsert_on, argument="upsert_on")
    return PostgresSink(table, PostgresServer(dsn, password), key, create, writers, guarantee)
