"""A temporal join as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import polars as pl

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.corrections import check_late, refuse_late
from headrace.operators.joins.join_columns import InnerOrLeft, JoinKey, OnColumns, join_key
from headrace.operators.joins.temporal_join_by_arrival import TemporalJoinByArrival
from headrace.operators.joins.temporal_join_by_event_time import TemporalJoinByEventTime
from headrace.operators.joins.temporal_join_operator import TemporalLayout, VersionInput
from headrace.operators.process.life import Life, life_of
from headrace.operators.rows import Rows
from headrace.operators.step import Outputs, place
from headrace.operators.tables.changelog_input import WEEK, TombstoneRetention, tombstone_retention
from headrace.wheel.operator import Joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AsOfWhat = Literal["event_time", "arrival"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TemporalJoin:
    """A value that becomes an operator once ``late`` is chosen; by arrival nothing is late."""

    name: str
    on: JoinKey
    life: Life
    how: InnerOrLeft
    as_of: AsOfWhat
    versions_late: Lateness | None
    deleted: TombstoneRetention
    lateness: Lateness | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, under their names among the rows."""
        return self.on.left

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        if self.as_of == "arrival":
            refuse_late(self.name, lateness, "a join as of arrival, unlike one as of event time, has no late rows")
        check_late(f"step {self.name!r}", lateness)
        return replace(self, lateness=lateness)

    def __call__(self, rows: DataFrame, versions: DataFrame) -> DataFrame:
        """The rows, each with the version that was valid at its time."""
        return self.outputs(rows, versions).main

    def outputs(self, rows: DataFrame, versions: DataFrame) -> Outputs:
        """The joined rows and, beside them, late rows (``late``) and late versions (``late_right``)."""
        return place(self, self.bind, rows, versions, changelogs=(1,))

    def bind(
        self,
        schema: Mapping[str, pl.DataType],
        time: str,
        version_schema: Mapping[str, pl.DataType] | None = None,
        version_time: str | None = None,
    ) -> Joined:
        """The operator that runs over rows and versions of these schemas."""
        if version_schema is None or version_time is None:
            raise DefinitionError(
                "INPUT_MISSING", f"step {self.name!r} joins two frames, but got one. Call step(rows, versions)."
            )
        self.on.check(self.name, schema, version_schema)
        layout = TemporalLayout(
            self.on,
            Rows(self.name, self.on.left, time, dict(schema)),
            Rows(self.name, self.on.right, version_time, dict(version_schema)),
            retracts=self.takes_back,
        )
        second = VersionInput(layout, self.versions_late)
        operator: TemporalJoinByArrival | TemporalJoinByEventTime
        if self.as_of == "arrival":
            remembers = self._remembered.kept if layout.has_positions else 0
            operator = TemporalJoinByArrival(self.name, layout, self.how, self.life.ttl, second, remembers)
        else:
            operator = TemporalJoinByEventTime(
                self.name, layout, self.how, self.life.ttl, second, self._chosen(), self._corrects
            )
        _ = operator.output_schema  # names are checked here, before any data is read
        return operator

    def _chosen(self) -> Lateness:
        if self.lateness is None:
            raise DefinitionError(
                "LATE_NOT_CHOSEN",
                f"step {self.name!r} does not say what happens to late rows, so some would silently be lost. "
                "Add .late(hr.drop()), .late(hr.side_output()) or .late(hr.update_for('5 minutes')).",
            )
        return self.lateness

    @property
    def _remembered(self) -> TombstoneRetention:
        """As of arrival: a deletion is of use as long as a version before it could be."""
        return self.deleted if self.life.ttl is None else TombstoneRetention(self.life.ttl)

    @property
    def _corrects(self) -> int:
        return 0 if self.versions_late is None else self.versions_late.correctable

    @property
    def takes_back(self) -> bool:
        """Whether a late version may take back what a row was joined with, so that rows carry a ``change``."""
        return self._corrects > 0

    @property
    def previews(self) -> bool:
        """Whether rows are emitted that later ones replace."""
        return self.takes_back

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """What must stay the same for the state to stay valid; the time to live may change."""
        pairs = [list(pair) for pair in self.on.pairs]
        return {"kind": "temporal_join", "on": pairs, "as_of": self.as_of, "corrects": self.takes_back}

    @property
    def horizon(self) -> int:
        """A row waits for nothing but time."""
        return 0

    @property
    def retention(self) -> int:
        """InnerOrLeft long rows and versions are kept for corrections after time has passed them."""
        return max(self._corrects, 0 if self.lateness is None else self.lateness.correctable)

    @property
    def holds(self) -> str:
        """What the state holds and how long, in words and as a bound."""
        life = "for ever" if self.life.ttl is None else f"for {spoken(self.life.ttl)} of event time"
        keys = "keys" if self.life.ttl is None else f"keys with a version in {spoken(self.life.ttl)}"
        if self.as_of == "arrival":
            return (
                f"the latest version of each key, {life}; with positions also {self._remembered}; at most {keys}, "
                "deleted ones among them, 1,000,000 rows for a million; by arrival, so results may depend on batches"
            )
        back = f", and {spoken(self.retention)} longer for what comes late" if self.retention else ""
        lag = 10_000_000
        example = 1_000_000 + (1_000 * (self._corrects + lag) + 100 * (self.retention + lag)) // 1_000_000
        return (
            "rows until event time has passed them on both sides; of each key the version that is valid where event "
            f"time is and all later ones, each {life}{back}; at most {keys} + row rate x ({spoken(self._corrects)} + "
            f"lag) + version rate x ({spoken(self.retention)} + lag) rows, where lag is how far the slower input's "
            "watermark is behind the newest row; with a million keys, 1,000 rows/s, 100 versions/s and 10 seconds of "
            f"lag {example:,} rows"
        )

    def __repr__(self) -> str:
        said = f"{self.name!r}, on={self.on.as_written!r}, {self.life.text}"
        said += "" if self.how == "inner" else f", how={self.how!r}"
        said += "" if self.versions_late is None else f", versions_late={self.versions_late!r}"
        said += "" if self.as_of == "event_time" else f", as_of={self.as_of!r}{self.deleted.said}"
        late = "" if self.lateness is None else f".late({self.lateness!r})"
        return f"hr.temporal_join({said}){late}"


def temporal_join(
    name: str,
    *,
    on: OnColumns,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    how: InnerOrLeft = "inner",
    versions_late: Lateness | None = None,
    as_of: AsOfWhat = "event_time",
    keep_deleted: Duration | None = WEEK,
) -> TemporalJoin:
    """Each row with the version of its key that was valid at the row's event time.

    As of arrival a deleted key is remembered for ``ttl``, or with ``keep_forever`` for ``keep_deleted`` of event time
    (None: for ever), so that a change from before its deletion does not bring it back.

    >>> from headrace.event_time.lateness import drop, side_output
    >>> temporal_join("priced", on="item", ttl="30 days", versions_late=side_output()).late(drop())
    hr.temporal_join('priced', on='item', ttl='30 days', versions_late=hr.side_output()).late(hr.drop())
    """
    check_name("step", name)
    if how not in ("inner", "left"):
        raise DefinitionError(
            "HOW_UNKNOWN",
            f"step {name!r}: how={how!r} is not known. Use 'inner' (rows without a version do not leave) or 'left' "
            "(they leave with nulls).",
        )
    if as_of not in ("event_time", "arrival"):
        raise DefinitionError(
            "AS_OF_UNKNOWN",
            f"step {name!r}: as_of={as_of!r} is not known. Use 'event_time' (the version that was valid at the row's "
            "time) or 'arrival' (the latest one known when the row comes).",
        )
    if as_of == "event_time" and versions_late is None:
        raise DefinitionError(
            "VERSIONS_LATE_NOT_CHOSEN",
            f"step {name!r} does not say what happens to a version that comes after rows of its time have left. Add "
            "versions_late=hr.drop(), hr.side_output() or hr.update_for('1 hour').",
        )
    if as_of == "arrival" and versions_late is not None:
        raise DefinitionError(
            "LATE_WITHOUT_MEANING",
            f"step {name!r} joins as of arrival, where no version is late. Leave versions_late={versions_late!r} away.",
        )
    life, deleted = life_of(ttl, keep_forever, "event", "write"), tombstone_retention(keep_deleted)
    if deleted.said and not (as_of == "arrival" and keep_forever):
        raise DefinitionError(
            "KEEP_DELETED_WITHOUT_MEANING",
            f"step {name!r}: keep_deleted={keep_deleted!r} is for as_of='arrival' with keep_forever=True; otherwise a "
            "deletion is of use until event time has passed it, or as long as ttl= says. Leave it away.",
        )
    return TemporalJoin(
        name=name,
        on=join_key(on, step=name),
        life=life,
        how=how,
        as_of=as_of,
        versions_late=versions_late,
        deleted=deleted,
    )
