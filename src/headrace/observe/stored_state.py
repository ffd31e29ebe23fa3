"""The state of a flow read from outside, while the flow runs or afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from headrace.checkpoint.storage import LocalStorage
from headrace.checkpoint.sweep import pin
from headrace.errors import DefinitionError
from headrace.event_time.record import BatchLog, BatchOutcome
from headrace.stability import experimental
from headrace.state.group_range import GroupRange
from headrace.state.segment import OpenSegments, SegmentFiles
from headrace.state.slot_state import SlotState, StateRows

PINNED_SECONDS = 3_600


@experimental
def read_state(checkpoint: str | os.PathLike[str], flow: str, step: str) -> pl.DataFrame:
    """The rows that a step's state had after the last batch, with the step's own columns; a running flow goes on.

    >>> import headrace as hr
    >>> def biggest():
    ...     return hr.read_state("checkpoints/spend", "spend", "hourly_spend").sort("spent.sum").tail(10)
    """
    storage = LocalStorage(Path(checkpoint) / flow)
    log = BatchLog(storage)
    outcome = log.outcome
    if outcome is None or outcome.batch < 0:
        raise DefinitionError("STATE_NOT_FOUND", f"{str(storage)!r} is not the folder of a flow that has run a batch.")
    identity = log.identity
    steps = {each["name"]: each for each in identity["steps"]}
    if step not in steps:
        raise DefinitionError(
            "STATE_NOT_FOUND", f"flow {flow!r} has no step {step!r} with state. It has: {', '.join(steps) or 'none'}."
        )
    while True:
        with pin(storage, outcome.files, until=int((time.time() + PINNED_SECONDS) * 1_000_000)):
            newest = BatchLog(storage).outcome
            # Where the flow has gone on, files may have been removed before they were pinned.
            if newest is None or newest.batch == outcome.batch:
                return _rows(storage, outcome, steps[step], identity["key_groups"])
        outcome = newest


def _rows(storage: LocalStorage, outcome: BatchOutcome, step: Mapping[str, Any], key_groups: int) -> pl.DataFrame:
    rows = StateRows(dict.fromkeys(step["state"], pl.Null()), step["state_identity"])
    files = SegmentFiles(storage, OpenSegments(), new_name=str)
    groups, dead_until = GroupRange(0, key_groups, key_groups), outcome.fired[step["name"]]
    slots = outcome.slots.get(step["name"], {}).values()
    parts = [[part for slot in slots for part in slot.segments], [part for slot in slots for part in slot.shared]]
    found = [SlotState(files, rows, segments, groups, dead_until).all() for segments in parts]
    return pl.concat([part for part in found if part.height] or found[:1], how="diagonal_relaxed")
