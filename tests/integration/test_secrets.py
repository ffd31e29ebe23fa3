"""A canary: passwords given as ``hr.secret(...)`` are used, and are found nowhere afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headrace.services.service import Service

pytestmark = [pytest.mark.spark, pytest.mark.full]

# A job of its own, so that all that it says can be searched; it runs well once and fails in every way it can.
JOB = """
import sys, traceback
from pathlib import Path
import headrace as hr

root, dsn, kafka, redis = Path(sys.argv[1]), *sys.argv[2:]
password = hr.secret(env="JOB_PASSWORD")
settings = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": str(root / "events"),
    "spark.eventLog.compress": "false",
    "spark.local.dir": str(root / "local"),
}
spark = hr.spark_session("canary", master="local[2]", quick_start=True, settings=settings)
spark.sparkContext.setLogLevel("INFO")
sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}


def copying(*sinks, options=None):
    @hr.pipeline(name="copy")
    def copy(spark):
        if options is None:
            rows = hr.read_files(spark, root / "in", format="json", schema="id STRING, n BIGINT", name="numbers")
        else:
            rows = hr.read_kafka(spark, "in", servers=kafka, schema="id STRING", name="numbers", options=options)
        rows.explain("extended")
        hr.write("copy", (rows, *sinks))

    return copy


def attempt(name, pipeline):
    print(f"==== {name}", flush=True)
    print(pipeline.explain(spark=spark), pipeline.check(spark=spark), pipeline.draw(spark=spark), flush=True)
    try:
        pipeline.run(checkpoint=root / "checkpoints" / name, mode=hr.available_now(), spark=spark)
        print(f"{name} ended well", flush=True)
    except Exception as problem:
        traceback.print_exc()
        print(repr(problem), problem.__dict__, flush=True)


table = hr.to_postgres("canary.good", dsn=dsn, password=password, upsert_on="id")
attempt("good", copying(table))
attempt("type", copying(hr.to_postgres("canary.typed", dsn=dsn, password=password)))
attempt("rights", copying(hr.to_postgres("canary.closed", dsn=dsn, password=password)))
wrong = hr.secret(env="WRONG_PASSWORD")
attempt("password", copying(hr.to_postgres("canary.good", dsn=dsn, password=wrong)))
attempt("redis", copying(hr.to_redis(redis.replace("//", "//ann@"), key="{id}", password=wrong)))
attempt("sink", copying(hr.to_kafka("out", servers=kafka, options={**sasl, "sasl.password": password})))
attempt("source", copying(hr.to_console(), options={**sasl, "sasl.password": password}))
spark.stop()
"""


@pytest.fixture
def dsn(postgres: Service) -> Iterator[tuple[str, str]]:
    """The address for a user of PostgreSQL with a password that nobody else has, and that password."""
    password = f"c4n4ry{uuid.uuid4().hex}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create role ann login password {}").format(sql.Literal(password)))
        admin.execute("create schema canary authorization ann")
        admin.execute("create table canary.typed (id text, n date)")
        admin.execute("create table canary.closed (id text, n bigint)")
        admin.execute("grant select on canary.typed, canary.closed to ann")
        yield f"host=127.0.0.1 port={postgres.port} user=ann dbname=postgres passfile=/dev/null", password
        admin.execute("drop schema canary cascade")
        admin.execute("drop role ann")


def test_a_password_is_in_no_log_plan_checkpoint_history_event_log_or_error(
    dsn: tuple[str, str], kafka: Service, postgres: Service, redis_server: Service, tmp_path: Path
) -> None:
    address, canary = dsn
    for folder in ("in", "events", "local"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
    (tmp_path / "job.py").write_text(JOB)
    environment = {**os.environ, "JOB_PASSWORD": canary, "WRONG_PASSWORD": f"wrong-{canary}"}
    command = [sys.executable, "job.py", str(tmp_path), address, kafka.address, redis_server.url]
    with (tmp_path / "output.txt").open("wb") as output:
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=output, stderr=output, check=True, timeout=300)
    said = (tmp_path / "output.txt").read_text(errors="replace")
    assert said.count("ended well") == 1
    with psycopg.connect(postgres.dsn) as admin:
        assert admin.execute("select id, n from canary.good order by 1").fetchall() == [("a", 1), ("b", 2)]
    for problem in ("[COLUMN_TYPE]", "permission denied", "password authentication failed", "[SINK_REFUSED] redis"):
        assert problem in said, said[-3000:]
    assert "[SINK_REFUSED] kafka" in said
    assert "[SOURCE_REFUSED]" in said
    assert "password=hr.secret(env='JOB_PASSWORD')" in said
    # What is searched is there: the log, the plan, Spark's events, the checkpoint with its history.
    assert _holding(tmp_path, b"user=ann")
    assert "== Analyzed Logical Plan ==" in said
    assert list((tmp_path / "events").rglob("*"))
    assert (tmp_path / "checkpoints" / "good" / "copy" / "history.jsonl").exists()
    assert _holding(tmp_path, canary.encode()) == []


def _holding(root: Path, words: bytes) -> list[Path]:
    """The files below a folder with these words in them; Spark, on its way out, removes some of its own meanwhile."""
    found = []
    for folder, _, files in os.walk(root):
        for file in files:
            with suppress(FileNotFoundError):
                if words in Path(folder, file).read_bytes():
                    found.append(Path(folder, file))
    return found
