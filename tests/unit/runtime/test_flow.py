from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.lease import take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
from headrace.graph import FlowNode, Graph
from headrace.runtime.flow import Flow
from headrace.runtime.modes import micro_batch
from headrace.runtime.outputs import FlowOutputs


class NoSession:
    """A session of which only a setting is asked."""

    conf: Mapping[str, str] = {}


class AsksOnceMore:
    """A query whose thread asks for one more batch while it is being stopped, as Spark's may."""

    def __init__(self, flow: Flow) -> None:
        self._asking = threading.Thread(target=self._ask, args=(flow,), daemon=True)
        self.answer: Exception | None = None
        self.ended = False

    @property
    def isActive(self) -> bool:  # noqa: N802
        return True

    def _ask(self, flow: Flow) -> None:
        try:
            flow._batch(None, 7)  # type: ignore[arg-type]
        except Exception as refused:
            self.answer = refused

    def stop(self) -> None:
        self._asking.start()
        self._asking.join(60)
        self.ended = not self._asking.is_alive()

    def exception(self) -> Any:
        return self.answer


def test_a_batch_that_begins_while_the_flow_stops_is_refused_and_does_not_hold_the_stop(
    tmp_path: Path, monkeypatch: Any
) -> None:
    graph = Graph("p", tmp_path, None)  # type: ignore[arg-type]
    node = FlowNode("f", None, (), (), (), ())  # type: ignore[arg-type]
    flow = Flow(graph, node, NoSession(), lambda: 0, micro_batch(), take_lease(LocalStorage(tmp_path)))  # type: ignore[arg-type]
    query = AsksOnceMore(flow)
    monkeypatch.setattr(flow, "begin", lambda **_: query)

    flow.start()
    flow.stop()

    assert flow.wait(30)
    assert query.ended
    assert "[FLOW_STOPPED]" in str(query.answer)
    assert flow.failure is None


class StaysActive:
    """A query that does nothing until it is stopped."""

    isActive = True  # noqa: N815

    def stop(self) -> None:
        """Nothing to stop."""

    def exception(self) -> Any:
        """It never fails."""


@pytest.mark.parametrize(("problem", "ends"), [("SINK_UNREACHABLE", False), ("FENCED", True)])
def test_a_sink_that_is_away_when_marks_are_renewed_does_not_end_the_flow_and_a_fence_does(
    problem: str, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = threading.Semaphore(0)

    def prepare(outputs: FlowOutputs) -> None:
        renewals.release()
        raise HeadraceError(problem, "no.")

    monkeypatch.setattr(FlowOutputs, "prepare", prepare)
    monkeypatch.setattr("headrace.runtime.flow.CLAIMED_SECONDS", -1.0)
    graph = Graph("p", tmp_path, None)  # type: ignore[arg-type]
    node = FlowNode("f", None, (), (), (), ())  # type: ignore[arg-type]
    flow = Flow(graph, node, NoSession(), lambda: 0, micro_batch(), take_lease(LocalStorage(tmp_path)))  # type: ignore[arg-type]
    monkeypatch.setattr(flow, "begin", lambda **_: StaysActive())

    flow.start()

    assert renewals.acquire(timeout=30)
    assert renewals.acquire(timeout=30) if not ends else flow.wait(30)
    flow.stop()
    assert flow.wait(30)
    assert (flow.failure is not None) is ends
