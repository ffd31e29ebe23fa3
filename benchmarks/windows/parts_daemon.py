"""Headrace's Python daemon with a clock on every part of a task: Spark starts it when a run asks where time goes."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark import daemon

import headrace.connectors.base.source
import headrace.runtime.worker_daemon  # as Headrace's own: everything is loaded before workers are forked
import headrace.wheel.pack
import headrace.wheel.turn
from headrace.connectors.base.messages import JsonMessages
from headrace.connectors.base.source import Gate
from headrace.connectors.kafka.librdkafka import LibrdkafkaConsumer
from headrace.connectors.kafka.reader import KafkaReader, _Consumption
from headrace.operators.windows.fixed_window_operator import FixedWindowOperator, PaneOperator
from headrace.operators.windows.session_windows import FinalSessionOperator
from headrace.state.slot_state import SlotState
from headrace.wheel.task import Task

FOLDER = "HEADRACE_PARTS"
_SPENT: defaultdict[str, float] = defaultdict(float)


def _timed(owner: Any, name: str, part: str) -> None:
    """Let a function add the time it takes to a part; none of these calls another one."""
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def measured(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            _SPENT[part] += time.perf_counter() - began

    setattr(owner, name, measured)


def _reported(report: Callable[..., None]) -> Callable[..., None]:
    """A report of a task is the moment to note what was spent since the last one."""

    @wraps(report)
    def reporting(task: Task, *arguments: Any, **named: Any) -> None:
        report(task, *arguments, **named)
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").open("a") as notes:
            notes.write(
                json.dumps({"batch": task.record.batch, "run": str(task.state.storage), "parts": _SPENT}) + "\n"
            )
        _SPENT.clear()

    return reporting


def _watch() -> None:
    _timed(_Consumption, "lost", "read")
    _timed(LibrdkafkaConsumer, "poll", "read")
    _timed(JsonMessages, "decode", "parse")
    _timed(KafkaReader, "_placed", "parse")
    _timed(Gate, "_judge", "parse")
    _timed(headrace.connectors.base.source, "_highest", "parse")
    for operator in (FixedWindowOperator, PaneOperator, FinalSessionOperator):
        _timed(operator, "combine", "combine")
        _timed(operator, "apply", "apply")
    _timed(headrace.wheel.pack, "encode", "pack and unpack")
    _timed(headrace.wheel.pack, "hashes_of", "pack and unpack")
    _timed(headrace.wheel.turn, "decode", "pack and unpack")
    _timed(headrace.wheel.turn, "_hashed", "state")
    for lookup in ("find", "all", "due", "next_due", "write"):
        _timed(SlotState, lookup, "state")
    Task.report = _reported(Task.report)  # type: ignore[method-assign]


if __name__ == "__main__":
    _watch()
    gc.freeze()
    daemon.manager()
