"""The HTTP sink: rows posted as JSON, at least once, each with an identity by which the receiver can deduplicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

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
from headrace.connectors.http.client import FAILING, Endpoint, check_permitted, parse_endpoint, summary
from headrace.durations import Duration, positive_microseconds, spoken
from headrace.errors import DefinitionError
from headrace.rendering import json_rows, json_values, refused_rows
from headrace.secrets import Secret, call_text
from headrace.stability import stable

if TYPE_CHECKING:
    import httpx


_DOUBTED = 32
"""After this many failures in a row, each with a single row, the server itself counts as failing."""


@dataclass(frozen=True, slots=True, repr=False)
class HttpSink:
    """An address to which rows are posted as JSON arrays."""

    guarantee: ClassVar[Guarantee] = "at_least_once"
    changelog_mode: ClassVar[ChangelogMode] = "log"
    endpoint: Endpoint
    identity: str
    batch: int
    writers: int | None

    @property
    def target(self) -> str:
        return f"http {self.endpoint.shown}"

    place = target

    @property
    def why(self) -> str:
        return (
            f"a batch that runs again is posted again; a receiver that keeps each {self.identity!r} once has every row "
            "once"
        )

    @property
    def partition_by(self) -> tuple[str, ...]:
        return (self.identity,)

    def check_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        kind = columns.get(self.identity)
        if kind is None or kind.is_nested():
            raise DefinitionError(
                "IDENTITY_MISSING",
                f"{self.place}: {self.identity!r} is not a scalar column. Existing columns: {', '.join(columns)}.",
            )

    def check_target(self, columns: Mapping[str, pl.DataType]) -> None:
        self.endpoint.request("HEAD")

    def prepare(self, columns: Mapping[str, pl.DataType], writers: Sequence[str], epoch: int) -> None:
        self.check_columns(columns)
        self.check_target(columns)

    def read_marks(self, parts: Sequence[WriterBatch]) -> Sequence[Mark | None]:
        return ()

    def deliver(self, rows: pl.DataFrame, part: WriterBatch) -> Delivered:
        """Post the rows; the same rows make the same requests."""
        no_identity = pl.col(self.identity).is_null()
        refused = [refused_rows(rows.filter(no_identity), "IDENTITY_NULL", f"{self.identity} is null")]
        for chunk in rows.filter(~no_identity).sort(self.identity, maintain_order=True).iter_slices(self.batch):
            refused.append(self._post_all_but_refused(chunk))
        left_out = pl.concat(refused)
        return Delivered(rows.height - left_out.height, refused=None if left_out.is_empty() else left_out)

    def _post_all_but_refused(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Post rows; find those that the server refuses by halving, and return them.

        Until the server has accepted something, a row at which it fails is only suspected, not refused.
        """
        endpoint, works = self.endpoint, rows.height == 1
        refused = [refused_rows(rows.clear(), "", "")]
        parts, doubted, failures = [rows], list[pl.DataFrame](), 0
        while parts:
            part = parts.pop()
            answer = self._post(part, endpoint)
            endpoint = replace(endpoint, retries=min(1, self.endpoint.retries))
            doubtful = answer.status_code == FAILING and not works
            if part.height > 1 and not answer.is_success:
                # Bad rows are often neighbours: shuffled, the rows that a doubtful server gets come from everywhere.
                mixed = part.sample(fraction=1, shuffle=True, seed=0) if doubtful else part
                half = mixed.height // 2
                parts += [mixed[half:], mixed[:half]]
                continue
            failures = failures + 1 if answer.status_code == FAILING else 0
            if failures >= (min(_DOUBTED, rows.height) if doubtful else _DOUBTED) and (doubtful or not parts):
                # It fails whatever it is given, so the rows are not the cause.
                raise Unreachable(f"{self.place}: {summary(answer)}")
            if doubtful:
                doubted.append(part)
                continue
            works, parts, doubted = True, parts + doubted, []
            if not answer.is_success:
                refused.append(refused_rows(part, f"HTTP_{answer.status_code}", summary(answer)))
        return pl.concat(refused)

    def _post(self, rows: pl.DataFrame, endpoint: Endpoint) -> httpx.Response:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": idempotency_key(rows[self.identity]),
            "Headrace-Identity": self.identity.encode("ascii", "xmlcharrefreplace").decode(),
        }
        answer = endpoint.request("POST", content=b"[" + b",".join(json_rows(rows)) + b"]", headers=headers)
        if not answer.is_success:
            check_permitted(answer, self.place)
        return answer

    def __repr__(self) -> str:
        endpoint = self.endpoint
        timeout, headers = spoken(round(endpoint.timeout * 1e6)), endpoint.shown_headers or None
        how = {"batch": self.batch, "headers": headers, "timeout": timeout, "retries": endpoint.retries}
        return call_text(to_http, endpoint.shown, identity=self.identity, **how, writers=self.writers)


@stable
def to_http(
    url: str,
    *,
    identity: str,
    batch: int = 500,
    headers: Mapping[str, str | Secret] | None = None,
    timeout: Duration = "10 seconds",
    retries: int = 5,
    writers: int | None = None,
) -> HttpSink:
    """Post rows as JSON arrays of up to ``batch`` rows, at least once.

    ``identity`` names the column that identifies each row for ever: a column of the data, or the source position
    (``_position``, declared in the source's schema). The header ``Headrace-Identity`` tells the receiver its name;
    ``Idempotency-Key`` is the same for the same rows. After a lost connection, 429 or 5xx a request is retried,
    ``retries`` times with growing pauses. A row that the server refuses (another 4xx, or 500 after all retries)
    becomes a dead letter; while the server is unreachable the flow waits.

    >>> to_http("https://shop/in", identity="id", headers={"Authorization": "Bearer hunter2"}, batch=100)
    hr.to_http('https://shop/in', identity='id', batch=100, headers={'Authorization': '***'})
    """
    check_writers(writers)
    for name, value, least in (("batch", batch, 1), ("retries", retries, 0)):
        if value < least:
            raise DefinitionError(f"{name.upper()}_INVALID", f"to_http: {name}={value} must be at least {least}.")
    seconds = positive_microseconds(timeout, argument="timeout") / 1e6
    return HttpSink(parse_endpoint(url, headers=headers, timeout=seconds, retries=retries), identity, batch, writers)


def idempotency_key(identities: pl.Series) -> str:
    """One key for a set of rows, whatever their order.

    >>> idempotency_key(pl.Series(["a", "b"])) == idempotency_key(pl.Series(["b", "a"]))
    True
    """
    return blake2b(b"\n".join(sorted(json_values(identities))), digest_size=16).hexdigest()
