"""Changelogs in front of steps that count every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import headrace as hr
from headrace.graph import Graph, SourceNode, StepNode
from headrace.node_id import NodeId
from headrace.operators.taken_back import check_events, is_chosen
from headrace.schemas import parse_ddl

CHANGES = "id BIGINT, change STRING, position STRING, at TIMESTAMP"
ORDERS = hr.debezium_changes("id BIGINT, amount DOUBLE", key="id")
HOURLY = hr.tumbling("hourly", size="1 hour", key="id").agg(n="count(*)").late(hr.drop())
ORDERS_NODE = NodeId("source", "orders")
SOURCE, STEP = "MapInArrow headrace.source.orders(id#1)", "MapInArrow headrace.step.current(id#1)"


@dataclass
class Frame:
    """As much of a DataFrame as is looked at."""

    schema: StructType
    plan: str

    @property
    def _jdf(self) -> Any:
        text = SimpleNamespace(toString=lambda: self.plan)
        return SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: text))


def _graph(tmp_path: Path, *, changes: bool = True) -> Graph:
    graph = Graph("shop", tmp_path, None)  # type: ignore[arg-type]
    graph.add_source(SourceNode("orders", {}, tmp_path, changes=changes))
    graph.add_step(StepNode(hr.materialize("current", key="id"), (ORDERS_NODE,), ("id", "change", "position")))
    graph.add_step(StepNode(HOURLY, (ORDERS_NODE,), ("id", "n")))
    return graph


def _check(graph: Graph, node: str, *, schema: str = CHANGES, plan: str = SOURCE) -> None:
    check_events(Frame(parse_ddl(schema), plan), graph, NodeId.parse(node), step="once")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("node", "plan", "giver"), [("source.orders", SOURCE, "source 'orders'"), ("step.current", STEP, "step 'current'")]
)
def test_a_changelog_is_refused_with_what_to_use_instead(tmp_path: Path, node: str, plan: str, giver: str) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        _check(_graph(tmp_path), node, plan=plan)
    assert str(raised.value).startswith(
        f"[CHANGELOG_NOT_UNDERSTOOD] step 'once' takes each row as something that happened, but {giver} gives a "
        "changelog, in which a row may take an earlier one back, so updates and deletes would count as new rows. Use "
        "hr.table_aggregate, hr.table_join or hr.materialize, or choose the changes that are meant before the step: "
        ".where(\"change = 'insert'\"), or .drop('change') if all are."
    )


@pytest.mark.parametrize("schema", ["id BIGINT, position STRING", "id BIGINT, change STRING", "id BIGINT, change INT"])
def test_rows_that_no_longer_say_what_they_change_are_taken(tmp_path: Path, schema: str) -> None:
    _check(_graph(tmp_path), "source.orders", schema=schema)


def test_columns_of_these_names_from_a_source_that_gives_no_changelog_are_taken(tmp_path: Path) -> None:
    _check(_graph(tmp_path, changes=False), "source.orders")


def test_columns_of_these_names_behind_a_step_that_takes_nothing_back_are_taken(tmp_path: Path) -> None:
    _check(_graph(tmp_path), "step.hourly")


def test_changes_that_the_author_has_chosen_are_taken(tmp_path: Path) -> None:
    _check(_graph(tmp_path), "source.orders", plan=f"Project [id#1]\n+- Filter (change#2 = insert)\n   +- {SOURCE}")


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("(change#12 = insert)", True),
        ("change#12 IN (insert,update_after)", True),
        ("((amount#3 > 0.0) AND NOT (change#12 = delete))", True),
        ("(exchange#12 = insert)", False),
        ("(net_change#12 > 0)", False),
        ("isnotnull(position#4)", False),
    ],
)
def test_only_a_condition_on_the_change_is_a_choice(condition: str, chosen: bool) -> None:
    assert is_chosen(f"SubqueryAlias rows\n+- Filter {condition}\n   +- {SOURCE}", "source.orders") is chosen


def test_a_choice_before_the_step_that_gives_the_changelog_does_not_count() -> None:
    plan = f"Project [id#1]\n+- {STEP}\n   +- Filter (change#2 = insert)\n      +- {SOURCE}"
    assert not is_chosen(plan, "step.current")
    assert is_chosen(plan, "source.orders")


def test_a_node_is_not_taken_for_another_whose_name_begins_alike() -> None:
    plan = "MapInArrow headrace.source.orders_eu(id#1)\n+- Filter (change#2 = insert)\n   +- " + SOURCE
    assert is_chosen(plan, "source.orders")


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


class Told(hr.KeyedProcess):
    """Tells each change."""

    def on_row(self, row: Any, context: Any) -> Any:
        yield {"what": row.change}


@pytest.mark.spark
@pytest.mark.parametrize("step", ["process", "pattern", "outbox"])
def test_steps_that_read_the_change_take_a_changelog(spark: SparkSession, tmp_path: Path, step: str) -> None:
    (tmp_path / "in").mkdir()
    step_of: dict[str, Any] = {
        "process": hr.process("told", Told, key="id", output="what STRING").late(hr.drop()),
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
