"""A view of three tables of a real PostgreSQL, kept in Delta, PostgreSQL and Redis by a process that tests kill."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

COLUMNS = {
    "customers": "customer_id INT, name STRING, city STRING, about STRING",
    "orders": "order_id INT, customer_id INT, amount DECIMAL(12, 2), note STRING",
    "payments": "payment_id INT, order_id INT, paid DECIMAL(12, 2), method STRING, receipt STRING",
}
KEYS = {"customers": "customer_id", "orders": "order_id", "payments": "payment_id"}
ORDER = ("order_id", "payment_id", "customer_id", "amount", "note", "paid", "method", "receipt")
CUSTOMER = ("name", "city", "about")


def tables(spark: SparkSession, route: str, dsn: str, servers: str) -> dict[str, DataFrame]:
    """The changes of each table, without what the view does not need."""
    if route == "postgres":
        found = hr.read_postgres_changes(spark, list(COLUMNS), dsn=dsn, slot="shop")
    else:
        found = {}
        for table, columns in COLUMNS.items():
            changes = hr.debezium_changes(columns, key=KEYS[table])
            found[table] = hr.read_kafka(spark, f"shop.public.{table}", servers=servers, schema=changes, name=table)
    timed = hr.event_time("committed_at")
    return {table: frame.transform(timed).drop("transaction") for table, frame in found.items()}


@hr.pipeline(name="shop")
def shop(spark: SparkSession, route: str, root: str, dsn: str, servers: str, redis: str) -> None:
    """Every order with each of its payments and with its customer, where there are any."""
    changes = tables(spark, route, dsn, servers)
    # These two tables log no old rows, and no large values that stayed the same; orders log everything.
    customers = changes["customers"].transform(hr.materialize("customers", key="customer_id", before_images=True))
    payments = changes["payments"].transform(hr.materialize("payments", key="payment_id", before_images=True))
    orders = changes["orders"].drop("unchanged")
    paid = hr.table_join("paid", on="order_id", left_key="order_id", right_key="payment_id", how="left")
    paid_orders = paid(orders, payments).select(*ORDER, "change", "position", "changed_at")
    whose = hr.table_join(
        "whose", on="customer_id", left_key=["order_id", "payment_id"], right_key="customer_id", how="left"
    )
    view = whose(paid_orders, customers).withColumn("payment_id", F.coalesce("payment_id", F.lit(0)))
    # An order that moves to another customer leaves the join twice, from two key groups, in any order.
    current = view.transform(hr.materialize("current", key=["order_id", "payment_id"]))
    key = ["order_id", "payment_id"]
    hr.write(
        "view",
        (
            current.select(*ORDER, *CUSTOMER, "change"),
            hr.to_delta(f"{root}/view", upsert_on=key),
            hr.to_postgres("view", dsn=dsn, upsert_on=key),
            hr.to_redis(redis, key="view:{order_id}:{payment_id}"),
        ),
    )


def main() -> None:
    """Run until killed, or over what is there."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--route", choices=("postgres", "debezium"), required=True)
    arguments.add_argument("--dsn", required=True)
    arguments.add_argument("--servers", default="")
    arguments.add_argument("--redis", required=True)
    arguments.add_argument("--to-the-end", action="store_true")
    given = arguments.parse_args()
    spark = hr.spark_session("view", master="local[2,4]", quick_start=True, connectors=("delta",))
    shop.run(
        checkpoint=given.root / "checkpoint",
        mode=hr.available_now() if given.to_the_end else hr.micro_batch("200 milliseconds"),
        spark=spark,
        route=given.route,
        root=str(given.root),
        dsn=given.dsn,
        servers=given.servers,
        redis=given.redis,
    )
    spark.stop()


if __name__ == "__main__":
    main()
