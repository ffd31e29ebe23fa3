"""Changelogs in front of steps that count every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.graph import Graph, Origin, SourceNode, StepNode
from headrace.nodes import NodeId
from headrace.operators.changelog_guard import check_events, is_changelog, selects_changes

CHANGES = "id BIGINT, change STRING, position STRING, at TIMESTAMP"
ORDERS = hr.debezium_changes("id BIGINT, amount DOUBLE", key="id")
HOURLY = hr.tumbling("hourly", size="1 hour", key="id").agg(n="count(*)").late(hr.drop())
SOURCE, STEP = NodeId("source", "orders"), NodeId("step", "current")
Shape = Callable[[DataFrame, SparkSession], DataFrame]


def _graph(tmp_path: Path, *, changes: bool = True) -> Graph:
    graph = Graph("shop", tmp_path, None)  # type: ignore[arg-type]
    graph.add_source(SourceNode("orders", {}, Mock(), changes=changes))
    graph.add_step(StepNode(hr.materialize("current", key="id"), (SOURCE,), ("id", "change", "position")))
    graph.add_step(StepNode(HOURLY, (SOURCE,), ("id", "n")))
    return graph


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _from(graph: Graph, rows: DataFrame, *nodes: NodeId, schema: str = CHANGES) -> DataFrame:
    """Rows as a source or step gives them, behind those that it reads."""
    frame = rows.mapInArrow(_same, schema)
    behind = graph.nodes_behind(rows) | set(nodes)
    return graph.register_frame(frame, Origin(frame, lambda batches, task: iter(()), behind))


@pytest.mark.spark
@pytest.mark.parametrize(("node", "giver"), [(SOURCE, "source 'orders'"), (STEP, "step 'current'")])
def test_a_changelog_is_refused_with_what_to_use_instead(
    tmp_path: Path, spark: SparkSession, node: NodeId, giver: str
) -> None:
    graph = _graph(tmp_path)
    with pytest.raises(hr.DefinitionError) as raised:
        check_events(_from(graph, spark.range(1), node), graph, node, step="once")
    assert str(raised.value).startswith(
        f"[CHANGELOG_NOT_UNDERSTOOD] step 'once' treats each row as a separate event, but {giver} gives a "
        "changelog, in which a row may retract an earlier one, so updates and deletes would count as new rows. Use "
        "hr.table_aggregate, hr.table_join or hr.materialize, or select the changes that are wanted before the step: "
        ".where(\"change = 'insert'\"), or .drop('change') if all are."
    )


@pytest.mark.spark
@pytest.mark.parametrize("schema", ["id BIGINT, position STRING", "id BIGINT, change STRING", "id BIGINT, change INT"])
def test_rows_that_no_longer_say_what_they_change_are_taken(tmp_path: Path, spark: SparkSession, schema: str) -> None:
    graph = _graph(tmp_path)
    check_events(_from(graph, spark.range(1), SOURCE, schema=schema), graph, SOURCE, step="once")


@pytest.mark.spark
def test_columns_of_these_names_from_a_source_that_gives_no_changelog_are_taken(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph = _graph(tmp_path, changes=False)
    check_events(_from(graph, spark.range(1), SOURCE), graph, SOURCE, step="once")


@pytest.mark.spark
def test_columns_of_these_names_behind_a_step_that_takes_nothing_back_are_taken(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph, hourly = _graph(tmp_path), NodeId("step", "hourly")
    check_events(_from(graph, spark.range(1), hourly), graph, hourly, step="once")


def _viewed(frame: DataFrame, name: str) -> str:
    frame.createOrReplaceTempView(name)
    return name


def _other(spark: SparkSession) -> DataFrame:
    """A table that has a column of the same name."""
    return spark.createDataFrame([(1, "insert")], "other BIGINT, change STRING")


SELECTIONS: dict[str, Shape] = {
    "equal": lambda rows, spark: rows.where("change = 'insert'"),
    "in": lambda rows, spark: rows.where("change IN ('insert', 'update_after')"),
    "among others": lambda rows, spark: rows.where("id > 0 AND NOT change = 'delete'"),
    "before more columns": lambda rows, spark: rows.where("change = 'insert'").withColumn("twice", F.col("id") * 2),
    "under another name": lambda rows, spark: rows.withColumn("what", F.upper("change")).where("what = 'INSERT'"),
    "in SQL": lambda rows, spark: spark.sql(f"SELECT * FROM {_viewed(rows, 'one')} WHERE change = 'insert'"),
    "behind a CTE": lambda rows, spark: spark.sql(
        f"WITH all AS (SELECT * FROM {_viewed(rows, 'two')}) SELECT * FROM all WHERE change = 'insert'"
    ),
    "in a CTE": lambda rows, spark: spark.sql(
        f"WITH some AS (SELECT * FROM {_viewed(rows, 'three')} WHERE change = 'insert') SELECT * FROM some"
    ),
    "both of a union": lambda rows, spark: rows.where("change = 'insert'").union(rows.where("change = 'delete'")),
    "behind a union": lambda rows, spark: rows.where("id > 1").union(rows).where("change = 'insert'"),
    "behind a join": lambda rows, spark: rows.join(_other(spark), F.expr("id = other")).where(
        rows["change"] == "insert"
    ),
    "behind a function": lambda rows, spark: rows.mapInArrow(_same, rows.schema).where("change = 'insert'"),
    "before a function": lambda rows, spark: rows.where("change = 'insert'").mapInArrow(_same, rows.schema),
}
NO_SELECTIONS: dict[str, Shape] = {
    "nothing": lambda rows, spark: rows,
    "another column": lambda rows, spark: rows.where("position IS NOT NULL"),
    "a literal": lambda rows, spark: rows.where("position = 'change' OR 'change' = position"),
    "a column of a similar name": lambda rows, spark: rows.withColumn("exchange", F.lit(1)).where("exchange = 1"),
    "a column made by the user": lambda rows, spark: rows.withColumn("change", F.lit("insert")).where(
        "change = 'insert'"
    ),
    "another table's": lambda rows, spark: rows.join(_other(spark).where("change = 'insert'"), F.expr("id = other")),
    "another table's, joined": lambda rows, spark: rows.join(other := _other(spark), F.expr("id = other")).where(
        other["change"] == "insert"
    ),
    "one of a union": lambda rows, spark: rows.union(rows.where("change = 'insert'")),
    "a struct's field": lambda rows, spark: rows.withColumn("s", F.struct(F.lit(1).alias("change"))).where(
        "s.change = 1"
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("shape", "selected"),
    [(shape, True) for shape in SELECTIONS.values()] + [(shape, False) for shape in NO_SELECTIONS.values()],
    ids=[*SELECTIONS, *NO_SELECTIONS],
)
def test_only_a_condition_on_the_nodes_own_change_selects(
    tmp_path: Path, spark: SparkSession, shape: Shape, selected: bool
) -> None:
    graph = _graph(tmp_path)
    assert selects_changes(shape(_from(graph, spark.range(1), SOURCE), spark), graph, SOURCE) is selected


@pytest.mark.spark
def test_a_selection_before_the_step_that_gives_the_changelog_does_not_count(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph = _graph(tmp_path)
    rows = _from(graph, spark.range(1), SOURCE).where("change = 'insert'")
    current = _from(graph, rows, STEP).select("id", "change")
    assert not selects_changes(current, graph, STEP)
    assert selects_changes(current, graph, SOURCE)


@pytest.mark.spark
def test_a_node_is_not_taken_for_another_whose_name_begins_alike(tmp_path: Path, spark: SparkSession) -> None:
    graph = _graph(tmp_path)
    rows = _from(graph, spark.range(1), SOURCE).where("change = 'insert'")
    beyond = _from(graph, rows, NodeId("step", "orders_eu"))
    assert selects_changes(beyond, graph, SOURCE)
    assert not selects_changes(beyond, graph, NodeId("step", "orders_eu"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "shape",
    [
        lambda rows, spark: rows.alias("a").join(rows.alias("b"), F.expr("a.id = b.id")),
        lambda rows, spark: rows.union(rows.where("id > 1")),
        lambda rows, spark: spark.sql(f"WITH w AS (SELECT * FROM {_viewed(rows, 'four')}) SELECT * FROM w, w AS v"),
        lambda rows, spark: rows.mapInArrow(_same, rows.schema).select("id"),
    ],
    ids=["self join", "union", "CTE read twice", "the user's own function"],
)
def test_a_frame_knows_its_nodes_whatever_the_user_makes_of_it(
    tmp_path: Path, spark: SparkSession, shape: Shape
) -> None:
    graph = _graph(tmp_path)
    rows = _from(graph, _from(graph, spark.range(1), SOURCE), STEP)
    assert graph.nodes_in(shape(rows, spark)) == (("orders",), ("current",))
    assert graph.nodes_in(spark.range(1).withColumn("headrace.source.orders", F.lit(1))) == ((), ())


CHANGELOGS: dict[str, Shape] = {
    "as it is": lambda rows, spark: rows,
    "some columns and rows": lambda rows, spark: rows.where("id > 0").select("change", "id"),
    "its change computed": lambda rows, spark: rows.withColumn("change", F.lower("change")),
    "behind a function": lambda rows, spark: rows.mapInArrow(_same, rows.schema),
    "united": lambda rows, spark: rows.where("id > 1").union(rows.where("id < 1")),
    "renamed back": lambda rows, spark: rows.withColumnRenamed("change", "kind").withColumnRenamed("kind", "change"),
}
NO_CHANGELOGS: dict[str, Shape] = {
    "without its change": lambda rows, spark: rows.drop("change"),
    "its change renamed": lambda rows, spark: rows.withColumnRenamed("change", "kind"),
    "a column of the author's": lambda rows, spark: rows.withColumn("change", F.col("id") - 1),
    "a column of the author's beside it": lambda rows, spark: rows.selectExpr("change AS kind", "id AS change"),
    "a function's column": lambda rows, spark: rows.drop("change").mapInArrow(_same, rows.schema),
    "another table's": lambda rows, spark: rows.drop("change").join(_other(spark), F.expr("id = other")),
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("shape", "expected"),
    [(shape, True) for shape in CHANGELOGS.values()] + [(shape, False) for shape in NO_CHANGELOGS.values()],
    ids=[*CHANGELOGS, *NO_CHANGELOGS],
)
def test_rows_are_a_changelog_if_their_change_is_that_of_one(
    tmp_path: Path, spark: SparkSession, shape: Shape, expected: bool
) -> None:
    graph = _graph(tmp_path)
    assert is_changelog(shape(_from(graph, spark.range(1), SOURCE), spark), graph) is expected


@pytest.mark.spark
def test_the_last_step_decides_whether_its_rows_are_a_changelog(tmp_path: Path, spark: SparkSession) -> None:
    graph = _graph(tmp_path, changes=False)
    events = _from(graph, spark.range(1), SOURCE)
    current = _from(graph, events, STEP)
    counted = _from(graph, current, NodeId("step", "hourly"))
    assert [is_changelog(frame, graph) for frame in (events, current, counted)] == [False, True, False]


@pytest.mark.spark
@pytest.mark.parametrize("chosen", [None, "change = 'insert'", "amount > 0", "view", "dropped", "renamed", "enriched"])
def test_a_changelog_into_windows_is_an_error_unless_its_changes_are_chosen(
    spark: SparkSession, tmp_path: Path, chosen: str | None
) -> None:
    (tmp_path / "in").mkdir()

    def shaped(frame: DataFrame) -> DataFrame:
        match chosen:
            case None:
                return frame
            case "view":
                frame.createOrReplaceTempView("orders_changes")
                return spark.sql("SELECT * FROM orders_changes WHERE change IN ('insert', 'update_after')")
            case "dropped":
                return frame.drop("change")
            case "renamed":
                return frame.withColumnRenamed("change", "what")
            case "enriched":
                return frame.where("change = 'insert'").withColumn("twice", frame["amount"] * 2)
        return frame.where(chosen)

    def orders(spark: SparkSession) -> None:
        changes = hr.read_files(spark, tmp_path / "in", format="json", schema=ORDERS, name="orders")
        counts = HOURLY(shaped(changes.transform(hr.event_time("committed_at"))))
        hr.write("counts", counts, hr.to_files(tmp_path / "out"))

    define = hr.pipeline(name="shop")(orders).define
    if chosen in (None, "amount > 0"):
        with pytest.raises(hr.DefinitionError, match=r"^\[CHANGELOG_NOT_UNDERSTOOD\] step 'hourly' .*source 'orders'"):
            define(spark, tmp_path / "checkpoint")
    else:
        define(spark, tmp_path / "checkpoint")


@pytest.mark.spark
@pytest.mark.parametrize("chosen", [False, True])
def test_a_current_table_into_windows_is_an_error_unless_its_changes_are_chosen(
    spark: SparkSession, tmp_path: Path, chosen: bool
) -> None:
    (tmp_path / "in").mkdir()

    def orders(spark: SparkSession) -> None:
        changes = hr.read_files(spark, tmp_path / "in", format="json", schema=ORDERS, name="orders")
        current = changes.transform(hr.event_time("committed_at")).transform(hr.materialize("current", key="id"))
        counts = HOURLY(current.where("change = 'insert'") if chosen else current)
        hr.write("counts", counts, hr.to_files(tmp_path / "out"))

    define = hr.pipeline(name="shop")(orders).define
    if chosen:
        define(spark, tmp_path / "checkpoint")
    else:
        with pytest.raises(hr.DefinitionError, match=r"^\[CHANGELOG_NOT_UNDERSTOOD\] step 'hourly' .*step 'current'"):
            define(spark, tmp_path / "checkpoint")


class Echo(hr.KeyedProcess):
    """Tells each change."""

    def on_row(self, row: Any, context: Any) -> Any:
        yield {"what": row.change}


@pytest.mark.spark
@pytest.mark.parametrize("step", ["process", "pattern", "outbox"])
def test_steps_that_read_the_change_take_a_changelog(spark: SparkSession, tmp_path: Path, step: str) -> None:
    (tmp_path / "in").mkdir()
    step_of: dict[str, Any] = {
        "process": hr.process("echo", Echo, key="id", output="what STRING").late(hr.drop()),
        "pattern": hr.pattern("gone", key="id")
        .begin("made", "change = 'insert'")
        .followed_by("gone", "change = 'delete'")
        .within("1 hour")
        .select(made_at="made.committed_at")
        .late(hr.drop()),
        "outbox": hr.outbox("messages", key="id", payload="amount"),
    }
    schema = hr.debezium_changes("id BIGINT, amount STRING", key="id")

    def orders(spark: SparkSession) -> None:
        changes = hr.read_files(spark, tmp_path / "in", format="json", schema=schema, name="orders")
        read = step_of[step](changes.transform(hr.event_time("committed_at")))
        hr.write("read", read, hr.to_files(tmp_path / "out"))

    hr.pipeline(name="shop")(orders).define(spark, tmp_path / "checkpoint")
