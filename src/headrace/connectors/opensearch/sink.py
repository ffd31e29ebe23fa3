"""The OpenSearch sink: rows as documents of an index, exactly once by id and version."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, ClassVar
from urllib.parse import quote

import polars as pl

from headrace.connectors.base.sink import (
    ChangelogMode,
    Delivered,
    Guarantee,
    Mark,
    Unreachable,
    WriterBatch,
    check_writers,
)
from headrace.connectors.http.client import BUSY, FAILING, Endpoint, check_permitted, parse_endpoint, summary
from headrace.errors import DefinitionError, HeadraceError
from headrace.rendering import (
    REFUSED,
    Template,
    flat,
    flat_schema,
    json_rows,
    last_changes,
    parse_template,
    refused_rows,
)
from headrace.secrets import Secret, call_text
from headrace.stability import stable

_BYTES_AT_ONCE = 5 << 20
_TOO_LARGE = 413
_FIRST_PAUSE = 0.1
_WRITTEN, _OVERTAKEN, _BUSY = "written", "overtaken", "busy"
"""Outcomes of an operation: done, not done because the document has a later version, not now. Others say why not."""
_ID = "_id"
_LONGEST_ID = 512
_TIMEOUT, _RETRIES = 30.0, 5
# So that any batch of a later generation has a higher version than all batches of an earlier one.
_BATCHES_OF_A_GENERATION = 2**40


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of one document."""

    id: str
    document: bytes | None
    """None to delete it."""

    def lines(self, version: int) -> bytes:
        about = {"_id": self.id, "version": version, "version_type": "external_gte"}
        if self.document is None:
            return json.dumps({"delete": about}).encode() + b"\n"
        return json.dumps({"index": about}).encode() + b"\n" + self.document + b"\n"


Outcomes = list[tuple[Operation, str]]


@dataclass(frozen=True, slots=True, repr=False)
class OpenSearchSink:
    """An index in which each document has an id made from its row."""

    guarantee: ClassVar[Guarantee] = "exactly_once"
    changelog_mode: ClassVar[ChangelogMode] = "upsert"
    why: ClassVar[str] = (
        "the same row has the same document id and version when a batch runs again; older versions are refused"
    )
    endpoint: Endpoint
    index: str
    id: Template
    writers: int | None

    @property
    def target(self) -> str:
        return f"opensearch index {self.index!r}"

    @property
    def place(self) -> str:
        return f"{self.target} at {self.endpoint.shown}"

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.id.columns

    @property
    def path(self) -> str:
        return f"/{quote(self.index, safe='')}"

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        self.id.check(flat_schema(columns))
        if _ID in columns:
            raise DefinitionError(
                "COLUMN_RESERVED", f"{self.place}: a document has no field {_ID!r}. Rename the column."
            )

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        found = self.endpoint.request("HEAD", self.path)
        # A missing index is created at the start.
        if found.status_code not in (400, 404):
            check_permitted(found, self.place)

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self.check_columns(columns)
        found = self.endpoint.request("HEAD", self.path)
        if found.status_code == 404:
            found = self.endpoint.request("PUT", self.path)
            if found.status_code == 400 and "resource_already_exists" not in found.text:
                raise HeadraceError("INDEX_INVALID", f"{self.place}: it cannot be created: {summary(found)}.")
        if found.status_code != 400:
            check_permitted(found, self.place)

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        return ()

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        named = rows.with_columns(self.id.render(flat(rows)).alias(_ID))
        fits = pl.col(_ID).str.len_bytes().is_between(1, _LONGEST_ID).fill_null(False)
        without_id = refused_rows(
            named.filter(~fits).drop(_ID), "ID_INVALID", f"{self.id} is null, empty or longer than {_LONGEST_ID} bytes"
        )
        changes = last_changes(named.filter(fits), [_ID], changelog=part.batch.changelog)
        version = part.batch.generation * _BATCHES_OF_A_GENERATION + part.batch.batch
        documents = map(Operation, changes.upserts[_ID], json_rows(changes.upserts.drop(_ID)))
        deletes = (Operation(identity, None) for identity in changes.deletes[_ID])
        outcomes = self._send([*documents, *deletes], version)
        counts = Counter(outcome for _, outcome in outcomes)
        left_out = [
            ("DOCUMENT_REFUSED", why, operation.document or operation.id.encode())
            for operation, why in outcomes
            if why not in (_WRITTEN, _OVERTAKEN)
        ]
        refused = pl.concat([without_id, pl.DataFrame(left_out, schema=REFUSED, orient="row")])
        left = None if refused.is_empty() else refused
        return Delivered(counts[_WRITTEN], changes.superseded, counts[_OVERTAKEN], left)

    def _send(self, operations: Sequence[Operation], version: int) -> Outcomes:
        outcomes: Outcomes = []
        for part in _parts(operations):
            pending = part
            for attempt in range(self.endpoint.retries):
                answered = self._send_once(pending, version)
                outcomes += [(operation, outcome) for operation, outcome in answered if outcome != _BUSY]
                pending = [operation for operation, outcome in answered if outcome == _BUSY]
                if not pending:
                    break
                time.sleep(_FIRST_PAUSE * 2**attempt)
            else:
                raise Unreachable(f"{self.place}: {len(pending)} documents were rejected as busy on every attempt")
        return outcomes

    def _send_once(self, operations: list[Operation], version: int) -> Outcomes:
        body = b"".join(operation.lines(version) for operation in operations)
        headers = {"Content-Type": "application/x-ndjson"}
        answer = self.endpoint.request("POST", f"{self.path}/_bulk", content=body, headers=headers)
        if answer.status_code == _TOO_LARGE:
            if len(operations) == 1:
                return [(operations[0], summary(answer))]
            half = len(operations) // 2
            return self._send_once(operations[:half], version) + self._send_once(operations[half:], version)
        check_permitted(answer, self.place)
        if not answer.is_success:
            raise HeadraceError("SINK_FAILED", f"{self.place}: {summary(answer)}.")
        results = [result for item in answer.json()["items"] for result in item.values()]
        return list(zip(operations, map(self._outcome, results), strict=True))

    def _outcome(self, result: Mapping[str, Any]) -> str:
        status, error = result["status"], result.get("error")
        if error is None:
            # A delete of a missing document answers 404 without an error.
            return _WRITTEN
        why = f"{error['type']}: {error.get('reason')}"
        if status == 409:
            return _OVERTAKEN
        if status in BUSY or status >= FAILING or error["type"] == "cluster_block_exception":
            return _BUSY
        if status in (401, 403, 404):
            raise HeadraceError("SINK_REFUSED", f"{self.place}: {why}. Check the index and the user's permissions.")
        cause = error.get("caused_by", {}).get("reason")
        return why if cause is None else f"{why} ({cause})"

    def __repr__(self) -> str:
        username, password = self.endpoint.login or (None, None)
        what = {"id": str(self.id), "username": username, "password": password, "writers": self.writers}
        return call_text(to_opensearch, self.endpoint.shown, self.index, **what)


@stable
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

    ``id`` makes a document's id from columns in braces, flattened ones such as ``window_start`` too. Rows with the same
    id are versions of one document; the last one stays. A missing index is created with the server's default mapping.

    >>> to_opensearch("http://search:9200", "spend", id="{account}-{window_start}")
    hr.to_opensearch('http://search:9200', 'spend', id='{account}-{window_start}')
    """
    check_writers(writers)
    if (username is None) != (password is None):
        raise DefinitionError("LOGIN_INCOMPLETE", "to_opensearch: give both username= and password=, or neither.")
    login = None if username is None or password is None else (username, password)
    endpoint = parse_endpoint(url.rstrip("/"), login=login, timeout=_TIMEOUT, retries=_RETRIES)
    return OpenSearchSink(endpoint, index, parse_template(id), writers)


def _parts(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    ends = accumulate(len(operation.document or b"") for operation in operations)
    for _, part in groupby(zip(ends, operations, strict=True), lambda each: each[0] // _BYTES_AT_ONCE):
        yield [operation for _, operation in part]
