"""Reports of tasks: taken by one flow while those of another go on coming."""

from __future__ import annotations

import threading
from typing import Any

from headrace.wheel.reports import take


def test_reports_have_one_order_whichever_task_ends_first() -> None:
    reports: dict[Any, dict[str, Any]] = {("flow", 1, node, part): {} for node, part in (("b", 1), ("a", 2), ("b", 0))}
    taken = take(reports, flow="flow", batch=1)
    assert [(node, list(parts)) for node, parts in taken.items()] == [("a", [2]), ("b", [0, 1])]


def test_reports_are_taken_while_others_come() -> None:
    reports: dict[Any, dict[str, Any]] = {}
    stop = threading.Event()

    def report() -> None:
        batch = 0
        while not stop.is_set():
            batch += 1
            reports.update({("other", batch, "node", part): {} for part in range(20)})
            take(reports, flow="other", batch=batch - 50)

    other = threading.Thread(target=report)
    other.start()
    try:
        for batch in range(2_000):
            reports["mine", batch, "node", 0] = {"batch": batch}
            assert take(reports, flow="mine", batch=batch) == {"node": {0: {"batch": batch}}}
    finally:
        stop.set()
        other.join()
