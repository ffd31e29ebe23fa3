"""Checkpoints whose parts are missing, damaged, or of several moments: the result is exact, or refused with an id."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from pyspark.sql import SparkSession

import headrace as hr
from headrace.event_time.record import BatchLog
from headrace.observe.committed import committed_rows
from tests.recovery.conftest import delta_rows
from tests.topics import create_topic, messages

pytestmark = pytest.mark.spark

SINKS = ("files", "delta", "kafka", "postgres", "redis")
SERVERS = {"kafka": "kafka", "postgres": "postgres", "redis": "redis_server"}
SCHEMA = "account STRING, amount BIGINT, at TIMESTAMP"
OLDER, LATEST, ALL = 4, 6, 7
"""So many files have been read when the older copy is made, and the latest one; and in the end."""
PARTS = {
    "log": ("fork/log",),
    "state": ("fork/state",),
    "sources": ("fork/sources",),
    "dead letters": ("fork/dead_letters",),
    "late rows": ("fork/late",),
    "lease": ("lease",),
}
"""What a checkpoint consists of, but for the history, which is there for people."""
Mixture = dict[str, str]
"""Each part as it is, as it was, or gone."""
MIXTURES: list[Mixture] = [
    dict(zip(PARTS, chosen, strict=True)) for chosen in product(("latest", "older", "lost"), repeat=len(PARTS))
]
WHOLE: Mixture = dict.fromkeys(PARTS, "latest")
SAMPLE = [mixture for mixture in MIXTURES if {**mixture, "lease": "latest"} != WHOLE][::119]
ONE_BY_ONE: list[Mixture] = [
    {**WHOLE, part: moment} for part in PARTS if part != "lease" for moment in ("older", "lost")
]
REFUSALS = {"CHECKPOINT_INCOMPLETE", "CHECKPOINT_FORKED", "MARK_LOST", "FENCED"}
Rows = list[tuple[Any, ...]]
_PLACES = count()
"""The servers are those of the whole run, and so are the names of topics, tables and keys."""


@dataclass
class Place:
    """A flow of windows, with late rows and dead letters in its checkpoint, into one kind of sink."""

    root: Path
    sink: str
    address: str
    spark: SparkSession
    landed: int = 0

    def __post_init__(self) -> None:
        (self.root / "in").mkdir(parents=True)
        if self.sink == "kafka":
            create_topic(self.address, self.root.name, 2)

    @property
    def latest(self) -> Path:
        """The checkpoint that has written what the sink holds."""
        return self.root / "latest"

    @property
    def older(self) -> Path:
        """A copy of it from before."""
        return self.root / "older"

    def land(self, files: int) -> None:
        """An hour in each file: two accounts, a line that is broken, and soon a row that is late."""
        for hour in range(self.landed, files):
            rows = [(account, hour + 1, hour, 30) for account in "ab"]
            rows += [("late", hour, hour - 3, 0)] if hour >= 3 else []
            lines = [
                json.dumps({"account": account, "amount": amount, "at": f"2025-01-01T{at:02}:{minute:02}:00Z"})
                for account, amount, at, minute in rows
            ]
            hidden = self.root / "in" / f".{hour}"
            hidden.write_text("\n".join([*lines, f"broken {hour}"]) + "\n")
            os.utime(hidden, (1_700_000_000 + hour,) * 2)
            hidden.rename(self.root / "in" / f"{hour}.json")
        self.landed = files

    def run(self, checkpoint: Path, *, files_per_batch: int = 1) -> None:
        """Run over what is there."""

        @hr.pipeline(name="fork")
        def fork(spark: SparkSession) -> None:
            rows = hr.read_files(
                spark, self.root / "in", format="json", schema=SCHEMA, name="rows", files_per_batch=files_per_batch
            )
            hourly = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)")
            windows = rows.transform(hr.event_time("at")).transform(hourly.late(hr.side_output()))
            flat = windows.selectExpr("account", "hour(window.start) AS hour", "spent")
            hr.write("fork", flat, self._sink())

        fork.run(checkpoint=checkpoint, mode=hr.available_now(), spark=self.spark)

    def refusal(self, checkpoint: Path, **how: int) -> hr.HeadraceError | None:
        """Why it does not run, with an id; None when it has run. Any other error is a failure."""
        try:
            self.run(checkpoint, **how)
        except hr.HeadraceError as problem:
            return problem
        return None

    def _sink(self) -> Any:
        name = self.root.name
        match self.sink:
            case "kafka":
                return hr.to_kafka(name, servers=self.address, key="account")
            case "postgres":
                return hr.to_postgres(name, dsn=self.address)
            case "redis":
                return hr.to_redis(self.address, key=f"{name}:{{account}}:{{hour}}", value="json")
            case "delta":
                return hr.to_delta(self.root / "table")
            case _:
                return hr.to_files(self.root / "out")

    def begin(self, *, interrupted: bool) -> None:
        """Make the older copy and the latest one; that may have a batch which its sinks have, and its log has not."""
        self.land(OLDER)
        self.run(self.latest)
        shutil.copytree(self.latest, self.older)
        self.land(LATEST)
        if not interrupted:
            self.run(self.latest)
            return
        self.die_in(BatchLog.write_outcome, batches=2)

    def die_in(self, step: Callable[..., None], *, batches: int = 1) -> None:
        """Run until a step of that many batches, and die: a record is written and no outcome is."""
        done = list[Any]()

        def die(log: BatchLog, what: Any) -> None:
            done.append(what)
            if len(done) < batches or step == BatchLog.write_record:
                step(log, what)
            if len(done) == batches:
                raise ConnectionResetError("the power fails")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BatchLog, step.__name__, die)
            with pytest.raises(ConnectionResetError):
                self.run(self.latest)

    def mixed(self, mixture: Mixture) -> Path:
        """A checkpoint of these parts."""
        checkpoint = self.root / "mixed"
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(self.latest, checkpoint)
        for part, moment in mixture.items():
            for folder in PARTS[part]:
                shutil.rmtree(checkpoint / folder, ignore_errors=True)
                if moment != "lost" and (getattr(self, moment) / folder).exists():
                    shutil.copytree(getattr(self, moment) / folder, checkpoint / folder)
        return checkpoint

    def rows(self) -> Rows:
        """What the sink holds."""
        name, columns = self.root.name, ("account", "hour", "spent")
        match self.sink:
            case "kafka":
                found = [json.loads(value or b"") for _, value in messages(self.address, name)]
                return sorted(tuple(row[column] for column in columns) for row in found)
            case "postgres":
                with psycopg.connect(self.address) as connection:
                    return sorted(connection.execute(f"select account, hour, spent from {name}").fetchall())
            case "redis":
                with redis.Redis.from_url(self.address) as client:
                    kept = [json.loads(client.get(key) or b"") for key in client.scan_iter(f"{name}:*", count=1000)]
                return sorted(tuple(row[column] for column in columns) for row in kept)
            case "delta":
                return sorted(delta_rows(self.root / "table").select(columns).rows())
            case _:
                return sorted(committed_rows(self.root / "out").select(columns).rows())

    def check_all(self, checkpoint: Path) -> None:
        """Everything that was landed is there once: windows, late rows and dead letters."""
        assert self.rows() == sorted((account, hour, hour + 1) for account in "ab" for hour in range(self.landed - 1))
        late = committed_rows(checkpoint / "fork" / "late" / "hourly")
        assert sorted(late["amount"]) == list(range(3, self.landed))
        letters = committed_rows(checkpoint / "fork" / "dead_letters")
        assert sorted(letters["raw"]) == [f"broken {hour}".encode() for hour in range(self.landed)]


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Callable[..., Place]:
    """Makes places, each with a sink of its own."""

    def make(sink: str, *, interrupted: bool) -> Place:
        server = request.getfixturevalue(SERVERS[sink]) if sink in SERVERS else None
        addresses = {"kafka": "address", "postgres": "dsn", "redis": "url"}
        address = "" if server is None else getattr(server, addresses[sink])
        place = Place(tmp_path / f"half_{os.getpid()}_{next(_PLACES)}_{sink}", sink, address, spark)
        place.begin(interrupted=interrupted)
        place.land(ALL)
        return place

    return make


def check_mixtures(new_place: Callable[..., Place], sink: str, mixtures: list[Mixture], *, interrupted: bool) -> None:
    """Only what is whole goes on, and exactly; whatever else is tried is refused, and does not get in its way."""
    place, refused = new_place(sink, interrupted=interrupted), set[str]()
    for mixture in mixtures:
        checkpoint = place.mixed(mixture)
        whole = all(moment == "latest" for part, moment in mixture.items() if part != "lease")
        problem = place.refusal(checkpoint, files_per_batch=2)
        assert (problem is None) == whole, (mixture, problem)
        if problem is not None:
            refused.add(problem.id)
            continue
        place.check_all(checkpoint)
        place = new_place(sink, interrupted=interrupted)
    assert refused <= REFUSALS
    place.run(place.latest)
    place.check_all(place.latest)


@pytest.mark.parametrize("sink", SINKS)
def test_a_copy_that_is_put_back_or_run_in_turn_and_one_that_lacks_a_part_are_refused(
    sink: str, new_place: Callable[..., Place]
) -> None:
    place = new_place(sink, interrupted=False)
    for mixture in (dict.fromkeys(PARTS, "older"), *ONE_BY_ONE):
        problem = place.refusal(place.mixed(mixture))
        assert problem is not None, mixture
        assert problem.id in REFUSALS, (mixture, problem)
    copied = place.mixed({**WHOLE, "lease": "older"}).rename(place.root / "copied")
    place.die_in(BatchLog.write_record)
    if problem := place.refusal(copied):
        # Which of two copies that start at the same entry is the newer one is chance; a second start is newer.
        assert problem.id == "FENCED"
        place.run(copied)
    place.check_all(copied)
    # The first one has begun a batch of the same number as one that the copy has written, and later rows to write.
    refused = []
    for files in (ALL, ALL, ALL + 1):
        place.land(files)
        problem = place.refusal(place.latest, files_per_batch=2)
        assert problem is not None
        refused.append(problem.id)
    assert refused[0] in ("CHECKPOINT_FORKED", "FENCED")
    assert refused[1:] == ["CHECKPOINT_FORKED"] * 2
    place.run(copied)
    place.check_all(copied)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("interrupted", [False, True], ids=["between batches", "in a batch"])
@pytest.mark.parametrize("sink", SINKS)
def test_every_mixture_of_parts_gives_the_exact_result_or_is_refused(
    sink: str, interrupted: bool, new_place: Callable[..., Place]
) -> None:
    # Two folders of one kind are apart, and the lease is older, with one sink only: others know nothing of them.
    usual = [each for each in MIXTURES if each["dead letters"] == each["late rows"] and each["lease"] != "older"]
    check_mixtures(new_place, sink, MIXTURES if sink == "files" else usual, interrupted=interrupted)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "one digit": lambda content: _with_another_digit(content),
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
}


def _with_another_digit(content: bytes) -> bytes:
    """Content in which the middle one of its digits, or of its bytes if it has none, is another one."""
    digits = [place for place, byte in enumerate(content) if chr(byte).isdecimal()] or range(len(content))
    place = digits[len(digits) // 2]
    return content[:place] + (b"7" if content[place : place + 1] != b"7" else b"3") + content[place + 1 :]


def check_damage(place: Place, file: Path, damage: str) -> str:
    """Damage one file of a copy: the start names it, or who reads the rows is told its name, or all is exact."""
    checkpoint = place.mixed({})
    damaged = checkpoint / file
    damaged.write_bytes(DAMAGES[damage](damaged.read_bytes()))
    if problem := place.refusal(checkpoint):
        assert file.name in str(problem), (file, damage, problem)
        return "refused"
    try:
        place.check_all(checkpoint)
    except hr.HeadraceError as problem:
        said = str(problem)
    else:
        return "exact"
    assert str(damaged) in said, (file, damage)
    return "told"


def test_parts_of_several_moments_damaged_files_and_lost_folders_are_named_and_the_whole_checkpoint_goes_on(
    new_place: Callable[..., Place],
) -> None:
    place = new_place("files", interrupted=True)
    for mixture in SAMPLE:
        problem = place.refusal(place.mixed(mixture))
        assert problem is not None, mixture
        assert problem.id in REFUSALS, mixture
    for folder, damage in (("fork/log", "one digit"), ("fork/sources", "one digit"), ("lease", "empty")):
        newest = max((place.latest / folder).rglob("*.*"), key=lambda file: (file.stat().st_mtime_ns, file.name))
        assert check_damage(place, newest.relative_to(place.latest), damage) == "refused"
    checkpoint = place.mixed({})
    shutil.rmtree(checkpoint / "fork")
    assert "[CHECKPOINT_INCOMPLETE]" in str(problem := place.refusal(checkpoint))
    assert "its lease knows the flow fork-" in str(problem)
    place.run(place.latest)
    place.check_all(place.latest)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("interrupted", [False, True], ids=["between batches", "in a batch"])
def test_whatever_file_is_damaged_it_is_named_or_not_needed(interrupted: bool, new_place: Callable[..., Place]) -> None:
    place, found = new_place("files", interrupted=interrupted), defaultdict[str, set[str]](set)
    for number in range(len(_needed(place.latest))):
        for damage in DAMAGES:
            file = _needed(place.latest)[number]
            outcome = check_damage(place, file, damage)
            found[outcome].add(file.parts[-2])
            if outcome != "refused":
                place = new_place("files", interrupted=interrupted)
    assert {"log", "lease", "hourly", "rows", "_commits"} <= found["refused"] | found["told"]
    # No list is believed that says something else than was written.
    assert "_commits" not in found["exact"]


def _needed(checkpoint: Path) -> list[Path]:
    """The files of a checkpoint in order, but for those of rows, of which lists say what counts, and the history."""
    files = [each.relative_to(checkpoint) for each in sorted(checkpoint.rglob("*.*")) if each.is_file()]
    return [file for file in files if file.suffix != ".parquet" and file.name != "history.jsonl"]
