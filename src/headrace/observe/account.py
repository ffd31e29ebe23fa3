"""The account of a batch: every row that came in is somewhere, and the numbers add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.connectors.base.sink import Written
from headrace.errors import HeadraceError

Reports = Mapping[str, Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Account:
    """Rows by node, and what they add up to.

    ``read = handed_on + dead``, ``waited + in = accepted + late + failed + dropped + waiting``,
    ``out = written + already_marked + superseded + refused``. Rows wait only in steps that take them in the order of
    their event time; there a row is accepted when it is handled.
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
            f"step {name}: waited {n['waited']} + in {n['in']} != accepted {n['accepted']} + late {n['late']} "
            f"+ failed {n['failed']} + dropped {n['dropped']} + waiting {n['waiting']}"
            for name, n in self.steps.items()
            if n["waited"] + n["in"] != n["accepted"] + n["late"] + n["failed"] + n["dropped"] + n["waiting"]
            or n["accepted"] < 0
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

    brought = ("in", "accepted", "late", "partly_late", "dropped", "failed")
    steps = {name: {**counts, "waited": 0, "waiting": 0} for name, counts in summed("step", brought).items()}
    for name, told in summed("state", ("late", "dropped", "failed")).items():
        # Spark leaves out the input of a step that brings nothing, so its state may be all that reports.
        step = steps.setdefault(name, dict.fromkeys((*brought, "waited", "waiting"), 0))
        held = [part["holding"] for part in reports[f"state.{name}"].values()]
        # The state may find rows late, repeated or bad that the map side had accepted.
        step["accepted"] -= told["late"] + told["dropped"] + told["failed"]
        for outcome in ("late", "dropped", "failed"):
            step[outcome] += told[outcome]
        if any(held):
            waits = [each for each in held if each is not None]
            step["waited"] = sum(each["before"] for each in waits)
            step["waiting"] = sum(each["after"] for each in waits)
            step["accepted"] = sum(each["handled"] for each in waits)
        for part in reports[f"state.{name}"].values():
            for second, dropped in part.get("dropped_second", {}).items():
                if dropped:
                    steps[f"{name}.{second}"]["accepted"] -= dropped
                    steps[f"{name}.{second}"]["dropped"] += dropped
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
