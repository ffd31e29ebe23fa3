"""Reports of tasks: taken by one flow while those of another go on coming."""

from __future__ import annotations

import threading

from headrace.node_id import NodeId
from headrace.reports import Report, ReportKey, SourceReport
from headrace.wheel.task import take_reports


def test_reports_have_one_order_whichever_task_ends_first() -> None:
    reports: dict[ReportKey, Report] = {
        ("flow", 1, NodeId("source", node), part): SourceReport() for node, part in (("b", 1), ("a", 2), ("b", 0))
    }
    taken = take_reports(reports, flow="flow", batch=1)
    assert [(name, list(parts)) for name, parts in taken.sources.items()] == [("a", [2]), ("b", [0, 1])]


def test_reports_are_taken_while_others_come() -> None:
    reports: dict[ReportKey, Report] = {}
    node = NodeId("source", "node")
    stop = threading.Event()

    def report() -> None:
        batch = 0
        while not stop.is_set():
            batch += 1
            reports.update({("other", batch, node, part): SourceReport() for part in range(20)})
            take_reports(reports, flow="other", batch=batch - 50)

    other = threading.Thread(target=report)
    other.start()
    try:
        for batch in range(2_000):
            reports["mine", batch, node, 0] = SourceReport(read=batch)
            assert take_reports(reports, flow="mine", batch=batch).of_source("node") == (SourceReport(read=batch),)
    finally:
        stop.set()
        other.join()
