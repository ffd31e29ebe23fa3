"""Documents into an OpenSearch index by bulk requests, each with the version that its batch gives it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from headrace.connectors.base.sink import Unreachable
from headrace.connectors.http.client import Endpoint, check_permitted, said
from headrace.errors import HeadraceError

_BYTES_AT_ONCE = 5 << 20
_TOO_LARGE = 413
_FIRST_PAUSE = 0.1

Outcome = Literal["written", "overtaken", "busy"]


@dataclass(frozen=True, slots=True)
class Operation:
    """What is to be done with one document."""

    id: str
    document: bytes | None
    """None to delete it."""


@dataclass(slots=True)
class Tally:
    """What became of operations."""

    written: int
    overtaken: int
    """A later version stands there."""
    refused: list[tuple[Operation, str]]
    """Documents that the index cannot take, each with the reason."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """One version of documents for one index."""

    endpoint: Endpoint
    path: str
    place: str
    version: int

    def send(self, operations: Sequence[Operation]) -> Tally:
        """Send all operations, again those for which the server has no room now."""
        tally = Tally(0, 0, [])
        for part in self._parts(operations):
            pending = part
            for attempt in range(self.endpoint.retries):
                pending = self._send_once(pending, tally)
                if not pending:
                    break
                time.sleep(_FIRST_PAUSE * 2**attempt)
            else:
                raise Unreachable(f"{self.place}: {len(pending)} documents were put off again and again")
        return tally

    def _send_once(self, operations: list[Operation], tally: Tally) -> list[Operation]:
        body = b"".join(self._lines(operation) for operation in operations)
        answer = self.endpoint.request(
            "POST", f"{self.path}/_bulk", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        if answer.status_code == _TOO_LARGE:
            return self._send_halves(operations, answer, tally)
        check_permitted(answer, self.place)
        if not answer.is_success:
            raise HeadraceError("SINK_FAILED", f"{self.place}: {said(answer)}.")
        busy = []
        for operation, item in zip(operations, answer.json()["items"], strict=True):
            (result,) = item.values()
            match self._outcome(operation, result):
                case "written":
                    tally.written += 1
                case "overtaken":
                    tally.overtaken += 1
                case "busy":
                    busy.append(operation)
                case why:
                    tally.refused.append((operation, why))
        return busy

    def _send_halves(self, operations: list[Operation], answer: httpx.Response, tally: Tally) -> list[Operation]:
        if len(operations) == 1:
            tally.refused.append((operations[0], said(answer)))
            return []
        half = len(operations) // 2
        return [busy for part in (operations[:half], operations[half:]) for busy in self._send_once(part, tally)]

    def _outcome(self, operation: Operation, result: Mapping[str, Any]) -> Outcome | str:
        status, error = result["status"], result.get("error")
        if error is None:
            # A delete of what is not there answers 404 without an error.
            return "written"
        why = f"{error['type']}: {error.get('reason')}"
        if status == 409:
            return "overtaken"
        if status == 429 or status >= 500 or error["type"] == "cluster_block_exception":
            return "busy"
        if status in (401, 403, 404):
            raise HeadraceError("SINK_REFUSED", f"{self.place}: {why}. Check the index and the user's rights.")
        cause = error.get("caused_by", {}).get("reason")
        return why if cause is None else f"{why} ({cause})"

    def _lines(self, operation: Operation) -> bytes:
        about = {"_id": operation.id, "version": self.version, "version_type": "external_gte"}
        if operation.document is None:
            return json.dumps({"delete": about}).encode() + b"\n"
        return json.dumps({"index": about}).encode() + b"\n" + operation.document + b"\n"

    def _parts(self, operations: Sequence[Operation]) -> Iterator[list[Operation]]:
        part: list[Operation] = []
        size = 0
        for operation in operations:
            part.append(operation)
            size += 0 if operation.document is None else len(operation.document)
            if size >= _BYTES_AT_ONCE:
                yield part
                part, size = [], 0
        if part:
            yield part
