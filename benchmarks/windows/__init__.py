"""Windows from Kafka and from Parquet: Headrace beside Flink SQL and Spark's own operators."""
