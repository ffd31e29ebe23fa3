"""``hr.to_redis`` and a real server: what its keys hold, whatever fails."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import redis

from headrace.connectors.base.sink import Delivered, Guarantee, Unreachable, WriterBatch
from headrace.connectors.redis import client as redis_client
from headrace.connectors.redis import sink as redis_sink
from headrace.connectors.redis.chunks import StoredChunk
from headrace.connectors.redis.sink import RedisSink, to_redis
from headrace.connectors.servers import running
from headrace.errors import HeadraceError
from headrace.secrets import secret
from headrace.services.service import Service
from tests.writers import Writer

COLUMNS = {"id": pl.Int64(), "n": pl.Int64()}


@pytest.fixture
def flow() -> str:
    """A new flow, whose name is in all its keys."""
    return f"flow-{uuid.uuid4().hex[:8]}"


def _writer(flow: str, *, epoch: int = 1) -> Writer:
    return Writer(flow, epoch=epoch)


def _part(
    flow: str, batch: int, last: int | None, *, generation: int = 0, epoch: int = 1, token: str = ""
) -> WriterBatch:
    return _writer(flow, epoch=epoch).batch(generation, batch, last, token=token)


def _rows(count: int, n: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"id": range(count)}).with_columns(n=pl.lit(n, pl.Int64))


def _sink(server: Service, flow: str, **more: Any) -> RedisSink:
    sink = to_redis(server.url, key=flow + ":{id}", **more)
    sink.prepare(COLUMNS, [_writer(flow).name], 1)
    return sink


def _values(server: Service, flow: str) -> dict[int, Any]:
    """What the flow's JSON keys hold."""
    with redis.Redis.from_url(server.url) as client:
        keys = sorted(client.scan_iter(f"{flow}:*", count=10_000))
        texts = client.mget(keys) if keys else []
    values = [json.loads(text) for text in texts]
    return {value["id"]: value["n"] for value in values}


@contextmanager
def _client(server: Service) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


def test_a_row_replaces_its_hash_and_a_null_removes_the_field(redis_server: Service, flow: str) -> None:
    sink = to_redis(redis_server.url, key=flow + ":{account}:{window_start}")
    first = pl.DataFrame({"account": ["a"], "window": [{"start": 10, "end": 11}], "spent": [2.5], "note": ["x"]})
    sink.prepare(dict(first.schema), [_writer(flow).name], 1)
    sink.deliver(first, _part(flow, 0, None))
    with _client(redis_server) as client:
        fields = {"account": "a", "window_start": "10", "window_end": "11", "spent": "2.5", "note": "x"}
        assert client.hgetall(f"{flow}:a:10") == fields
        nulled = first.with_columns(note=pl.lit(None, pl.String), spent=pl.lit(3.0))
        assert sink.deliver(nulled, _part(flow, 1, 0)) == Delivered(1)
        del fields["note"]
        assert client.hgetall(f"{flow}:a:10") == fields | {"spent": "3.0"}
        assert client.pttl(f"{flow}:a:10") == -1


@pytest.mark.parametrize("value", ["hash", "json"])
def test_a_key_lives_as_long_as_it_is_told(redis_server: Service, flow: str, value: Any) -> None:
    _sink(redis_server, flow, value=value, ttl="1 minute").deliver(_rows(1), _part(flow, 0, None))
    with _client(redis_server) as client:
        assert 50_000 < client.pttl(f"{flow}:0") <= 60_000


def test_a_changelog_sets_and_deletes_keys(redis_server: Service, flow: str) -> None:
    sink = to_redis(redis_server.url, key=flow + ":{id}", value="json")
    changes = ["insert", "insert", "update_before", "update_after", "delete"]
    rows = pl.DataFrame({"id": [1, 2, 1, 1, 2], "n": [10, 20, 10, 11, 20], "change": changes})
    sink.prepare(dict(rows.schema), [_writer(flow).name], 1)
    first, second = (_writer(flow).batch(0, batch, last, changelog=True) for batch, last in ((0, None), (1, 0)))
    assert sink.deliver(rows.head(2), first) == Delivered(2)
    assert _values(redis_server, flow) == {1: 10, 2: 20}
    assert sink.deliver(rows.tail(3), second) == Delivered(2, superseded=1)
    assert _values(redis_server, flow) == {1: 11}


def test_a_part_that_is_marked_is_not_written_again(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json")
    rows = pl.concat([_rows(2_500), pl.DataFrame({"id": [7, None], "n": [99, 1]})])
    first = sink.deliver(rows, _part(flow, 0, None))
    again = sink.deliver(rows.with_columns(n=pl.lit(5, pl.Int64)), _part(flow, 0, None))
    assert (first.written, first.superseded, first.already_marked) == (2_500, 1, 0)
    assert (again.written, again.superseded, again.already_marked) == (0, 1, 2_500)
    for delivered in (first, again):
        assert delivered.refused is not None
        assert delivered.refused["reason"].to_list() == ["NO_KEY"]
    assert _values(redis_server, flow) == {id: 99 if id == 7 else 0 for id in range(2_500)}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_part_of_which_every_row_is_refused_leaves_its_mark(
    redis_server: Service, flow: str, guarantee: Guarantee
) -> None:
    sink = _sink(redis_server, flow, value="json", guarantee=guarantee)
    keyless = pl.DataFrame({"id": [None, None], "n": [1, 2]}, schema=COLUMNS)
    for _ in range(2):
        delivered = sink.deliver(keyless, _part(flow, 0, None))
        assert (delivered.written, delivered.already_marked) == (0, 0)
        assert delivered.refused is not None
        assert delivered.refused.height == 2
    assert sink.deliver(_rows(3), _part(flow, 1, 0)) == Delivered(3)
    assert sink.deliver(keyless, _part(flow, 2, 1)).written == 0
    assert _values(redis_server, flow) == dict.fromkeys(range(3), 0)


def test_a_restart_finds_the_mark_and_a_new_generation_begins_at_batch_0(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json")
    sink.deliver(_rows(10), _part(flow, 7, None))
    sink.prepare(COLUMNS, [_writer(flow).name], 2)
    assert sink.deliver(_rows(10, 1), _part(flow, 7, None, epoch=2)) == Delivered(0, already_marked=10)
    assert sink.deliver(_rows(10, 2), _part(flow, 0, None, generation=1, epoch=2)) == Delivered(10)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(10, 3), _part(flow, 8, 7, epoch=2))
    assert problem.value.id == "GENERATION_OLD"
    assert _values(redis_server, flow) == dict.fromkeys(range(10), 2)


def test_of_two_copies_of_a_checkpoint_only_one_can_write(
    redis_server: Service, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(redis_server, flow, value="json")
    assert sink.deliver(_rows(3), _part(flow, 0, None, token="one")) == Delivered(3)
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.deliver(_rows(3, 1), _part(flow, 0, None, token="other"))
    # The other one writes between our look at the mark and our first chunk.
    monkeypatch.setattr(RedisSink, "_stored", lambda *_: StoredChunk())
    with pytest.raises(HeadraceError, match="CHECKPOINT_FORKED"):
        sink.deliver(_rows(3, 1), _part(flow, 0, None, token="other"))
    assert _values(redis_server, flow) == dict.fromkeys(range(3), 0)


def test_a_driver_of_an_older_epoch_writes_nothing(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json")
    sink.prepare(COLUMNS, [_writer(flow).name], 2)
    for attempt in (
        lambda: sink.deliver(_rows(10), _part(flow, 0, None, epoch=1)),
        lambda: sink.prepare(COLUMNS, [_writer(flow).name], 1),
    ):
        with pytest.raises(HeadraceError) as problem:
            attempt()
        assert problem.value.id == "FENCED"
    assert _values(redis_server, flow) == {}
    assert sink.deliver(_rows(10), _part(flow, 0, None, epoch=2)) == Delivered(10)


def _interrupted(monkeypatch: pytest.MonkeyPatch, after: int, action: Any) -> None:
    """Something happens between two chunks of the next part."""
    run = redis_client.run

    def interrupted(client: redis.Redis, commands: Iterable[Sequence[Any]]) -> None:
        monkeypatch.setattr(redis_sink, "run", run)
        every = list(commands)
        run(client, every[:after])
        action()
        run(client, every[after:])

    monkeypatch.setattr(redis_sink, "run", interrupted)


def test_a_zombie_is_fenced_between_two_chunks(
    redis_server: Service, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(redis_server, flow, value="json")
    _interrupted(monkeypatch, 1, lambda: sink.prepare(COLUMNS, [_writer(flow).name], 2))
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(3_000), _part(flow, 0, None, epoch=1))
    assert problem.value.id == "FENCED"
    assert len(_values(redis_server, flow)) == 1_000
    delivered = sink.deliver(_rows(3_000), _part(flow, 0, None, epoch=2))
    assert delivered == Delivered(2_000, already_marked=1_000)
    assert len(_values(redis_server, flow)) == 3_000


def test_a_part_that_was_half_written_goes_on_with_the_next_chunk(
    redis_server: Service, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise redis.ConnectionError("cut")

    sink = _sink(redis_server, flow, value="json")
    _interrupted(monkeypatch, 2, lost)
    with pytest.raises(Unreachable, match="cut"):
        sink.deliver(_rows(3_500), _part(flow, 0, None))
    shuffled = _rows(3_500, 1).sample(fraction=1, shuffle=True, seed=3)
    assert sink.deliver(shuffled, _part(flow, 0, None)) == Delivered(1_500, already_marked=2_000)
    assert sorted(_values(redis_server, flow).values()) == [0] * 2_000 + [1] * 1_500
    _interrupted(monkeypatch, 1, lost)
    with pytest.raises(Unreachable):
        sink.deliver(_rows(3_500), _part(flow, 1, 0))
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(1_500), _part(flow, 1, 0))
    assert problem.value.id == "BATCH_DIFFERS"


def test_a_chunk_behind_one_that_failed_is_not_written(
    redis_server: Service, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(redis_server, flow, value="json")
    run = redis_client.run
    monkeypatch.setattr(redis_sink, "run", lambda client, commands: run(client, list(commands)[1:]))
    with pytest.raises(Unreachable, match="GAP"):
        sink.deliver(_rows(3_000), _part(flow, 0, None))
    assert _values(redis_server, flow) == {}
    monkeypatch.undo()
    assert sink.deliver(_rows(3_000), _part(flow, 0, None)) == Delivered(3_000)


def test_a_mark_that_was_removed_is_missed(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json")
    sink.deliver(_rows(10), _part(flow, 4, None))
    with _client(redis_server) as client:
        [mark] = client.keys(f"headrace:mark:*{flow}*")
        assert client.hgetall(mark) == {
            "epoch": "1",
            "generation": "0",
            "batch": "4",
            "chunk": "0",
            "chunks": "1",
            "rows": "10",
            "token": "",
        }
        client.delete(mark)
    with pytest.raises(HeadraceError) as problem:
        sink.deliver(_rows(10, 1), _part(flow, 5, 4))
    assert problem.value.id == "MARK_LOST"
    assert _values(redis_server, flow) == dict.fromkeys(range(10), 0)


def test_at_least_once_writes_each_time_and_leaves_no_mark(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json", guarantee="at_least_once")
    for n in range(2):
        assert sink.deliver(_rows(1_500, n), _part(flow, 0, None)) == Delivered(1_500)
    assert _values(redis_server, flow) == dict.fromkeys(range(1_500), 1)
    with _client(redis_server) as client:
        assert client.keys(f"headrace:mark:*{flow}*") == []


def test_a_server_that_is_full_or_read_only_is_waited_for(redis_server: Service, flow: str) -> None:
    sink = _sink(redis_server, flow, value="json")
    with _client(redis_server) as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(Unreachable, match="maxmemory"):
                sink.deliver(_rows(3_000), _part(flow, 0, None))
        finally:
            client.config_set("maxmemory", "0")
        client.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(Unreachable):
                sink.deliver(_rows(3_000), _part(flow, 0, None))
        finally:
            client.replicaof("NO", "ONE")
        client.script_flush()
    assert sink.deliver(_rows(3_000), _part(flow, 0, None)) == Delivered(3_000)


def test_a_wrong_password_is_refused_and_never_shown(
    redis_server: Service, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGHT", "correct-horse")
    monkeypatch.setenv("WRONG", "hunter2")
    url = redis_server.url.replace("redis://", f"redis://{flow}@")
    with _client(redis_server) as client:
        client.acl_setuser(flow, enabled=True, passwords=["+correct-horse"], keys=["*"], commands=["+@all"])
        right = to_redis(url, key=flow + ":{id}", value="json", password=secret(env="RIGHT"))
        right.prepare(COLUMNS, [_writer(flow).name], 1)
        assert right.deliver(_rows(10), _part(flow, 0, None)) == Delivered(10)
        wrong = to_redis(url, key=flow + ":{id}", password=secret(env="WRONG"))
        with pytest.raises(HeadraceError) as problem:
            wrong.prepare(COLUMNS, [_writer(flow).name], 1)
        assert problem.value.id == "SINK_REFUSED"
        assert "hunter2" not in f"{problem.value} {wrong!r} {wrong.place}"
        client.acl_setuser(flow, commands=["-set"])
        with pytest.raises(HeadraceError) as problem:
            right.deliver(_rows(10), _part(flow, 1, 0))
        assert problem.value.id == "SINK_REFUSED"
        client.acl_deluser(flow)


def test_a_cluster_is_refused(tmp_path: Path, flow: str) -> None:
    socket = tmp_path / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path), "--save", ""]
    command += ["--cluster-enabled", "yes", "--bind", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while not socket.exists():
                assert process.poll() is None
                time.sleep(0.05)
            with pytest.raises(HeadraceError) as problem:
                to_redis(f"unix://{socket}", key="n:{id}").prepare(COLUMNS, [_writer(flow).name], 1)
            assert problem.value.id == "REDIS_CLUSTER"
        finally:
            process.kill()


@pytest.mark.full
def test_a_server_that_is_killed_and_comes_back_has_every_key(flow: str) -> None:
    with running("redis") as server:
        sink = _sink(server, flow, value="json")
        written: list[int] = []
        missed: list[float] = []

        def write() -> None:
            batch = 0
            while batch < 30:
                try:
                    sink.deliver(_rows(10_000, batch), _part(flow, batch, batch - 1 if batch else None))
                except Unreachable:
                    missed.append(time.monotonic())
                    time.sleep(0.1)
                else:
                    written.append(batch)
                    batch += 1

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        for after in (5, 12, 20):
            while len(written) < after:
                time.sleep(0.002)
            server.kill()
            time.sleep(0.5)
            server.start()
        writing.join(300)
        assert not writing.is_alive()
        assert missed != []
        assert _values(server, flow) == dict.fromkeys(range(10_000), 29)
