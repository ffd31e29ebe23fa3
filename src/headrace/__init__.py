"""Headrace: stream processing with the semantics of Apache Flink, for people who write Python and run Spark."""

from headrace import detectors
from headrace.errors import DefinitionError, HeadraceError
from headrace.event_time.lateness import drop, side_output, update_for
from headrace.event_time.strategy import between, event_time, ingestion_time, processing_time
from headrace.expressions.aggregates.accumulator import Accumulator
from headrace.expressions.aggregates.collect import collect_list, collect_set
from headrace.expressions.aggregates.ewm import ewm
from headrace.expressions.aggregates.percentile import percentile
from headrace.expressions.aggregates.top import top
from headrace.expressions.aggregates.vector_accumulator import VectorAccumulator
from headrace.operators.deduplicate import deduplicate
from headrace.operators.patterns import skip
from headrace.operators.patterns.chain import group
from headrace.operators.patterns.pattern import pattern
from headrace.operators.patterns.pattern_rules import pattern_rules
from headrace.operators.process.declarations import (
    aggregating_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from headrace.operators.process.keyed_process import KeyedProcess
from headrace.operators.process.late import deliver
from headrace.operators.process.on_error import retry
from headrace.operators.process.outputs import to
from headrace.operators.process.process import process
from headrace.operators.process.rules import rules
from headrace.operators.windows.emission import after_rows, every, on_close, on_update, when
from headrace.operators.windows.fixed.cumulating import cumulating
from headrace.operators.windows.fixed.hopping import hopping
from headrace.operators.windows.fixed.tumbling import tumbling
from headrace.operators.windows.panes import accumulating, discarding, retracting
from headrace.operators.windows.sessions.session import session
from headrace.operators.windows.sliding.sliding import sliding
from headrace.operators.windows.triggered.counting import counting
from headrace.operators.windows.triggered.global_window import global_window
from headrace.runtime.modes import available_now, micro_batch
from headrace.runtime.pipeline import pipeline
from headrace.runtime.session import spark_session
from headrace.runtime.write import write
from headrace.secrets import secret
from headrace.sinks.console import to_console
from headrace.sinks.delta import to_delta
from headrace.sinks.files import to_files
from headrace.sinks.http import to_http
from headrace.sinks.kafka import to_kafka
from headrace.sinks.memory import memory, to_memory
from headrace.sinks.opensearch import to_opensearch
from headrace.sinks.postgres import to_postgres
from headrace.sinks.redis import to_redis
from headrace.sinks.sink import BatchIdentity, Sink, Written
from headrace.sources.delta import read_delta
from headrace.sources.files import read_files
from headrace.sources.generate import generate
from headrace.sources.generator import Payments
from headrace.sources.kafka import read_kafka
from headrace.sources.mqtt import read_mqtt

__all__ = [
    "Accumulator",
    "BatchIdentity",
    "DefinitionError",
    "HeadraceError",
    "KeyedProcess",
    "Payments",
    "Sink",
    "VectorAccumulator",
    "Written",
    "accumulating",
    "after_rows",
    "aggregating_state",
    "available_now",
    "between",
    "collect_list",
    "collect_set",
    "counting",
    "cumulating",
    "deduplicate",
    "deliver",
    "detectors",
    "discarding",
    "drop",
    "event_time",
    "every",
    "ewm",
    "generate",
    "global_window",
    "group",
    "hopping",
    "ingestion_time",
    "list_state",
    "map_state",
    "memory",
    "micro_batch",
    "on_close",
    "on_update",
    "pattern",
    "pattern_rules",
    "percentile",
    "pipeline",
    "process",
    "processing_time",
    "read_delta",
    "read_files",
    "read_kafka",
    "read_mqtt",
    "reducing_state",
    "retracting",
    "retry",
    "rules",
    "secret",
    "session",
    "side_output",
    "skip",
    "sliding",
    "spark_session",
    "to",
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
    "tumbling",
    "update_for",
    "value_state",
    "when",
    "write",
]
