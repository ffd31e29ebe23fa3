"""What a task needs where no flow runs: a state in memory."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.checkpoint.storage import MemoryStorage, Storage
from headrace.reports import SlotSummary
from headrace.state.group_range import KEY_GROUPS
from headrace.state.segment import OpenSegments
from headrace.wheel.task import TaskState

Slots = Mapping[str, Mapping[int, SlotSummary]]


def state_in_memory(slots: Slots | None = None, storage: Storage | None = None) -> TaskState:
    """The state of a flow that has run no batch yet or, given those, what its slots hold."""
    return TaskState(storage or MemoryStorage(), OpenSegments(), KEY_GROUPS, 1, slots or {})
