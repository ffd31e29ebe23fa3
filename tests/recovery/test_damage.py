"""Damage: whatever happens to a file of the log or of the state, a restart names it or gives the right rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
from headrace.event_time.strategy import BEGINNING
from headrace.state import slot_state
from headrace.testing import inline
from headrace.testing.elements import At, Side, Watermark
from headrace.testing.engine import BY_HAND, SOURCES, Setting, schema_of
from tests.models.every_step import elements_of, step_of

NAMES = ("session", "process", "pattern", "interval join", "table join")
BEFORE = 9
"""So many batches are done when the damage happens; one more has begun."""
DAMAGES = 200

Rows = dict[str, list[str]]
"""What a batch gave: the rows of each output."""


@dataclass(frozen=True)
class Flow:
    """A step over a source that gives each batch the same rows again, as the source of a flow does."""

    name: str
    folder: Path

    def batches(self) -> list[tuple[list[At], int]]:
        """The rows of every batch, and the watermark that it has."""
        found, rows, passed = list[tuple[list[At], int]](), list[At](), BEGINNING
        for element in elements_of(self.name):
            if isinstance(element, At):
                rows.append(element)
                continue
            if isinstance(element, Watermark):
                passed = element.time
            found.append((rows, passed))
            rows = []
        return found

    def run(self, batches: int | None = None, *, interrupted: bool = False) -> dict[int, Rows]:
        """Start, and run the batches that the log does not have; what each of them gave."""
        given = self.batches()
        rows = [row for part, _ in given for row in part]
        schemas = {side: schema_of(part, partition=False) for side in SOURCES if (part := _of_side(rows, side))}
        steps = step_of(self.name)
        setting = Setting((steps,), BY_HAND, schemas)
        engine, gave = inline.InlineEngine(setting), dict[int, Rows]()
        try:
            for number in range(engine.planner.last.batch + 1, len(given) if batches is None else batches):
                part, passed = given[number]
                setting.watermarks.update(dict.fromkeys(schemas, passed))
                engine.run(part)
                gave[number] = {output: sorted(map(repr, found)) for output, found in setting.outputs.items()}
                for found in setting.outputs.values():
                    found.clear()
            if batches is not None and interrupted:
                engine.run(given[batches][0], commit=False)
        finally:
            engine.close()
        return gave


def _of_side(rows: list[At], side: Side) -> list[At]:
    return [row for row in rows if row.side == side]


@pytest.fixture(scope="module", autouse=True)
def merges_of_a_few_rows() -> Iterator[None]:
    """Merges stretch over several batches, so that the manifest has all kinds of entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_state, "LEAST_MERGED", 20)
        yield


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Lets the engine keep its files in a folder."""
    return lambda folder: monkeypatch.setattr(inline, "MemoryStorage", lambda: LocalStorage(folder))


def _damaged(file: Path, chance: random.Random) -> str:
    """Damage a file; what was done to it."""
    content = bytearray(file.read_bytes())
    place = chance.randrange(len(content))
    match chance.choice(("flipped", "cut off", "cut out", "zeroed", "removed", "replaced")):
        case "flipped":
            content[place] ^= 1 << chance.randrange(8)
            damage = f"bit of byte {place} flipped"
        case "cut off":
            del content[place:]
            damage = f"cut off at byte {place}"
        case "cut out":
            del content[place : place + chance.randint(1, 64)]
            damage = f"bytes from {place} cut out"
        case "zeroed":
            end = min(len(content), place + 64)
            content[place:end] = bytes(end - place)
            damage = f"bytes from {place} zeroed"
        case "removed":
            file.unlink()
            return "removed"
        case _:
            other = chance.choice(sorted(file.parent.iterdir()))
            content[:] = other.read_bytes()
            damage = f"replaced by {other.name}"
    file.write_bytes(content)
    return damage


@pytest.mark.parametrize(
    ("name", "damages"),
    [("session", 12), *(pytest.param(name, DAMAGES // len(NAMES), marks=pytest.mark.full) for name in NAMES)],
)
def test_damage_is_named_or_harmless(name: str, damages: int, stored: Callable[[Path], None], tmp_path: Path) -> None:
    stored(tmp_path / "whole")
    expected = Flow(name, tmp_path / "whole").run()
    healthy = {}
    for interrupted in (False, True):
        folder = healthy[interrupted] = tmp_path / f"healthy {interrupted}"
        stored(folder)
        first = Flow(name, folder).run(BEFORE, interrupted=interrupted)
        assert first == {number: expected[number] for number in range(BEFORE)}
    assert any(expected[number]["main"] for number in range(BEFORE, len(expected)))
    named = 0
    for seed in range(damages):
        chance = random.Random(f"{name} {seed}")
        folder = tmp_path / f"damaged {seed}"
        shutil.copytree(healthy[chance.random() < 0.5], folder)
        kind = chance.choice(("log", "log", "state"))
        newest = sorted((folder / "log").iterdir())[-1]
        # The oldest entries are there for people to read, and for nothing else: mostly damage what is needed.
        files = sorted((folder / kind).rglob("*.*"))
        file = newest if kind == "log" and chance.random() < 0.5 else chance.choice(files)
        what = f"{file.relative_to(folder)} {_damaged(file, chance)}"
        # Of a newest entry that is gone nobody knows, but the segments of the one before it may be gone as well.
        is_unknown = file == newest and not file.exists()
        stored(folder)
        found = _run(Flow(name, folder))
        if isinstance(found, HeadraceError):
            assert found.id in ("LOG_DAMAGED", "STATE_DAMAGED"), what
            assert is_unknown or file.name in str(found), f"{what}: {found}"
            named += 1
        else:
            assert found == {number: expected[number] for number in found}, what
            assert max(found) == max(expected), what
        shutil.rmtree(folder)
    assert named > damages // 3


def _run(flow: Flow) -> dict[int, Rows] | HeadraceError:
    try:
        return flow.run()
    except HeadraceError as problem:
        return problem
