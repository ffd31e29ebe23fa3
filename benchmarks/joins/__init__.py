"""Joins and lookups: Headrace beside Flink SQL, Spark's own joins, and plain loops."""
