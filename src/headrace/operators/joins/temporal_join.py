"""The temporal join step: rows of one input with versions from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from headrace.changelog import POSITION
from headrace.durations import Duration, spoken
from headrace.errors import DefinitionError, check_choice
from headrace.event_time.lateness import Lateness
from headrace.expressions.operands import Schema
from headrace.operators.joins.join_columns import InnerOrLeft, JoinKey, OnColumns, join_key
from headrace.operators.joins.temporal_join_operator import TemporalJoinByArrival, TemporalJoinByEventTime
from headrace.operators.joins.temporal_versions import VersionInput
from headrace.operators.process.state import TtlConfig, check_ttl
from headrace.operators.rows import Rows
from headrace.operators.step import LateRows, Step
from headrace.operators.tables.changelog_input import WEEK, TombstoneRetention, tombstone_retention
from headrace.stability import stable
from headrace.wheel.operator import Joined

AsOf = Literal["event_time", "arrival"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TemporalJoin(Step):
    """A join with the versions of a second input; as of event time call ``.late()`` before use.

    Late rows go to the output ``late``, late versions to ``late_right``.
    """

    kind = "temporal_join"
    changelogs = (1,)
    inputs = ("rows", "versions")

    on: JoinKey
    ttl_config: TtlConfig
    how: InnerOrLeft
    as_of: AsOf
    versions_late: Lateness | None
    tombstones: TombstoneRetention

    def late(self, lateness: Lateness) -> Self:
        if self.as_of == "arrival":
            never = "a join as of arrival, unlike one as of event time, has no late rows"
            LateRows(never=never).check(self._label, lateness)
        return super().late(lateness)

    def bind(self, schema: Schema, time: str, version_schema: Schema, version_time: str) -> Joined:
        self.on.check(self.name, schema, version_schema)
        rows = Rows(self.name, self.on.left, time, dict(schema))
        versions = VersionInput(Rows(self.name, self.on.right, version_time, dict(version_schema)), self.versions_late)
        common = (self.name, rows, versions, self.on, self.how, self.ttl_config.ttl)
        operator: TemporalJoinByArrival | TemporalJoinByEventTime
        if self.as_of == "arrival":
            kept = self._arrival_tombstones.kept if POSITION in versions.change_columns else 0
            operator = TemporalJoinByArrival(*common, None, kept)
        else:
            operator = TemporalJoinByEventTime(*common, self._chosen_lateness())
        _ = operator.output_schema  # checks the column names before any data is read
        return operator

    @property
    def _arrival_tombstones(self) -> TombstoneRetention:
        """As of arrival a tombstone is needed as long as an older version could be valid."""
        return self.tombstones if self.ttl_config.ttl is None else TombstoneRetention(self.ttl_config.ttl)

    @property
    def _corrects_for(self) -> int:
        return 0 if self.versions_late is None else self.versions_late.correctable

    @property
    def retracts(self) -> bool:
        return self._corrects_for > 0

    previews = retracts

    @property
    def _identity(self) -> Mapping[str, object]:
        return {"on": self.on.as_written, "as_of": self.as_of, "corrects": self.retracts}

    @property
    def retention(self) -> int:
        return max(self._corrects_for, super().retention)

    @property
    def state_description(self) -> str:
        life = "for ever" if self.ttl_config.ttl is None else f"for {spoken(self.ttl_config.ttl)} of event time"
        keys = "keys" if self.ttl_config.ttl is None else f"keys with a version in {spoken(self.ttl_config.ttl)}"
        if self.as_of == "arrival":
            return (
                f"the latest version of each key, {life}; with positions also {self._arrival_tombstones}; at most "
                f"{keys}, deleted ones among them, 1,000,000 rows for a million; by arrival, so results may depend on "
                "batches"
            )
        longer = f", and {spoken(self.retention)} longer for late rows and versions" if self.retention else ""
        if self.versions_late is not None and self.versions_late.kind == "deliver":
            longer += "; which rows still meet a late version depends on batches"
        lag = 10_000_000
        example = 1_000_000 + (1_000 * (self._corrects_for + lag) + 100 * (self.retention + lag)) // 1_000_000
        return (
            "rows until event time has passed them on both sides; of each key the version that is valid at event time "
            f"and all later ones, each {life}{longer}; at most {keys} + row rate x ({spoken(self._corrects_for)} + "
            f"lag) + version rate x ({spoken(self.retention)} + lag) rows, where lag is how far the slower input's "
            "watermark is behind the newest row; with a million keys, 1,000 rows/s, 100 versions/s and 10 seconds of "
            f"lag {example:,} rows"
        )

    @property
    def _arguments(self) -> Mapping[str, object]:
        how = {} if self.how == "inner" else {"how": self.how}
        versions = {} if self.versions_late is None else {"versions_late": self.versions_late}
        as_of = {} if self.as_of == "event_time" else {"as_of": self.as_of, **self.tombstones.arguments}
        return {"on": self.on.as_written, **self.ttl_config.arguments, **how, **versions, **as_of}


@stable
def temporal_join(
    name: str,
    *,
    on: OnColumns,
    ttl: Duration | None = None,
    keep_forever: bool = False,
    how: InnerOrLeft = "inner",
    versions_late: Lateness | None = None,
    as_of: AsOf = "event_time",
    keep_deleted: Duration | None = WEEK,
) -> TemporalJoin:
    """Join each row with the version of its key that was valid at the row's event time.

    As of arrival it is the latest version that is known when the row arrives; a deleted key is then remembered for
    ``ttl``, or with ``keep_forever`` for ``keep_deleted``, so that an older change does not bring it back.

    >>> from headrace.event_time.lateness import drop, side_output
    >>> temporal_join("priced", on="item", ttl="30 days", versions_late=side_output()).late(drop())
    hr.temporal_join('priced', on='item', ttl='30 days', versions_late=hr.side_output()).late(hr.drop())
    """
    check_choice(InnerOrLeft, step=name, how=how)
    check_choice(AsOf, step=name, as_of=as_of)
    if as_of == "event_time" and versions_late is None:
        raise DefinitionError(
            "VERSIONS_LATE_NOT_CHOSEN",
            f"step {name!r} does not say what happens to a version that arrives after rows of its time were emitted. "
            "Add versions_late=hr.drop(), hr.side_output(), hr.deliver() (for rows still to come) or "
            "hr.update_for('1 hour').",
        )
    if as_of == "arrival" and versions_late is not None:
        raise DefinitionError(
            "LATE_WITHOUT_MEANING",
            f"step {name!r} joins as of arrival, where no version is late. Leave out versions_late={versions_late!r}.",
        )
    lifetime, tombstones = check_ttl(ttl, keep_forever, label=f"step {name!r}"), tombstone_retention(keep_deleted)
    if tombstones.arguments and not (as_of == "arrival" and keep_forever):
        raise DefinitionError(
            "KEEP_DELETED_WITHOUT_MEANING",
            f"step {name!r}: keep_deleted={keep_deleted!r} needs as_of='arrival' and keep_forever=True; otherwise a "
            "deleted key is remembered until event time has passed its deletion, or for ttl=. Leave it out.",
        )
    key = join_key(on, step=name)
    return TemporalJoin(
        name=name,
        key=key.left,
        on=key,
        ttl_config=lifetime,
        how=how,
        as_of=as_of,
        versions_late=versions_late,
        tombstones=tombstones,
    )
