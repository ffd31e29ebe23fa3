"""Rows in a PostgreSQL table, exactly once: each writer's rows and its mark are one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg

from headrace.changelog import CHANGE
from headrace.connectors.base.sink import ChangelogMode, Delivered, Guarantee, WriterBatch, already_written
from headrace.connectors.postgres.binary_copy import takes_binary
from headrace.connectors.postgres.marks import Marks
from headrace.connectors.postgres.rows import Target, put_all_but_refused
from headrace.connectors.postgres.sink_connection import Server, begin
from headrace.connectors.postgres.table import (
    TableName,
    check_fit,
    check_unique,
    create_table,
    existing_columns,
    parse_table,
)
from headrace.errors import DefinitionError, HeadraceError
from headrace.keys import key_columns
from headrace.secrets import HIDDEN, Secret
from headrace.shaping import Changes, flat, flat_names, flat_schema, last_changes, refused_rows


@dataclass(frozen=True, slots=True, repr=False)
class PostgresSink:
    """A table that rows are added to, or (with ``upsert_on``) replaced in by key."""

    table: str
    server: Server
    upsert_on: tuple[str, ...]
    create: bool
    writers: int | None
    guarantee: Guarantee

    @property
    def target(self) -> str:
        """The table."""
        return f"postgres table {self.table!r}"

    @property
    def place(self) -> str:
        """The table and its server."""
        return f"{self.target} at {self.server.address}"

    @property
    def why(self) -> str:
        """How the guarantee is kept."""
        if self.guarantee == "exactly_once":
            return "each writer's rows and its mark are one transaction; a batch that runs again finds the mark"
        if self.upsert_on:
            return "no mark; a batch that runs again replaces its rows by the same"
        return "no mark; a batch that runs again adds its rows again"

    @property
    def partition_by(self) -> tuple[str, ...]:
        """All changes of one key go to one writer, in their order."""
        return self.upsert_on

    @property
    def name(self) -> TableName:
        """The table's name, taken apart."""
        return parse_table(self.table)

    @property
    def marks(self) -> Marks:
        """Where the writers' marks are."""
        return Marks(self.name.schema, self.name.name, self.place)

    @property
    def changelog_mode(self) -> ChangelogMode:
        """Only a row with a key can be taken back."""
        return "upsert" if self.upsert_on else "append"

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        """Reach the server, create or check the table, claim the epoch for each writer."""
        kinds = flat_schema(columns)
        key = self.key(columns)
        for name in key:
            if name not in kinds:
                raise DefinitionError(
                    "UPSERT_COLUMN",
                    f"{self.place}: upsert_on names {name!r}, which the rows do not have. Existing columns: "
                    f"{', '.join(kinds)}.",
                )
        if key:
            kinds.pop(CHANGE, None)
        with self.server.connection(self.place) as connection:
            self.prepare_table(connection, kinds, key)
            if self.guarantee == "exactly_once":
                self.marks.create(connection)
                for writer in writers:
                    self.marks.claim(connection, writer, epoch)
        # The driver writes no rows, and a connection that it kept could be dead when the flow is started again.
        self.server.drop()

    def prepare_table(
        self, connection: psycopg.Connection[Any], kinds: Mapping[str, pl.DataType], key: Sequence[str]
    ) -> None:
        """Create the table if it is wanted and not there; check that our rows fit into it."""
        existing = existing_columns(connection, self.name)
        if existing is None and self.create:
            create_table(connection, self.name, kinds, key)
            existing = existing_columns(connection, self.name)
        if existing is None:
            raise HeadraceError(
                "TABLE_MISSING", f"{self.place} does not exist. Create it, or let the sink do it with create=True."
            )
        check_fit(existing, kinds, self.place)
        if key:
            check_unique(connection, self.name, key, self.place)

    def key(self, columns: Mapping[str, pl.DataType]) -> tuple[str, ...]:
        """The flat columns of ``upsert_on``: a window is its start and its end."""
        return tuple(
            column
            for name in self.upsert_on
            for column in (flat_names([name], columns) if name in columns else (name,))
        )

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Write a writer's part of a batch with its mark, unless the mark says that it is there."""
        key, even = self.key(rows.schema), flat(rows)
        lacking = pl.any_horizontal(pl.col(name).is_null() for name in key) if key else pl.lit(False)
        keyless = refused_rows(even.filter(lacking), "KEY_NULL", f"a key column ({', '.join(key)}) is null")
        changes = last_changes(even.filter(~lacking), key) if key else Changes(even, even.clear(), 0)
        with self.server.connection(self.place) as connection, connection.transaction():
            if self.guarantee == "at_least_once":
                begin(connection, "headrace")
                return self.write(connection, changes, keyless, key)
            begin(connection, self.marks.session(part.writer))
            stored = self.marks.lock(connection, part)
            if already_written(part, stored.mark, place=self.place):
                return Delivered(0, changes.superseded, stored.mark.rows, stored.refused)
            delivered = self.write(connection, changes, keyless, key)
            self.marks.move(connection, part, delivered.written, delivered.refused)
        return delivered

    def write(
        self, connection: psycopg.Connection[Any], changes: Changes, keyless: pl.DataFrame, key: tuple[str, ...]
    ) -> Delivered:
        """Take out and put in what the changes say, all but what the table refuses."""
        existing = existing_columns(connection, self.name) or {}
        target = Target(self.name.identifier, key, takes_binary(existing, changes.upserts.schema))
        # Deletes first: a row that takes another's place may be unique in more than the key.
        parts = [keyless, put_all_but_refused(connection, target.delete, changes.deletes)]
        parts.append(put_all_but_refused(connection, target.upsert if key else target.append, changes.upserts))
        left_out = pl.concat(parts)
        given = changes.upserts.height + changes.deletes.height + keyless.height
        return Delivered(given - left_out.height, changes.superseded, 0, None if left_out.is_empty() else left_out)

    def __repr__(self) -> str:
        said = [f"{self.table!r}", f"dsn={self.server.shown!r}"]
        if self.server.password is not None:
            hidden = self.server.password if isinstance(self.server.password, Secret) else HIDDEN
            said.append(f"password={hidden!r}")
        if self.upsert_on:
            said.append(f"upsert_on={list(self.upsert_on)!r}")
        if not self.create:
            said.append("create=False")
        if self.writers is not None:
            said.append(f"writers={self.writers}")
        if self.guarantee != "exactly_once":
            said.append(f"guarantee={self.guarantee!r}")
        return f"hr.to_postgres({', '.join(said)})"


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

    ``table`` is ``table`` or ``schema.table``; letter case counts, odd names go into double quotes. With ``upsert_on``
    a row takes the place of the one with its key, and a changelog's deletes take it out. ``create`` makes a table that
    is missing. Marks are kept in ``headrace_marks`` in the same schema.

    >>> to_postgres("spend", dsn="host=db dbname=shop", upsert_on="account")
    hr.to_postgres('spend', dsn='host=db dbname=shop', upsert_on=['account'])
    """
    parse_table(table)
    if writers is not None and writers < 1:
        raise DefinitionError("WRITERS_INVALID", f"to_postgres: writers={writers} must be 1 or more.")
    if guarantee not in ("exactly_once", "at_least_once"):
        raise DefinitionError(
            "GUARANTEE_UNKNOWN", f"to_postgres: guarantee={guarantee!r} is neither 'exactly_once' nor 'at_least_once'."
        )
    key = key_columns(upsert_on, argument="upsert_on")
    return PostgresSink(table, Server(dsn, password), key, create, writers, guarantee)
