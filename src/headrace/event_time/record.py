"""The batch record: everything a batch depends on besides its rows, logged before its first task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from headrace.errors import HeadraceError
from headrace.event_time.strategy import BEGINNING

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Edge:
    """The time bounds of a step's input in one batch.

    A row is on time when its time is at least ``late``; the step fires everything due up to ``fire``, and has fired
    everything up to ``before`` in earlier batches. ``clock`` is the batch's processing time, ``batch`` its number.
    """

    late: int
    fire: int
    before: int = BEGINNING
    clock: int = 0
    batch: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What was decided for a batch before it ran; a re-run reads it back and gives the same rows.

    >>> record = BatchRecord(3, 0, {"payments": 5}, {"hourly": Edge(5, 5)}, {"hourly": (1, 2)}, drain=False)
    >>> BatchRecord.from_json(record.to_json()) == record
    True
    """

    batch: int
    clock: int
    watermarks: Mapping[str, int]
    edges: Mapping[str, Edge]
    wake: Mapping[str, tuple[int, ...]]
    """Key groups of each step in which something is due, so they are called even without rows."""
    drain: bool
    generation: int = 0
    """Sinks' marks are compared by (flow, generation, batch)."""
    writers: Mapping[str, int] = field(default_factory=dict)
    """Among how many writers the rows of each sink are dealt out."""
    epoch: int = 0
    """The lease of the driver that decided."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """The version of its small table that each step reads."""

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchRecord:
        """The record from its JSON."""
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise HeadraceError(
                "RECORD_FORMAT_UNKNOWN",
                f"the checkpoint's log has format {raw['format']}, this version of Headrace reads format {FORMAT}. "
                "Use the version that wrote it.",
            )
        return cls(
            raw["batch"],
            raw["clock"],
            raw["watermarks"],
            {step: Edge(**edge) for step, edge in raw["edges"].items()},
            {step: tuple(groups) for step, groups in raw["wake"].items()},
            raw["drain"],
            raw["generation"],
            raw["writers"],
            raw["epoch"],
            raw.get("tables", {}),
        )
