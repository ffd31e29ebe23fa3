"""Spark's own connectors work with the jars that Headrace brings."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.services.service import Service
from tests.topics import create_topic

pytestmark = pytest.mark.spark


def test_a_delta_table_is_written_merged_and_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING").write.format("delta").save(path)
    spark.createDataFrame([(2, "c"), (3, "d")], "id INT, name STRING").createOrReplaceTempView("connector_changes")
    spark.sql(
        f"MERGE INTO delta.`{path}` AS kept USING connector_changes AS changed ON kept.id = changed.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = spark.read.format("delta").load(path).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "c"), (3, "d")]


def test_a_kafka_topic_is_read(spark: SparkSession, kafka: Service) -> None:
    topic = f"connector-{uuid.uuid4()}"
    settings = {"bootstrap.servers": kafka.address, "log_level": 0}
    create_topic(kafka.address, topic, 2)
    producer = Producer(settings)
    for number in range(100):
        producer.produce(topic, value=str(number))
    assert producer.flush(20) == 0
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.address).option("subscribe", topic).load()
    rows = read.selectExpr("cast(value AS STRING) AS value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))
