from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.graph import FlowNode, Graph
from headrace.runtime.flow import Flow
from headrace.runtime.lease import take_lease
from headrace.runtime.modes import micro_batch


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
        self._asking.join(10)
        self.ended = not self._asking.is_alive()

    def exception(self) -> Any:
        return self.answer


def test_a_batch_that_begins_while_the_flow_stops_is_refused_and_does_not_hold_the_stop(
    tmp_path: Path, monkeypatch: Any
) -> None:
    graph = Graph("p", tmp_path, None)  # type: ignore[arg-type]
    node = FlowNode("f", None, (), (), (), ())  # type: ignore[arg-type]
    flow = Flow(graph, node, NoSession(), lambda: 0, micro_batch(), take_lease(tmp_path))  # type: ignore[arg-type]
    query = AsksOnceMore(flow)
    monkeypatch.setattr(flow, "begin", lambda **_: query)

    flow.start()
    flow.stop()

    assert flow.wait(30)
    assert query.ended
    assert "[FLOW_STOPPED]" in str(query.answer)
    assert flow.failure is None
