"""Kafka as Spark sees it: a stream of slices of partitions, dealt out exactly once; tasks read what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.connectors.base.caps import cap_of
from headrace.connectors.kafka.positions import Positions, Slice, Subscription, Topics, Unanswered, capped, slices
from headrace.errors import HeadraceError
from headrace.outages import OutageMarker

FORMAT = "headrace_kafka"
SLICES = "topic STRING, partition INT, first BIGINT, until BIGINT"
LARGEST_SLICE = 250_000
PATIENCE_SECONDS = 600.0
"""How long a run over what is there waits for brokers that do not answer."""


class KafkaSlices(DataSource):
    """Registered with Spark under its own name."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row for each slice."""
        return SLICES

    def streamReader(self, schema: Any) -> KafkaSliceReader:  # noqa: N802
        """The stream of slices."""
        return KafkaSliceReader(
            self.options["source"], Subscription.from_json(self.options["subscription"]), Path(self.options["caps"])
        )


class SlicePartition(InputPartition):
    """One slice for one task."""

    def __init__(self, piece: Slice) -> None:
        super().__init__((piece.topic, piece.partition, piece.first, piece.until))


class KafkaSliceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides how far each batch reads; Spark logs it before the batch runs."""

    def __init__(self, source: str, subscription: Subscription, caps: Path) -> None:
        self._source = source
        self._subscription = subscription
        self._caps = caps
        self._asked: Topics | None = None
        self._target: Positions | None = None

    @property
    def _topics(self) -> Topics:
        # Spark pickles the reader, and a client cannot be.
        if self._asked is None:
            self._asked = Topics(self._subscription)
        return self._asked

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asked": None}

    def _offset(self, positions: Positions) -> dict[str, Any]:
        return {"source": self._source, "positions": positions}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new flow begins."""
        return self._offset(self._patiently(Topics.initial))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now."""
        self._target = self._patiently(Topics.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads; as far as the last one while the brokers do not answer."""
        positions: Positions = start["positions"]

        def there(topics: Topics) -> Positions:
            latest = self._target if self._target is not None else topics.latest()
            if self._subscription.on_lost == "fail":
                self._refuse_lost(positions, latest)
            return latest

        if self._target is not None:
            # To say that there is nothing more would end a run over what is there.
            latest = self._patiently(there)
        else:
            try:
                latest = there(self._topics)
            except Unanswered as problem:
                self._away(problem)
                return start
            self._outage.end()
        return self._offset({**positions, **capped(positions, latest, cap_of(self._caps))})

    def _patiently(self, ask: Callable[[Topics], Positions]) -> Positions:
        """What the brokers say, when they are back."""
        asked = time.monotonic()
        while True:
            try:
                answer = ask(self._topics)
            except Unanswered as problem:
                self._away(problem)
                if time.monotonic() - asked > PATIENCE_SECONDS:
                    raise HeadraceError(
                        "SOURCE_UNREACHABLE",
                        f"kafka {self._subscription!r} has not answered for {PATIENCE_SECONDS:.0f} s: {problem}. Start "
                        "the brokers, then this run again: it goes on where it is.",
                    ) from None
                time.sleep(1)
            else:
                self._outage.end()
                return answer

    def _away(self, problem: Unanswered) -> None:
        self._outage.begin(str(problem))
        # A client that was there during the outage may go on saying that partitions have no leader.
        self._asked = None

    @property
    def _outage(self) -> OutageMarker:
        return OutageMarker(str(self._caps.parent.parent), f"source.{self._source}", f"kafka {self._subscription!r}")

    def _refuse_lost(self, positions: Positions, latest: Positions) -> None:
        first = self._topics.earliest([name for name in positions if name in latest])
        for name, position in positions.items():
            if name not in latest or not first[name] <= position <= latest[name]:
                there = f"offsets {first[name]} to {latest[name]}" if name in latest else "no such partition any more"
                raise HeadraceError(
                    "OFFSETS_LOST",
                    f"kafka {self._subscription!r}: the flow stands at offset {position} of {name}, the topic has "
                    f"{there}. Rows are gone before they were read, or the topic was made anew. Restore them, start "
                    "with a new checkpoint, or accept the loss with on_lost='count'.",
                )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task for each slice."""
        pieces = slices(start["positions"], end["positions"], largest=LARGEST_SLICE)
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Only what to read: the gate's task reads it."""
        yield partition.value
