"""What an author's own PySpark cannot do with a stream: compute over all its rows, or give another answer in a re-run.

A plan runs once for each batch. Spark's own aggregation would aggregate the rows of a batch, and a random number would
be another one when a batch runs again after a crash. Spark's own streaming refuses less: here each node that sees rows
of a source must be known to take them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import DefinitionError
from headrace.plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_BY_ROW = frozenset(
    {
        "CollectMetrics",
        "Expand",
        "Filter",
        "Generate",
        "LateralJoin",
        "MapInArrow",
        "MapInPandas",
        "PipeOperator",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
"""Nodes that make the same of a row whichever batch it comes in."""

_AGGREGATE = "a window (hr.tumbling, hr.session, ...), hr.global_window or hr.table_aggregate"
_KEYED = "hr.process, or a window with an aggregate of your own"
_DEDUPLICATE = "hr.deduplicate"
_RANK = "hr.sliding, hr.process or hr.pattern"
_ORDER = "hr.process, which gets the rows of a key in the order of event time; or sort where the results are read"
_LIMIT = "where(...) to choose rows, or limit where the results are read"
_SHARE = "a hash of the row's own columns, as where('pmod(hash(id), 10) = 0')"
_POSITION = "the column _position of the source: declare it in the schema as _position STRING"
_TWO_STREAMS = "hr.interval_join, hr.window_join, hr.temporal_join or hr.table_join"
INSTEAD = {
    "Aggregate": ("groupBy, agg, or another aggregation", _AGGREGATE),
    "AttachDistributedSequence": ("zipWithIndex", _POSITION),
    "AsOfJoin": ("an as-of join", "hr.temporal_join"),
    "Deduplicate": ("distinct or dropDuplicates", _DEDUPLICATE),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _DEDUPLICATE),
    "Distinct": ("distinct", _DEDUPLICATE),
    "Except": ("subtract or exceptAll", _TWO_STREAMS),
    "FlatMapCoGroupsInArrow": ("cogroup(...).applyInArrow", f"{_TWO_STREAMS}, or hr.process"),
    "FlatMapCoGroupsInPandas": ("cogroup(...).applyInPandas", f"{_TWO_STREAMS}, or hr.process"),
    "FlatMapGroupsInArrow": ("groupBy(...).applyInArrow", _KEYED),
    "FlatMapGroupsInPandas": ("groupBy(...).applyInPandas", _KEYED),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", "hr.process"),
    "GlobalLimit": ("limit", _LIMIT),
    "Intersect": ("intersect", _TWO_STREAMS),
    "Join": ("a join of two streams", _TWO_STREAMS),
    "LocalLimit": ("limit", _LIMIT),
    "Offset": ("offset", _LIMIT),
    "Sample": ("sample", _SHARE),
    "Sort": ("orderBy, sort, sortWithinPartitions or randomSplit", f"{_ORDER}. For a random part use {_SHARE}"),
    "Tail": ("tail", _LIMIT),
    "TransformWithStateInPySpark": ("transformWithState", "hr.process"),
    "Window": ("a window function", _RANK),
}
"""What an author wrote to get a node that sees more than one row, and what to use instead."""

_HASH = "a hash of the row's own columns, as hash(id) or sha2(id, 256)"
REPEATABLE = {
    "CurrentTime": "date_format(current_timestamp(), 'HH:mm:ss')",
    "InputFileBlockLength": _POSITION,
    "InputFileBlockStart": _POSITION,
    "InputFileName": _POSITION,
    "MonotonicallyIncreasingID": _POSITION,
    "PythonUDF": "hr.lookup to ask a service; or leave out asNondeterministic() if a row always gets the same answer",
    "PythonUDTF": "asDeterministic() if a row always gets the same rows",
    "Rand": _HASH,
    "RandStr": _HASH,
    "Randn": _HASH,
    "Shuffle": "sort_array(...)",
    "SparkPartitionID": _POSITION,
    "Uniform": _HASH,
    "Uuid": _HASH,
}
"""What to use instead of a function that gives another answer in a re-run."""
_MOMENTS = {"now": "current_timestamp()", "today": "current_date()"}
_MOMENTS |= {"yesterday": "date_sub(current_date(), 1)", "tomorrow": "date_add(current_date(), 1)"}
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_READS_TIMES = frozenset({"Cast", "ParseToDate", "ParseToTimestamp"})

_STREAM_LEFT = frozenset({"RightOuter", "FullOuter"})
_STREAM_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})


@dataclass(frozen=True, slots=True)
class UnsupportedOperations:
    """Refuses what an author's PySpark cannot do between the streams that it gets and the one that reads its rows."""

    reader: str
    """Which step or flow reads the rows."""
    is_stream: Callable[[Plan], bool]
    """Whether a node gives the rows of a stream, so that nothing of the author's lies below."""
    position: str = _POSITION
    """What tells rows apart by where they came from."""

    def check(self, frame: DataFrame) -> None:
        """Refuse the first operation in a frame's plan that is not supported."""
        self._reads_stream(Plan.of(frame, inlined=True))

    def _reads_stream(self, plan: Plan) -> bool:
        if self.is_stream(plan):
            return True
        if any(self._reads_stream(each) for each in plan.subqueries):
            raise self._stateful(plan, "a subquery of a stream", _TWO_STREAMS)
        self._check_functions(plan)
        inputs = [self._reads_stream(each) for each in plan.children]
        if any(inputs):
            self._check_operator(plan, inputs)
        return any(inputs)

    def _check_operator(self, plan: Plan, inputs: Sequence[bool]) -> None:
        if plan.kind == "Join" and not all(inputs):
            kind = str(plan.java.joinType())
            if (kind in _STREAM_LEFT) if inputs[0] else (kind not in _STREAM_RIGHT):
                raise self._repeats(f"a {kind} join", "an inner join, or a left join with the stream on the left")
        elif plan.kind == "Union" and not all(inputs):
            raise self._repeats("a union", "a source for the table's rows, as hr.read_files, and a flow of its own")
        elif plan.kind not in ROW_BY_ROW:
            wrote, instead = INSTEAD.get(plan.kind, ("an operation", "hr.process"))
            raise self._stateful(plan, wrote, instead)

    def _check_functions(self, plan: Plan) -> None:
        for each in plan.expressions:
            unrepeatable = not each.is_repeatable and all(inner.is_repeatable for inner in each.children)
            if unrepeatable or each.kind == "CurrentTime":
                instead = REPEATABLE.get(each.kind, "an expression of the row's own columns")
                raise self._unrepeatable(each, self.position if instead == _POSITION else instead)
            if each.kind == "AesEncrypt" and _has_random_vector(each):
                raise self._unrepeatable(each, "aes_encrypt with a vector of your own, or mode 'ECB'")
            if each.kind in _READS_TIMES and (word := _moment(each)) is not None:
                raise self._unrepeatable(each, _MOMENTS[word])

    def _stateful(self, plan: Plan, wrote: str, instead: str) -> DefinitionError:
        return DefinitionError(
            "SPARK_STATEFUL",
            f"{self.reader}: {wrote} needs more than one row of a stream, but Spark would see the rows of one "
            f"batch only, and the result would depend on where batches begin. Use {instead}. In Spark's plan: "
            f"{plan.text}",
        )

    def _repeats(self, what: str, instead: str) -> DefinitionError:
        return DefinitionError(
            "STATIC_ROWS_REPEATED",
            f"{self.reader}: {what} of a stream and a static table gives rows of the table by themselves, so "
            f"they would come again in each batch. Use {instead}.",
        )

    def _unrepeatable(self, expression: Plan, instead: str) -> DefinitionError:
        return DefinitionError(
            "SPARK_NOT_REPEATABLE",
            f"{self.reader}: {expression.text} gives another answer when a batch runs again after a crash, so "
            f"sinks could get two versions of a row. Use {instead}.",
        )


def _moment(expression: Plan) -> str | None:
    """The word, as 'now', that becomes the time at which a batch is planned when it is read as a date or timestamp."""
    word = (_literal(expression.children[0]) or "").strip().lower()
    return word if word in _MOMENTS and expression.java.dataType().typeName() in _TIMES else None


def _has_random_vector(encryption: Plan) -> bool:
    """Whether ``aes_encrypt`` draws a vector, which Spark does not count as an answer that changes."""
    _, _, mode, _, vector, _ = encryption.children
    return (_literal(mode) or "").upper() != "ECB" and _literal(vector) == ""


def _literal(expression: Plan) -> str | None:
    """The text of a literal, also of one that is cast."""
    while expression.kind == "Cast":
        [expression] = expression.children
    return str(expression.java.value()) if expression.kind == "Literal" else None
