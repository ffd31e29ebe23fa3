"""A canary: passwords given as ``hr.secret(...)`` are used, and are found nowhere afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headrace.services.service import Service
from tests.bad_service import bad_service

pytestmark = [pytest.mark.spark, pytest.mark.full]

# A job of its own, so that all that it says can be searched; it runs well once and fails in every way it can.
JOB = """
import logging, os, sys, time, traceback
from pathlib import Path
import headrace as hr

logging.basicConfig(level="DEBUG")
logging.getLogger("py4j").setLevel("INFO")
root, dsn, kafka, redis, http = Path(sys.argv[1]), *sys.argv[2:]
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


def copying(*sinks, options=None, step=lambda rows: rows):
    @hr.pipeline(name="copy")
    def copy(spark):
        if options is None:
            rows = hr.read_files(spark, root / "in", format="json", schema="id STRING, n BIGINT", name="numbers")
        else:
            rows = hr.read_kafka(spark, "in", servers=kafka, schema="id STRING", name="numbers", options=options)
        rows.explain("extended")
        hr.write("copy", (rows.transform(step), *sinks))

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

# Passwords in the open, which must not leave the process by what it says.
plain = os.environ["JOB_PASSWORD"]
attempt("plain", copying(hr.to_postgres("canary.good", dsn=f"{dsn} password=wrong-{plain}")))
attempt("torn", copying(hr.to_redis(redis.replace("//", "//ann:hunter2@"), key="{id}")))
try:
    hr.to_redis(redis.replace("//", f"//ann:{plain}/{plain}@"), key="{id}")
except hr.DefinitionError as problem:
    print(problem)

# A receiver that repeats what it is told.
headers = {"Authorization": password, "X-Api-Key": plain}
login = http.replace("//", f"//ann:{plain}@")
attempt("http_401", copying(hr.to_http(f"{login}/401", identity="id", headers={"X-Api-Key": password})))
attempt("http_422", copying(hr.to_http(f"{http}/422?token={plain}", identity="id", headers=headers)))
broken = hr.secret(env="BROKEN_PASSWORD")
attempt("http_header", copying(hr.to_http(f"{http}/200", identity="id", headers={"Authorization": broken})))
enrich = hr.lookup(
    "enrich",
    hr.http_lookup(f"{http}/200/{{id}}", headers=headers),
    on="id",
    output="name STRING",
    on_failure="dead_letter",
    timeout="5 seconds",
)
attempt("lookup", copying(hr.to_console(), step=enrich))
running = copying(hr.to_http(f"{login}/503", identity="id", headers=headers, retries=0)).start(
    checkpoint=root / "checkpoints" / "http_503", mode=hr.available_now(), spark=spark
)
while not list((root / "checkpoints" / "http_503").rglob("waiting/*.json")):
    time.sleep(0.1)
for marker in (root / "checkpoints" / "http_503").rglob("waiting/*.json"):
    print("waiting:", marker.read_text())
running.stop()
for name in ("http_422", "lookup"):
    for file in (root / "checkpoints" / name / "copy" / "dead_letters").rglob("*.parquet"):
        print("letters:", [(row["reason"], row["detail"]) for row in spark.read.parquet(str(file)).collect()])
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
    broken = {"WRONG_PASSWORD": f"wrong-{canary}", "BROKEN_PASSWORD": f"{canary}\nX-Other: 1"}
    environment = {**os.environ, "JOB_PASSWORD": canary, **broken}
    with bad_service() as receiver, (tmp_path / "output.txt").open("wb") as output:

        async def repeat(path: str) -> tuple[int, bytes]:
            lines = receiver.head.split(b"\r\n")
            told = [line for line in lines if line.lower().startswith((b"x-api-key", b"authorization"))]
            # The first question is only whether somebody is there.
            return 200 if lines[0].startswith(b"HEAD") else int(path[1:4]), b" ".join(told)

        receiver.answer = repeat
        command = [sys.executable, "job.py", str(tmp_path), address, kafka.address, redis_server.url, receiver.url]
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=output, stderr=output, check=True, timeout=300)
    said = (tmp_path / "output.txt").read_text(errors="replace")
    assert said.count("ended well") == 3
    with psycopg.connect(postgres.dsn) as admin:
        assert admin.execute("select id, n from canary.good order by 1").fetchall() == [("a", 1), ("b", 2)]
    for problem in ("[COLUMN_TYPE]", "permission denied", "password authentication failed", "[SINK_REFUSED] redis"):
        assert problem in said, said[-3000:]
    assert "[SINK_REFUSED] kafka" in said
    assert "[SOURCE_REFUSED]" in said
    assert "password=hr.secret(env='JOB_PASSWORD')" in said
    assert "[REDIS_URL] url='redis://ann:***@" in said
    assert "[SINK_REFUSED] http http://127.0.0.1" in said
    assert "[HEADER_INVALID]" in said
    assert "letters: [('HTTP_422', '422 Said " in said
    assert "letters: [('ANSWER_NOT_JSON', " in said
    # In base 64, "ann:" is left of the login.
    assert re.search(r"^waiting: .* 503 Said Authorization: Basic YW5uO\*\*\* X-Api-Key: \*\*\*", said, re.MULTILINE)
    # What is searched is there: the log, the plan, Spark's events, the checkpoint with its history.
    assert _holding(tmp_path, b"user=ann")
    assert "== Analyzed Logical Plan ==" in said
    assert list((tmp_path / "events").rglob("*"))
    assert (tmp_path / "checkpoints" / "good" / "copy" / "history.jsonl").exists()
    for form in (canary.encode(), b64encode(f"ann:{canary}".encode())[6:], f"wrong-{canary}".encode()[:12]):
        assert _holding(tmp_path, form) == []


def _holding(root: Path, words: bytes) -> list[Path]:
    """The files below a folder with these words in them; Spark, on its way out, removes some of its own meanwhile."""
    found = []
    for folder, _, files in os.walk(root):
        for file in files:
            with suppress(FileNotFoundError):
                if words in Path(folder, file).read_bytes():
                    found.append(Path(folder, file))
    return found
