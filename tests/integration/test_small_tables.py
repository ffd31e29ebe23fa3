"""Small tables in a real PostgreSQL and a real Delta Lake, joined in a flow while they change or are away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.connectors.servers import running
from headrace.errors import HeadraceError
from headrace.observe import history
from headrace.observe.history import TableVersion
from headrace.services.service import Service

pytestmark = pytest.mark.spark

Run = Callable[[Any], list[tuple[Any, ...]]]


@pytest.fixture
def joined(spark: SparkSession, tmp_path: Path) -> Run:
    """Joins one more order of each of three items with a table, and gives the rows that this batch wrote."""
    landing = tmp_path / "in"
    landing.mkdir()
    runs: list[int] = []

    def run(table: Any) -> list[tuple[Any, ...]]:
        priced = hr.broadcast_join("prices", table, on="item", refresh="1 microsecond", how="left")

        @hr.pipeline
        def shop(spark: SparkSession) -> None:
            orders = hr.read_files(spark, landing, format="json", schema="n INT, item STRING", name="orders")
            hr.write("priced", priced(orders), hr.to_files(tmp_path / "out"))

        runs.append(len(runs))
        lines = [json.dumps({"n": runs[-1], "item": item}) for item in ("tea", "rum", "oil")]
        (landing / ".orders").write_text("\n".join(lines))
        (landing / ".orders").rename(landing / f"{runs[-1]}.json")
        shop.run(checkpoint=tmp_path / "checkpoint", mode=hr.available_now(), spark=spark)
        rows = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet").filter(n=runs[-1])
        return rows.select("item", "price", "prices_version").sort("item", "price").rows()

    return run


def _versions(root: Path) -> list[TableVersion]:
    """The table in the history, batch after batch."""
    return [entry.tables["prices"] for entry in history.read(root / "checkpoint" / "priced")]


def test_a_query_to_postgresql_is_read_again_and_its_last_rows_are_kept_while_it_is_away(
    joined: Run, tmp_path: Path
) -> None:
    with running("postgres") as server:
        table = hr.postgres_table("select item, price from prices", dsn=server.dsn, schema="item STRING, price INT")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table prices (item text, price int)")
            connection.execute("insert into prices values ('tea', 3), ('rum', 9), (null, 1)")
            assert joined(table) == [("oil", None, 1), ("rum", 9, 1), ("tea", 3, 1)]
            connection.execute("update prices set price = 4 where item = 'tea'")
            connection.execute("insert into prices values ('rum', 10)")
            assert joined(table) == [("oil", None, 2), ("rum", 9, 2), ("rum", 10, 2), ("tea", 4, 2)]
            connection.execute("alter table prices rename column price to cost")
            with pytest.warns(RuntimeWarning, match="goes on with version 2 of its table"):
                assert joined(table) == [("oil", None, 2), ("rum", 9, 2), ("rum", 10, 2), ("tea", 4, 2)]
            connection.execute("alter table prices rename column cost to price")
        server.kill()
        with pytest.warns(RuntimeWarning, match="goes on with version 2 of its table"):
            assert joined(table) == [("oil", None, 2), ("rum", 9, 2), ("rum", 10, 2), ("tea", 4, 2)]
        server.start()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("delete from prices where item = 'rum'")
        assert joined(table) == [("oil", None, 3), ("rum", None, 3), ("tea", 4, 3)]
    read = _versions(tmp_path)
    assert [each.version for each in read] == [1, 2, 2, 2, 3]
    assert [each.problem is None for each in read] == [True, True, False, False, True]


def test_a_postgresql_that_is_away_before_the_first_batch_is_an_error(joined: Run, postgres: Service) -> None:
    table = hr.postgres_table("select * from no_such_table", dsn=postgres.dsn, schema="item STRING, price INT")
    with pytest.raises(HeadraceError, match="no_such_table"):
        joined(table)


@pytest.mark.full
def test_a_delta_table_is_joined_in_its_newest_version(joined: Run, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "prices")

    def write(rows: list[tuple[str, int]], mode: str) -> None:
        spark.createDataFrame(rows, "item STRING, price INT").coalesce(1).write.format("delta").mode(mode).save(place)

    with pytest.raises(HeadraceError, match="TABLE_MISSING"):
        joined(hr.delta_table(place))
    write([("tea", 3), ("rum", 9)], "overwrite")
    assert joined(hr.delta_table(place)) == [("oil", None, 1), ("rum", 9, 1), ("tea", 3, 1)]
    write([("oil", 5)], "append")
    assert joined(hr.delta_table(place)) == [("oil", 5, 2), ("rum", 9, 2), ("tea", 3, 2)]
    write([("tea", 3), ("rum", 9), ("oil", 5)], "overwrite")
    spark.sql(f"delete from delta.`{place}` where item = 'rum'")
    assert joined(hr.delta_table(place)) == [("oil", 5, 3), ("rum", None, 3), ("tea", 3, 3)]
    assert [each.version for each in _versions(tmp_path)] == [1, 2, 3]
