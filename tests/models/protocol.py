"""A small model of the protocol (docs/design/2026-11-18-the-protocol.md), and a search through its interleavings.

A world holds a log, the files of the state, a sink and pins. Actors take one atomic step at a time: drivers, their
tasks, a reader that pins. An actor that is never chosen again has crashed, one that is chosen late is a zombie, so the
search meets both in every place. Batch ``b`` appends ``b`` to the state and writes the state to the sink, as one of two
writers; a copy of the checkpoint divides its rows otherwise, so it writes the same batch as the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Token = tuple[int, int]
"""(driver, number of the entry): no two entries have the same."""
WRITERS = 2
Mark = tuple[int, Token] | None
"""The last batch of a writer, and the token of its record."""
Marks = tuple[Mark, ...]
Claim = tuple[int, int]
"""The epoch of a driver and what tells it from one of a copy, which may have the same epoch."""


class File(NamedTuple):
    """A segment. Its name is its epoch, batch and writer, so no two attempts share one."""

    epoch: int
    batch: int
    writer: tuple[int, int]
    content: tuple[int, ...]
    whole: bool = True


class Entry(NamedTuple):
    """An entry of the log; only an outcome has a manifest."""

    kind: str
    token: Token
    previous: Token | None
    batch: int = 0
    manifest: tuple[File, ...] = ()
    marked: Marks = (None,) * WRITERS
    retained_from: int = 0


class Driver(NamedTuple):
    """What a driver knows; ``at`` is its next step."""

    at: str = "open"
    number: int = 0
    epoch: int = 0
    batch: int = 0
    token: Token | None = None
    previous: Token | None = None
    marked: Marks = (None,) * WRITERS
    manifest: tuple[File, ...] = ()
    written: tuple[File, ...] = ()
    attempts: int = 0
    doomed: tuple[File, ...] = ()
    seen: Marks = ()
    """The marks of the sink when it looked first."""
    checkpoint: int = 0


class Reader(NamedTuple):
    """Takes a savepoint of the newest manifest."""

    at: str = "choose"
    batch: int = 0
    files: tuple[File, ...] = ()


class World(NamedTuple):
    """Everything that there is. A checkpoint that was copied is a second log with files of its own."""

    logs: tuple[tuple[tuple[int, Entry], ...], ...]
    files: tuple[frozenset[File], ...]
    rows: tuple[tuple[int, tuple[int, ...]], ...]
    marks: Marks
    claims: tuple[Claim, ...]
    pins: frozenset[File]
    drivers: tuple[Driver, ...]
    reader: Reader


@dataclass(frozen=True, slots=True)
class Scenario:
    """How many actors there are, and which rules of the protocol they break."""

    drivers: int = 2
    batches: int = 2
    attempts: int = 1
    reads: bool = False
    copies: bool = False
    broken: frozenset[str] = frozenset()

    def first(self) -> World:
        """Nothing has happened yet."""
        drivers = tuple(Driver() for _ in range(self.drivers))
        claims, reader = ((0, 0),) * WRITERS, Reader("choose" if self.reads else "done")
        return World(((),), (frozenset(),), (), (None,) * WRITERS, claims, frozenset(), drivers, reader)

    def keeps(self, rule: str) -> bool:
        """Whether the actors follow a rule."""
        return rule not in self.broken


class Violation(AssertionError):
    """The protocol promised that this cannot happen."""


def explore(scenario: Scenario) -> int:
    """Take every step in every order; the number of worlds seen. Raises a Violation at the first broken promise."""
    first = scenario.first()
    seen = {first}
    left = [first]
    while left:
        world = left.pop()
        following = list(steps(world, scenario))
        if not following:
            _check_the_end(world, scenario)
        for each in following:
            if each not in seen:
                check(each)
                seen.add(each)
                left.append(each)
    return len(seen)


def steps(world: World, scenario: Scenario) -> Iterator[World]:
    """The worlds that one step of one actor leads to."""
    for number, driver in enumerate(world.drivers):
        # The second driver starts when it likes; a third one only after the second, which names them in one order.
        if driver.at != "open" or number < 2 or world.drivers[number - 1].at != "open":
            yield from _STEPS[driver.at](world, number, scenario)
    if world.reader.at != "done":
        yield from _read(world, scenario)
    if scenario.copies and len(world.logs) == 1 and world.drivers[-1].at == "open":
        copied = world._replace(logs=world.logs * 2, files=world.files * 2)
        yield _with(copied, len(world.drivers) - 1, world.drivers[-1]._replace(checkpoint=1))


def check(world: World) -> None:
    """What holds at every moment."""
    expected = tuple((batch, _state(batch)) for batch in range(1, len(world.rows) + 1))
    if world.rows != expected:
        raise Violation(f"the sink holds {world.rows}")
    for log, files in zip(world.logs, world.files, strict=True):
        outcome = _newest_outcome(_chain(log))
        if outcome is None:
            continue
        if len(world.logs) == 1 and outcome.batch > len(world.rows):
            raise Violation(f"batch {outcome.batch} is concluded and its rows are not in the sink")
        if _fold(outcome.manifest) != _state(outcome.batch):
            raise Violation(f"the manifest of batch {outcome.batch} holds {_fold(outcome.manifest)}")
        _check_there(outcome.manifest, files, f"the manifest of batch {outcome.batch}")


def _check_the_end(world: World, scenario: Scenario) -> None:
    """Nobody can do more: everything is written, and one more start leaves no file that nothing needs.

    Of two copies one can go on, if it is the only one that is started again.
    """
    if len(world.logs) > 1:
        ends = [_started_again(world, here, scenario) for here in range(len(world.logs))]
        if all(len(end.rows) < scenario.batches for end in ends):
            raise Violation(f"no copy can go on, and the sink holds {world.rows}")
        return
    if len(world.rows) != scenario.batches:
        raise Violation(f"everybody has stopped and the sink holds {world.rows}")
    if world.pins:
        return
    after = _started_again(world, 0, scenario)
    outcome = _newest_outcome(_chain(after.logs[0]))
    if outcome is None or after.files[0] != frozenset(outcome.manifest):
        raise Violation(f"files are left that nothing needs: {after.files[0]}")


def _started_again(world: World, here: int, scenario: Scenario) -> World:
    """What one more driver leaves, if nobody else does anything."""
    after = world._replace(drivers=(*world.drivers, Driver(checkpoint=here)))
    while after.drivers[-1].at not in ("done", "replaced"):
        after = next(_STEPS[after.drivers[-1].at](after, len(world.drivers), scenario))
    return after


def _state(batch: int) -> tuple[int, ...]:
    return tuple(range(1, batch + 1))


def _fold(manifest: tuple[File, ...]) -> tuple[int, ...]:
    return tuple(number for file in manifest for number in file.content)


def _check_there(needed: tuple[File, ...], files: frozenset[File], whose: str) -> None:
    for file in needed:
        if not file.whole or file not in files:
            raise Violation(f"{whose} names {file}, which is not there or not whole")


def _chain(log: tuple[tuple[int, Entry], ...]) -> list[Entry]:
    """The entries from the newest back, as long as each names the one before it."""
    chain: list[Entry] = []
    for number, entry in reversed(log):
        if chain and (chain[-1].previous != entry.token or number != log[-1][0] - len(chain)):
            break
        chain.append(entry)
    return chain


def _newest_outcome(chain: list[Entry]) -> Entry | None:
    return next((entry for entry in chain if entry.kind == "outcome"), None)


def _with(world: World, number: int, driver: Driver) -> World:
    drivers = (*world.drivers[:number], driver, *world.drivers[number + 1 :])
    return world._replace(drivers=drivers)


def _stopped(world: World, number: int) -> World:
    """A driver that finds out that it was replaced does nothing more; what it knew no longer counts."""
    return _with(world, number, Driver(at="replaced", checkpoint=world.drivers[number].checkpoint))


def _open(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Read the log: the newest number, the last outcome, and the record that has none."""
    driver = world.drivers[number]
    log = world.logs[driver.checkpoint]
    chain = _chain(log)
    outcome = _newest_outcome(chain)
    record = next((entry for entry in chain if entry.kind == "record"), None)
    done = 0 if outcome is None else outcome.batch
    yield _with(
        world,
        number,
        driver._replace(
            at="take over" if scenario.keeps("takeover") else "look at marks",
            number=log[-1][0] if log else 0,
            epoch=(log[-1][0] if log else 0) + 1,
            previous=chain[0].token if chain else None,
            batch=done,
            manifest=() if outcome is None else outcome.manifest,
            marked=(None,) * WRITERS if outcome is None else outcome.marked,
            token=record.token if record is not None and record.batch > done else None,
        ),
    )


def _append(world: World, number: int, entry: Entry, then: str) -> World | None:
    """Create the next entry, unless that number is taken."""
    driver = world.drivers[number]
    log = world.logs[driver.checkpoint]
    mine = driver.number + 1
    if any(taken == mine for taken, _ in log):
        return None
    log = tuple(sorted((*log, (mine, entry))))
    logs = (*world.logs[: driver.checkpoint], log, *world.logs[driver.checkpoint + 1 :])
    driver = driver._replace(at=then, number=mine, previous=entry.token)
    return _with(world._replace(logs=logs), number, driver)


def _take_over(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    driver = world.drivers[number]
    entry = Entry("takeover", (number, driver.number + 1), driver.previous)
    taken = _append(world, number, entry, "taken over")
    yield _with(world, number, driver._replace(at="open")) if taken is None else taken


def _is_newest(then: str) -> Callable[[World, int, Scenario], Iterator[World]]:
    """After each create: compaction may have freed the number long after others went on."""

    def look(world: World, number: int, scenario: Scenario) -> Iterator[World]:
        driver = world.drivers[number]
        log = world.logs[driver.checkpoint]
        if scenario.keeps("newest number") and log[-1][0] > driver.number:
            # A successor may have built on the entry: it is true then, but its writer was replaced all the same.
            yield _stopped(world, number)
            return
        if driver.previous not in {entry.token for entry in _chain(log)}:
            raise Violation(f"driver {number} believes in entry {driver.number}, which nobody will read")
        yield _with(world, number, driver._replace(at=then))

    return look


def _look_at_marks(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Before claiming, so that a copy whose log is behind does not stop the other one."""
    driver = world.drivers[number]._replace(seen=world.marks)
    if scenario.keeps("marks before claims") and not _are_known(world, driver, scenario):
        yield _stopped(world, number)
    else:
        yield _with(world, number, driver._replace(at="claim 0"))


def _look_again(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """After claiming, when the other one can write no more: what it has written meanwhile shows."""
    driver = world.drivers[number]
    if scenario.keeps("marks after claims") and not _are_known(world, driver, scenario):
        if driver.seen == world.marks:
            raise Violation(f"driver {number} has claimed the sink, though it had seen that it cannot write")
        yield _stopped(world, number)
    else:
        yield _with(world, number, driver._replace(at="look for orphans", seen=()))


def _are_known(world: World, driver: Driver, scenario: Scenario) -> bool:
    """Whether every writer has marked the record that runs again, or what the last outcome knows of it."""
    again = (driver.batch + 1, driver.token)
    found = zip(world.marks, driver.marked, strict=True)
    return not scenario.keeps("token") or all(mark in (last, again) for mark, last in found)


def _claim(writer: int, then: str) -> Callable[[World, int, Scenario], Iterator[World]]:
    def claim(world: World, number: int, scenario: Scenario) -> Iterator[World]:
        driver = world.drivers[number]
        mine = _own(driver, number, scenario)
        if scenario.keeps("fence") and world.claims[writer] > mine:
            yield _stopped(world, number)
            return
        claims = (*world.claims[:writer], max(mine, world.claims[writer]), *world.claims[writer + 1 :])
        yield _with(world._replace(claims=claims), number, driver._replace(at=then))

    return claim


def _own(driver: Driver, number: int, scenario: Scenario) -> Claim:
    return driver.epoch, number if scenario.keeps("epochs of copies differ") else 0


def _look_for_orphans(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Choose what to sweep, after ``retained_from`` is in the log: what neither the manifest nor a pin names."""
    driver = world.drivers[number]
    kept = {*driver.manifest, *world.pins}
    doomed = sorted(
        file
        for file in world.files[driver.checkpoint]
        if file not in kept
        and (
            file.epoch < driver.epoch
            or (file.epoch == driver.epoch and file.batch <= driver.batch)
            or not scenario.keeps("orphans by epoch")
        )
    )
    yield _with(world, number, driver._replace(at="sweep", doomed=tuple(doomed)))


def _sweep(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Remove one file after the other."""
    driver = world.drivers[number]
    if not driver.doomed:
        yield _with(world, number, driver._replace(at="trim"))
        return
    here = driver.checkpoint
    files = (*world.files[:here], world.files[here] - {driver.doomed[0]}, *world.files[here + 1 :])
    yield _with(world._replace(files=files), number, driver._replace(doomed=driver.doomed[1:]))


def _trim(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Remove the oldest entry of the log that no reader needs, one after the other."""
    driver = world.drivers[number]
    log = world.logs[driver.checkpoint]
    needed = [taken for taken, entry in log if entry.kind == "outcome" and entry.batch >= driver.batch]
    if needed and log[0][0] < needed[0]:
        logs = (*world.logs[: driver.checkpoint], log[1:], *world.logs[driver.checkpoint + 1 :])
        yield world._replace(logs=logs)
        return
    at = "done" if driver.batch == scenario.batches else "plan"
    driver = driver._replace(at=at, attempts=0, written=())
    yield _with(world, number, driver)


def _plan(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Write the record of the next batch, unless one waits to be run again."""
    driver = world.drivers[number]
    if driver.token is not None:
        yield _with(world, number, driver._replace(at="run"))
        return
    token = (number, driver.number + 1)
    entry = Entry("record", token, driver.previous, driver.batch + 1)
    planned = _append(world, number, entry, "planned")
    if planned is None:
        yield _stopped(world, number)
    else:
        yield _with(planned, number, planned.drivers[number]._replace(token=token))


def _run(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """A task begins a segment. It may be tried again, or run twice at once; any whole one may be reported."""
    driver = world.drivers[number]
    here = driver.checkpoint
    if driver.attempts < scenario.attempts:
        if any(file not in world.files[here] for file in driver.manifest):
            # Only a driver that was replaced may find its files swept; its task fails.
            if _newest_outcome(_chain(world.logs[here])) == _outcome_of(world, driver):
                raise Violation(f"driver {number} cannot read its manifest, though nobody has gone on")
            yield _stopped(world, number)
            return
        batch = driver.batch + 1
        # Every second batch merges: its segment takes the place of all before it.
        content = (*_fold(driver.manifest), batch) if batch % 2 == 0 else (batch,)
        begun = File(driver.epoch, batch, (number, driver.attempts), content, whole=False)
        yield _changed(world, number, here, {begun}, set(), driver._replace(at="write", attempts=driver.attempts + 1))
    for file in driver.written:
        at = "deliver" if scenario.keeps("rows before outcome") else "conclude"
        yield _with(world, number, driver._replace(at=at, written=(file,)))


def _outcome_of(world: World, driver: Driver) -> Entry | None:
    chain = _chain(world.logs[driver.checkpoint])
    return next((entry for entry in chain if entry.kind == "outcome" and entry.batch == driver.batch), None)


def _write(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """The segment is whole and synced, then reported; or its task dies, and another attempt begins."""
    driver = world.drivers[number]
    here = driver.checkpoint
    begun = next(
        (file for file in world.files[here] if file.writer == (number, driver.attempts - 1) and not file.whole), None
    )
    if begun is None:
        yield _stopped(world, number)  # a successor swept what a zombie had begun: its task fails
        return
    whole = begun._replace(whole=True)
    reported = whole if scenario.keeps("sync before report") else begun
    written = driver._replace(at="run", written=(*driver.written, reported))
    if scenario.keeps("sync before report"):
        yield _changed(world, number, here, {whole}, {begun}, written)
    else:
        yield _with(world, number, written)
    if driver.attempts < scenario.attempts:
        yield _with(world, number, driver._replace(at="run"))


def _changed(world: World, number: int, here: int, new: set[File], old: set[File], driver: Driver) -> World:
    files = (*world.files[:here], (world.files[here] - old) | new, *world.files[here + 1 :])
    return _with(world._replace(files=files), number, driver)


def _deliver(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """One transaction of the sink: compare fence and mark, write the rows with the new mark."""
    driver = world.drivers[number]
    assert driver.token is not None
    batch = driver.batch + 1
    writer = _writer(world, driver.token, batch)
    mark, now = world.marks[writer], (batch, driver.token)
    rows = (*world.rows, (batch, (*_fold(driver.manifest), batch)))
    marks = (*world.marks[:writer], now, *world.marks[writer + 1 :])
    delivered = _with(world, number, driver._replace(at="conclude"))
    is_there = mark == now if scenario.keeps("token") else mark is not None and mark[0] == batch
    if scenario.keeps("fence") and world.claims[writer] > _own(driver, number, scenario):
        yield _stopped(world, number)
    elif is_there and scenario.keeps("mark"):
        yield delivered
    elif mark == driver.marked[writer] or not (scenario.keeps("mark") and scenario.keeps("token")):
        yield delivered._replace(rows=rows, marks=marks)
    else:
        yield _stopped(world, number)  # another checkpoint wrote here: CHECKPOINT_FORKED


def _writer(world: World, token: Token | None, batch: int) -> int:
    """The writer of a batch's row follows from its record."""
    assert token is not None
    return (batch + world.drivers[token[0]].checkpoint) % WRITERS


def _conclude(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    """Write the outcome: from here on the batch is done."""
    driver = world.drivers[number]
    batch = driver.batch + 1
    segment = driver.written[0]
    manifest = (segment,) if batch % 2 == 0 else (*driver.manifest, segment)
    assert driver.token is not None
    writer = _writer(world, driver.token, batch)
    marked: Marks = (*driver.marked[:writer], (batch, driver.token), *driver.marked[writer + 1 :])
    entry = Entry("outcome", (number, driver.number + 1), driver.previous, batch, manifest, marked, batch)
    concluded = _append(world, number, entry, "concluded")
    if concluded is None:
        yield _stopped(world, number)
        return
    known = concluded.drivers[number]
    known = known._replace(batch=batch, manifest=manifest, marked=marked, token=None, written=(), attempts=0)
    yield _with(concluded, number, known)


def _nothing(world: World, number: int, scenario: Scenario) -> Iterator[World]:
    return iter(())


def _read(world: World, scenario: Scenario) -> Iterator[World]:
    """Pin the newest manifest, see whether it is still retained, read its files, let go."""
    reader = world.reader
    outcome = _newest_outcome(_chain(world.logs[0]))
    if reader.at == "choose":
        if outcome is not None:
            yield world._replace(reader=Reader("pin", outcome.batch, outcome.manifest))
    elif reader.at == "pin":
        yield world._replace(pins=frozenset(reader.files), reader=reader._replace(at="look again"))
    elif reader.at == "look again":
        assert outcome is not None
        if outcome.retained_from > reader.batch and scenario.keeps("look again"):
            yield world._replace(pins=frozenset(), reader=Reader())
        else:
            yield world._replace(reader=reader._replace(at="read"))
    else:
        _check_there(reader.files, world.files[0], f"the pin of batch {reader.batch}")
        if _fold(reader.files) != _state(reader.batch):
            raise Violation(f"a reader of batch {reader.batch} got {_fold(reader.files)}")
        yield world._replace(pins=frozenset(), reader=Reader("done"))


_STEPS: dict[str, Callable[[World, int, Scenario], Iterator[World]]] = {
    "open": _open,
    "take over": _take_over,
    "taken over": _is_newest("look at marks"),
    "look at marks": _look_at_marks,
    "claim 0": _claim(0, "claim 1"),
    "claim 1": _claim(1, "look at marks again"),
    "look at marks again": _look_again,
    "look for orphans": _look_for_orphans,
    "sweep": _sweep,
    "trim": _trim,
    "plan": _plan,
    "planned": _is_newest("run"),
    "run": _run,
    "write": _write,
    "deliver": _deliver,
    "conclude": _conclude,
    "concluded": _is_newest("look for orphans"),
    "done": _nothing,
    "replaced": _nothing,
}
