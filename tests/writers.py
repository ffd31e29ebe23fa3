"""A writer of a sink, with its part of any batch."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.base.sink import BatchIdentity, WriterBatch, writer_name
from headrace.event_time.record import MarkedBatch


@dataclass(frozen=True, slots=True)
class Writer:
    """One writer of the main output of a flow."""

    flow: str
    number: int = 0
    epoch: int = 1

    @property
    def name(self) -> str:
        """What the sink's system knows it by."""
        return writer_name(self.flow, "main", self.number)

    def batch(
        self, generation: int, batch: int, last: int | None, *, token: str = "", changelog: bool = False
    ) -> WriterBatch:
        """Its part of a batch."""
        identity = BatchIdentity(
            self.flow, generation, batch, "main", self.flow, self.epoch, token, changelog=changelog
        )
        return WriterBatch(identity, self.number, None if last is None else MarkedBatch(last))
