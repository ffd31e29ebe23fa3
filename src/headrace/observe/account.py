"""The account of a batch: every row that came in is somewhere, and the numbers add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HeadraceError
from headrace.sinks.sink import Written

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Account:
    """Rows by node, and what they add up to.

    ``read = handed_on + dead``, ``in = accepted + late + dropped``,
    ``out = written + already_marked + superseded + refused``.
    """

    sources: Mapping[str, Mapping[str, int]]
    steps: Mapping[str, Mapping[str, int]]
    sinks: Mapping[str, Mapping[str, int]]

    def to_json(self) -> dict[str, Any]:
        """The account as plain dictionaries."""
        return asdict(self)

    def check(self, *, flow: str, batch: int) -> None:
        """Fail loudly, with the numbers, when an identity does not hold."""
        broken = [
            f"source {name}: read {n['read']} != handed on {n['handed_on']} + dead {n['dead']}"
            for name, n in self.sources.items()
            if n["read"] != n["handed_on"] + n["dead"]
        ]
        broken += [
            f"step {name}: in {n['in']} != accepted {n['accepted']} + late {n['late']} + dropped {n['dropped']}"
            for name, n in self.steps.items()
            if n["in"] != n["accepted"] + n["late"] + n["dropped"] or n["accepted"] < 0
        ]
        broken += [
            f"sink of {name}: out {n['out']} != written {n['written']} + already marked {n['already_marked']} "
            f"+ superseded {n['superseded']} + refused {n['refused']}"
            for name, n in self.sinks.items()
            if n["out"] != n["written"] + n["already_marked"] + n["superseded"] + n["refused"]
        ]
        if broken:
            raise HeadraceError(
                "ACCOUNT_BROKEN",
                f"flow {flow!r}, batch {batch}: {'; '.join(broken)}. Spark has not committed this batch; "
                "this is a defect in Headrace or in a sink, please report it with these numbers.",
            )


def account_of(reports: Reports, written: Mapping[str, Written]) -> Account:
    """The account of a batch from what its tasks and sinks said."""

    def summed(kind: str, names: tuple[str, ...]) -> dict[str, dict[str, int]]:
        return {
            node.split(".", 1)[1]: {name: sum(report[name] for report in parts.values()) for name in names}
            for node, parts in reports.items()
            if node.startswith(f"{kind}.")
        }

    steps = summed("step", ("in", "accepted", "late", "partly_late", "dropped"))
    for name, told in summed("state", ("late", "dropped")).items():
        # The state may find rows late or repeated that the map side had accepted.
        steps[name]["accepted"] -= told["late"] + told["dropped"]
        steps[name]["late"] += told["late"]
        steps[name]["dropped"] += told["dropped"]
    return Account(
        summed("source", ("read", "handed_on", "dead")),
        steps,
        {
            output: {
                "out": sink.out,
                "written": sink.rows,
                "already_marked": sink.already_marked,
                "superseded": sink.superseded,
                "refused": sink.refused,
            }
            for output, sink in written.items()
        },
    )
