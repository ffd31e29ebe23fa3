"""A temporal join as an author says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import polars as pl

from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.graph import check_name
from headrace.operators.joins.join_columns import InnerOrLeft, JoinKey, OnColumns, join_key
from headrace.operators.joins.temporal_join_by_arrival import TemporalJoinByArrival
from headrace.operators.joins.temporal_join_by_event_time import TemporalJoinByEventTime
from headrace.operators.joins.temporal_join_operator import TemporalLayout, VersionInput
from headrace.operators.process.state import TtlConfig, ttl_config
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step
from headrace.operators.tables.changelog_input import WEEK, TombstoneRetention, tombstone_retention
from headrace.wheel.operator import Joined

AsOfWhat = Literal["event_time", "arrival"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TemporalJoin(Step):
    """A join with the versions of a second input; as of event time call ``.late()`` before use.

    Late rows leave by ``late``, late versions by ``late_right``.
    """

    kind = "temporal_join"
    changelogs = (1,)

    on: JoinKey
    life: TtlConfig
    how: InnerOrLeft
    as_of: AsOfWhat
    versions_late: Lateness | None
    deleted: TombstoneRetention

    def late(self, lateness: Lateness) -> Self:
        """Choose what happens to late rows; there is no default."""
        if self.as_of == "arrival":
            LateRows(never="a join as of arrival, unlike one as of event time, has no late rows").check(
                self._label, lateness
            )
        return super().late(lateness)

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
            retracts=self.retracts,
        )
        second = VersionInput(layout, self.versions_late)
        operator: TemporalJoinByArrival | TemporalJoinByEventTime
        if self.as_of == "arrival":
            remembers = self._remembered.kept if layout.has_positions else 0
            operator = TemporalJoinByArrival(self.name, layout, self.how, self.life.ttl, second, remembers)
        else:
            operator = TemporalJoinByEventTime(
                self.name, layout, self.how, self.life.ttl, second, self._chosen_lateness(), self._corrects
            )
        _ = operator.output_schema  # names are checked here, before any data is read
        return operator

    @property
    def _remembered(self) -> TombstoneRetention:
        """As of arrival: a deletion is of use as long as a version before it could be."""
        return self.deleted if self.life.ttl is None else TombstoneRetention(self.life.ttl)

    @property
    def _corrects(self) -> int:
        return 0 if self.versions_late is None else self.versions_late.correctable

    @property
    def retracts(self) -> bool:
        """Whether a late version may retract what a row was joined with, so that rows carry a ``change``."""
        return self._corrects > 0

    @property
    def previews(self) -> bool:
        """Whether rows are emitted that later ones replace."""
        return self.retracts

    @property
    def _identity(self) -> Mapping[str, object]:
        pairs = [list(pair) for pair in self.on.pairs]
        return {"on": pairs, "as_of": self.as_of, "corrects": self.retracts}

    @property
    def retention(self) -> int:
        """InnerOrLeft long rows and versions are kept for corrections after time has passed them."""
        return max(self._corrects, super().retention)

    @property
    def state_description(self) -> str:
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

    @property
    def _arguments(self) -> Mapping[str, object]:
        how = {} if self.how == "inner" else {"how": self.how}
        versions = {} if self.versions_late is None else {"versions_late": self.versions_late}
        as_of = {} if self.as_of == "event_time" else {"as_of": self.as_of, **self.deleted.arguments}
        return {"on": self.on.as_written, **self.life.arguments, **how, **versions, **as_of}


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
    life, deleted = ttl_config(ttl, keep_forever, "event", "write"), tombstone_retention(keep_deleted)
    if deleted.arguments and not (as_of == "arrival" and keep_forever):
        raise DefinitionError(
            "KEEP_DELETED_WITHOUT_MEANING",
            f"step {name!r}: keep_deleted={keep_deleted!r} is for as_of='arrival' with keep_forever=True; otherwise a "
            "deletion is of use until event time has passed it, or as long as ttl= says. Leave it away.",
        )
    columns = join_key(on, step=name)
    return TemporalJoin(
        name=name,
        key=columns.left,
        on=columns,
        life=life,
        how=how,
        as_of=as_of,
        versions_late=versions_late,
        deleted=deleted,
    )
