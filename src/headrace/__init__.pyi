"""The public names and where they live; read by type checkers, and by the package when a name is first used."""

from . import detectors
from .connectors.base.sink import BatchIdentity, Sink, Written
from .connectors.debezium.changes import canal_changes, debezium_changes, maxwell_changes, upsert_changes
from .connectors.delta.sink import to_delta
from .connectors.delta.source import read_delta
from .connectors.delta.table import delta_table
from .connectors.development import memory, to_console, to_memory
from .connectors.files.results import read_results
from .connectors.files.sink import to_files
from .connectors.files.small_table import file_table
from .connectors.files.source import read_files
from .connectors.http.lookup import http_lookup
from .connectors.http.sink import to_http
from .connectors.kafka.sink import to_kafka
from .connectors.kafka.source import read_kafka
from .connectors.kafka.topics import topic
from .connectors.mqtt.source import read_mqtt
from .connectors.opensearch.sink import to_opensearch
from .connectors.postgres.changes.source import read_postgres_changes
from .connectors.postgres.lookup import postgres_lookup
from .connectors.postgres.sink import to_postgres
from .connectors.postgres.small_table import postgres_table
from .connectors.redis.lookup import redis_lookup
from .connectors.redis.sink import to_redis
from .connectors.spark.pump import source
from .errors import DefinitionError, HeadraceError
from .event_time.lateness import deliver, drop, side_output, update_for
from .event_time.strategy import event_time, ingestion_time, processing_time, valid_times
from .expressions.aggregates.accumulators import Accumulator, VectorAccumulator
from .expressions.aggregates.chosen_values import collect_list, collect_set, top
from .expressions.aggregates.percentile import percentile
from .expressions.aggregates.sums import ewm
from .generator.payments import Payments
from .generator.source import generate
from .observe.stored_state import read_state
from .operators.deduplicate import deduplicate
from .operators.joins.broadcast_join import broadcast_join
from .operators.joins.interval_join import interval_join
from .operators.joins.regular_join import regular_join
from .operators.joins.temporal_join import temporal_join
from .operators.joins.window_join import cumulating_window, hopping_window, tumbling_window, window_join
from .operators.lookup.client import cache
from .operators.lookup.lookup import lookup
from .operators.lookup.requests import breaker
from .operators.origins import split
from .operators.outbox import outbox
from .operators.patterns import skip
from .operators.patterns.chain import group
from .operators.patterns.pattern import pattern, pattern_rules
from .operators.process.errors import retry
from .operators.process.frame_process import FrameProcess, timer
from .operators.process.keyed_process import (
    KeyedProcess,
    aggregating_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from .operators.process.process import process
from .operators.process.rows import output
from .operators.process.rules import rules
from .operators.tables.materialize import materialize
from .operators.tables.table_aggregate import table_aggregate
from .operators.tables.table_join import table_join
from .operators.windows.emission import accumulating, discarding, early_only, on_close, on_update, retracting
from .operators.windows.fixed_windows import cumulating, hopping, tumbling
from .operators.windows.session_windows import session
from .operators.windows.sliding_windows import sliding
from .operators.windows.triggered_windows import counting, global_window
from .operators.windows.triggers import after_rows, all_of, any_of, every, once, then, when
from .runtime.bounded import over
from .runtime.modes import available_now, micro_batch
from .runtime.pipeline import pipeline
from .runtime.preview import preview
from .runtime.session import spark_session
from .runtime.write import write
from .secrets import secret

__version__: str

__all__ = [
    "Accumulator",
    "BatchIdentity",
    "DefinitionError",
    "FrameProcess",
    "HeadraceError",
    "KeyedProcess",
    "Payments",
    "Sink",
    "VectorAccumulator",
    "Written",
    "accumulating",
    "after_rows",
    "aggregating_state",
    "all_of",
    "any_of",
    "available_now",
    "breaker",
    "broadcast_join",
    "cache",
    "canal_changes",
    "collect_list",
    "collect_set",
    "counting",
    "cumulating",
    "cumulating_window",
    "debezium_changes",
    "deduplicate",
    "deliver",
    "delta_table",
    "detectors",
    "discarding",
    "drop",
    "early_only",
    "event_time",
    "every",
    "ewm",
    "file_table",
    "generate",
    "global_window",
    "group",
    "hopping",
    "hopping_window",
    "http_lookup",
    "ingestion_time",
    "interval_join",
    "list_state",
    "lookup",
    "map_state",
    "materialize",
    "maxwell_changes",
    "memory",
    "micro_batch",
    "on_close",
    "on_update",
    "once",
    "outbox",
    "output",
    "over",
    "pattern",
    "pattern_rules",
    "percentile",
    "pipeline",
    "postgres_lookup",
    "postgres_table",
    "preview",
    "process",
    "processing_time",
    "read_delta",
    "read_files",
    "read_kafka",
    "read_mqtt",
    "read_postgres_changes",
    "read_results",
    "read_state",
    "redis_lookup",
    "reducing_state",
    "regular_join",
    "retracting",
    "retry",
    "rules",
    "secret",
    "session",
    "side_output",
    "skip",
    "sliding",
    "source",
    "spark_session",
    "split",
    "table_aggregate",
    "table_join",
    "temporal_join",
    "then",
    "timer",
    "to_console",
    "to_delta",
    "to_files",
    "to_http",
    "to_kafka",
    "to_memory",
    "to_opensearch",
    "to_postgres",
    "to_redis",
    "top",
    "topic",
    "tumbling",
    "tumbling_window",
    "update_for",
    "upsert_changes",
    "valid_times",
    "value_state",
    "when",
    "window_join",
    "write",
]
