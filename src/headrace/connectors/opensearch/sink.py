"""Rows as documents in an OpenSearch index, exactly once by id and version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import polars as pl

from headrace.connectors.base.sink import ChangelogMode, Delivered, Guarantee, WriterBatch
from headrace.connectors.http.client import Endpoint, check_permitted, parse_endpoint, said
from headrace.connectors.opensearch.bulk import Bulk, Operation
from headrace.errors import DefinitionError, HeadraceError
from headrace.secrets import HIDDEN, Secret
from headrace.shaping import REFUSED, Changes, flat, flat_schema, json_rows, last_changes, refused_rows
from headrace.template import Template, parse_template

_ID = "_id"
_LONGEST_ID = 512
_TIMEOUT, _RETRIES = 30.0, 5
# Any batch of a later generation is newer than every batch of an earlier one.
_BATCHES_OF_A_GENERATION = 2**40


@dataclass(frozen=True, slots=True, repr=False)
class OpenSearchSink:
    """An index in which each document has an id made from its row."""

    endpoint: Endpoint
    index: str
    id: Template
    writers: int | None

    @property
    def target(self) -> str:
        """The index."""
        return f"opensearch index {self.index!r}"

    @property
    def place(self) -> str:
        """The index and its server."""
        return f"{self.target} at {self.endpoint.shown}"

    @property
    def guarantee(self) -> Guarantee:
        """A batch that runs again leaves what is there."""
        return "exactly_once"

    @property
    def why(self) -> str:
        """How the guarantee is kept."""
        return "the same row has the same document id and version when a batch runs again; older versions are refused"

    @property
    def changelog_mode(self) -> ChangelogMode:
        """A change sets or deletes its document."""
        return "upsert"

    @property
    def partition_by(self) -> tuple[str, ...]:
        """All changes of one document go to one writer, in their order."""
        return self.id.columns

    @property
    def path(self) -> str:
        """Where the index is below the server's address."""
        return f"/{quote(self.index, safe='')}"

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        """Reach the server, create the index unless it is there."""
        self.id.check(flat_schema(columns))
        if _ID in columns:
            raise DefinitionError(
                "COLUMN_RESERVED", f"{self.place}: a document has no field {_ID!r}. Rename the column."
            )
        found = self.endpoint.request("HEAD", self.path)
        if found.status_code == 404:
            found = self.endpoint.request("PUT", self.path)
            if found.status_code == 400 and "resource_already_exists" not in found.text:
                raise HeadraceError("INDEX_INVALID", f"{self.place}: it cannot be created: {said(found)}.")
        if found.status_code != 400:
            check_permitted(found, self.place)

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Write each document's last change, with the version that the batch gives it."""
        named = rows.with_columns(self.id.render(flat(rows)).alias(_ID))
        fits = pl.col(_ID).str.len_bytes().is_between(1, _LONGEST_ID).fill_null(False)
        unnamed = refused_rows(
            named.filter(~fits).drop(_ID), "ID_INVALID", f"{self.id} is null, empty or longer than {_LONGEST_ID} bytes"
        )
        changes = last_changes(named.filter(fits), [_ID])
        version = part.batch.generation * _BATCHES_OF_A_GENERATION + part.batch.batch
        tally = Bulk(self.endpoint, self.path, self.place, version).send(_operations(changes))
        left_out = {
            "reason": ["DOCUMENT_REFUSED"] * len(tally.refused),
            "detail": [why for _, why in tally.refused],
            "raw": [operation.document or operation.id.encode() for operation, _ in tally.refused],
        }
        refused = pl.concat([unnamed, pl.DataFrame(left_out, schema=REFUSED)])
        return Delivered(tally.written, changes.superseded, tally.overtaken, None if refused.is_empty() else refused)

    def __repr__(self) -> str:
        options = [f"{self.endpoint.shown!r}", f"{self.index!r}", f"id={str(self.id)!r}"]
        if self.endpoint.login is not None:
            user, password = self.endpoint.login
            hidden = password if isinstance(password, Secret) else HIDDEN
            options.append(f"username={user!r}, password={hidden!r}")
        if self.writers is not None:
            options.append(f"writers={self.writers}")
        return f"hr.to_opensearch({', '.join(options)})"


def to_opensearch(
    url: str,
    index: str,
    *,
    id: str,
    username: str | None = None,
    password: str | Secret | None = None,
    writers: int | None = None,
) -> OpenSearchSink:
    """Write rows as documents of an OpenSearch index, exactly once; a changelog's deletes delete them.

    ``id`` makes each document's id from flat column names. Rows with the same id are versions of one document, of
    which the last one stays. The index is created, with the server's own mapping, unless it is there.

    >>> to_opensearch("http://search:9200", "spend", id="{account}-{window_start}")
    hr.to_opensearch('http://search:9200', 'spend', id='{account}-{window_start}')
    """
    if writers is not None and writers < 1:
        raise DefinitionError("WRITERS_INVALID", f"to_opensearch: writers={writers} must be 1 or more.")
    if (username is None) != (password is None):
        raise DefinitionError("LOGIN_INCOMPLETE", "to_opensearch: give both username= and password=, or neither.")
    login = None if username is None or password is None else (username, password)
    endpoint = parse_endpoint(url.rstrip("/"), login, (), _TIMEOUT, _RETRIES)
    return OpenSearchSink(endpoint, index, parse_template(id), writers)


def _operations(changes: Changes) -> list[Operation]:
    documents = zip(changes.upserts[_ID], json_rows(changes.upserts.drop(_ID)), strict=True)
    deletes = [Operation(identity, None) for identity in changes.deletes[_ID]]
    return [Operation(identity, document) for identity, document in documents] + deletes
