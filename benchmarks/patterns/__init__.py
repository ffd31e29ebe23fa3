"""Patterns from Kafka: Headrace beside Flink SQL's MATCH_RECOGNIZE."""
