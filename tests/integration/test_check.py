"""``check``: everything that a start would refuse and that can be known without data, each as a finding."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.plan.check import Finding
from headrace.runtime.pipeline import Pipeline
from headrace.services.service import Service
from tests.topics import create_topic

pytestmark = pytest.mark.spark

SCHEMA = "id STRING, account STRING, amount BIGINT, tags ARRAY<STRUCT<name: STRING>>, at TIMESTAMP"
NOBODY = "127.0.0.1:1"


def _copy(place: Any, *sinks: Any, name: str = "copy", columns: str = "*", read: Any = None) -> Pipeline:
    @hr.pipeline(name=name)
    def copy(spark: SparkSession) -> None:
        rows = read(spark) if read is not None else hr.read_files(spark, place.landing, format="json", schema=SCHEMA)
        hr.write("copy", (rows.selectExpr(*columns.split(";")), *sinks))

    return copy


def _errors(pipeline: Pipeline, spark: SparkSession, **options: Any) -> list[Finding]:
    return [found for found in pipeline.check(spark=spark, **options) if found.severity == "error"]


def _refused(pipeline: Pipeline, place: Any, spark: SparkSession, **options: Any) -> str:
    """The id with which a start refuses the pipeline, before any batch."""
    with pytest.raises(hr.HeadraceError) as raised:
        pipeline.start(checkpoint=options.pop("checkpoint", place.root / uuid.uuid4().hex), spark=spark, **options)
    return raised.value.id


KAFKA: dict[str, Any] = {"servers": NOBODY}
TABLE: dict[str, Any] = {"dsn": "host=127.0.0.1 port=1"}


@pytest.mark.parametrize(
    ("sinks", "columns", "id", "said"),
    [
        ([hr.to_kafka("t", **KAFKA)] * 2, "*", "SINK_TWICE", "Leave one out"),
        ([hr.to_kafka("t", key="nobody", **KAFKA)], "*", "COLUMN_UNKNOWN", "Existing columns: id, account"),
        ([hr.to_kafka("t", format="raw", **KAFKA)], "*", "RAW_COLUMNS", "Select these columns"),
        ([hr.to_kafka("t", **KAFKA)], "map(id, 1) AS counts", "SCHEMA_UNSUPPORTED", "MAP<STRING, INT>"),
        ([hr.to_kafka("t", **KAFKA)], "map(id, 1) AS counts", "SCHEMA_UNSUPPORTED", "F.to_json('counts')"),
        ([hr.to_postgres("t", **TABLE)], "*", "COLUMN_TYPE", "ARRAY<STRUCT<name: STRING>>"),
        ([hr.to_postgres("t", **TABLE)], "*", "COLUMN_TYPE", "frame.withColumn('tags', F.to_json('tags'))"),
        ([hr.to_postgres("t", upsert_on="nobody", **TABLE)], "id", "COLUMN_UNKNOWN", "Existing columns: id"),
        ([hr.to_postgres("t", **TABLE)], "struct(id) AS a;id AS a_id", "COLUMN_EXISTS", "'a_id'"),
        ([hr.to_redis(f"redis://{NOBODY}", key="n:{nobody}")], "id", "COLUMN_UNKNOWN", "Existing columns: id"),
        ([hr.to_redis(f"redis://{NOBODY}", key="n:{tags}")], "tags", "TEMPLATE_COLUMN", "tags"),
        ([hr.to_http(f"http://{NOBODY}", identity="nobody")], "id", "COLUMN_UNKNOWN", "Existing columns: id"),
        ([hr.to_http(f"http://{NOBODY}", identity="tags")], "tags", "IDENTITY_MISSING", "not a scalar column"),
        ([hr.to_opensearch(f"http://{NOBODY}", "t", id="{id}")], "id;id AS _id", "COLUMN_RESERVED", "Rename"),
        ([hr.to_delta("t", upsert_on="nobody")], "id", "COLUMN_UNKNOWN", "but the rows have id"),
        ([hr.to_delta("t")], "INTERVAL '1' DAY AS lag", "DELTA_SCHEMA", "INTERVAL DAY"),
        ([hr.to_delta("t")], "INTERVAL '1' DAY AS lag", "DELTA_SCHEMA", "F.col('lag').cast('bigint')"),
    ],
)
def test_what_is_wrong_with_a_sink_is_found_without_its_server(
    place: Any, spark: SparkSession, sinks: list[Any], columns: str, id: str, said: str
) -> None:
    pipeline = _copy(place, *sinks, columns=columns)
    [found] = _errors(pipeline, spark)
    assert found.id == id == _refused(pipeline, place, spark)
    assert said in found.message
    assert "test_check.py" in found.message


def test_every_sink_that_is_wrong_is_named_not_only_the_first(place: Any, spark: SparkSession) -> None:
    sinks = hr.to_kafka("t", key="nobody", **KAFKA), hr.to_postgres("t", **TABLE), hr.to_files(place.root / "out")
    assert [found.id for found in _errors(_copy(place, *sinks), spark)] == ["COLUMN_UNKNOWN", "COLUMN_TYPE"]


def test_a_way_of_running_that_the_sources_do_not_allow_is_found(place: Any, spark: SparkSession) -> None:
    endless = _copy(place, hr.to_memory("none"), read=lambda spark: hr.generate(spark, hr.Payments()))
    drained, bounded = hr.available_now(drain=True), hr.micro_batch(max_rows=5)
    assert _errors(endless, spark) == _errors(_copy(place, hr.to_memory("none")), spark) == []
    for pipeline, mode in ((endless, drained), (_copy(place, hr.to_memory("none")), bounded)):
        [found] = _errors(pipeline, spark, mode=mode)
        assert found.id == _refused(pipeline, place, spark, mode=mode)


def test_a_table_type_is_found_on_the_command_line_with_the_way_to_convert_it(place: Any) -> None:
    place.root.joinpath("tagged.py").write_text(
        "import headrace as hr\n"
        "@hr.pipeline\n"
        "def tagged(spark):\n"
        f"    rows = hr.read_files(spark, {str(place.landing)!r}, format='json', schema={SCHEMA!r})\n"
        "    hr.write('tagged', rows, hr.to_postgres('t', dsn='host=127.0.0.1 port=1'))\n"
    )
    command = [str(Path(sys.executable).with_name("headrace")), "check", str(place.root / "tagged.py"), "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stderr
    [found] = [each for each in json.loads(said.stdout) if each["severity"] == "error"]
    assert found["id"] == "COLUMN_TYPE"


def _hourly(
    place: Any, flow: str = "spend", *, key: str = "account", folder: str = "in", name: str = "spend"
) -> Pipeline:
    @hr.pipeline(name=name)
    def spend(spark: SparkSession) -> None:
        rows = hr.read_files(spark, place.root / folder, format="json", schema=SCHEMA, name="payments")
        step = hr.tumbling("hourly", size="1 hour", key=key).agg(n="count(*)").late(hr.drop())
        hr.write(flow, rows.transform(hr.event_time("at")).transform(step), hr.to_files(place.root / "out"))

    return spend


def _run(pipeline: Pipeline, place: Any, spark: SparkSession, *, drain: bool = False) -> None:
    pipeline.run(checkpoint=place.checkpoint, mode=hr.available_now(drain=drain), spark=spark)


def test_a_checkpoint_that_does_not_fit_is_found_and_stays_as_it_is(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"))
    _run(_hourly(place), place, spark)
    (place.root / "else").mkdir()
    changed = {
        "STEP_CHANGED": _hourly(place, key="id"),
        "SOURCE_CHANGED": _hourly(place, folder="else"),
        "FLOW_RENAMED": _hourly(place, "spending"),
        "CHECKPOINT_OF_ANOTHER_PIPELINE": _hourly(place, name="spending"),
    }
    files = {file: file.stat().st_mtime_ns for file in place.checkpoint.rglob("*") if file.is_file()}
    assert _errors(_hourly(place), spark, checkpoint=place.checkpoint) == []
    for id, pipeline in changed.items():
        assert [found.id for found in _errors(pipeline, spark, checkpoint=place.checkpoint)] == [id]
    assert {file: file.stat().st_mtime_ns for file in place.checkpoint.rglob("*") if file.is_file()} == files
    for id, pipeline in changed.items():
        assert _refused(pipeline, place, spark, checkpoint=place.checkpoint) == id


def test_a_checkpoint_that_is_not_whole_or_was_drained_is_found(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"))
    _run(_hourly(place), place, spark)
    segment, *_ = (place.checkpoint / "spend" / "state").rglob("*.arrow")
    kept = segment.read_bytes()
    segment.unlink()
    found = _errors(_hourly(place), spark, checkpoint=place.checkpoint)
    assert [each.id for each in found] == ["CHECKPOINT_INCOMPLETE"]
    segment.write_bytes(kept)
    # The list of finished batches and the batch: whoever takes them away leaves a log that knows more than its sink.
    out = place.root / "out"
    _run(_hourly(place), place, spark, drain=True)
    [drained] = _errors(_hourly(place), spark, checkpoint=place.checkpoint)
    assert drained.id == "CHECKPOINT_DRAINED" == _refused(_hourly(place), place, spark, checkpoint=place.checkpoint)
    out.rename(place.root / "gone")
    found = _errors(_hourly(place), spark, checkpoint=place.checkpoint, connect=True)
    assert [each.id for each in found] == ["CHECKPOINT_DRAINED", "MARK_LOST"]


def test_marks_in_servers_are_compared_with_the_checkpoint(
    place: Any, spark: SparkSession, postgres: Service, redis_server: Service
) -> None:
    name = f"check_{uuid.uuid4().hex}"
    place.land("1", ("1", "a", 1, "10:00:00"))
    sinks = hr.to_postgres(name, dsn=postgres.url), hr.to_redis(redis_server.url, key=f"{name}:{{id}}")
    pipeline = _copy(place, *sinks, columns="id")
    _run(pipeline, place, spark)
    assert _errors(pipeline, spark, checkpoint=place.checkpoint, connect=True) == []
    with psycopg.connect(postgres.dsn, autocommit=True) as database:
        database.execute("delete from headrace_marks where target = %s", [name])
    [found] = _errors(pipeline, spark, checkpoint=place.checkpoint, connect=True)
    assert found.id == "MARK_LOST" == _refused(pipeline, place, spark, checkpoint=place.checkpoint)


def test_a_checkpoint_that_is_in_use_can_be_checked(place: Any, spark: SparkSession) -> None:
    place.land("1", ("1", "a", 1, "10:00:00"))
    running = _hourly(place).start(checkpoint=place.checkpoint, spark=spark)
    try:
        assert _errors(_hourly(place), spark, checkpoint=place.checkpoint, connect=True) == []
        [found] = _errors(_hourly(place, key="id"), spark, checkpoint=place.checkpoint)
        assert found.id == "STEP_CHANGED"
    finally:
        running.stop()


def test_a_checkpoint_that_is_not_there_yet_is_not_made(place: Any, spark: SparkSession) -> None:
    assert _errors(_hourly(place), spark, checkpoint=place.checkpoint) == []
    assert not place.checkpoint.exists()


def _one(pipeline: Pipeline, spark: SparkSession) -> Finding:
    """The only error that is found, and only with the servers."""
    assert _errors(pipeline, spark) == []
    [found] = _errors(pipeline, spark, connect=True)
    return found


UNREACHABLE = [
    hr.to_kafka("t", **KAFKA),
    hr.to_postgres("t", **TABLE),
    hr.to_redis(f"redis://{NOBODY}", key="{id}"),
    hr.to_http(f"http://{NOBODY}", identity="id", retries=0),
    hr.to_opensearch(f"http://{NOBODY}", "t", id="{id}"),
]


@pytest.mark.parametrize("sink", UNREACHABLE, ids=lambda sink: sink.target.split()[0])
def test_a_sink_whose_server_does_not_answer_is_a_finding(place: Any, spark: SparkSession, sink: Any) -> None:
    found = _one(_copy(place, sink, columns="id"), spark)
    assert found.id == "SINK_UNREACHABLE"
    assert "127.0.0.1:1" in found.message
    assert "Start the server" in found.message


def test_a_source_whose_server_does_not_answer_is_a_finding(place: Any, spark: SparkSession) -> None:
    sources = {
        "kafka": lambda spark: hr.read_kafka(spark, "t", servers=NOBODY, schema="id STRING"),
        "mqtt": lambda spark: hr.read_mqtt(spark, "t", servers=NOBODY, schema="id STRING"),
    }
    for read in sources.values():
        found = _one(_copy(place, hr.to_memory("none"), read=read), spark)
        assert found.id == "SOURCE_UNREACHABLE"
        assert NOBODY in found.message


def test_a_missing_topic_is_found_and_not_created(place: Any, spark: SparkSession, kafka: Service) -> None:
    topic, servers = f"check-{uuid.uuid4().hex}", kafka.address
    read = _copy(
        place, hr.to_memory("none"), read=lambda spark: hr.read_kafka(spark, topic, servers=servers, schema="id STRING")
    )
    write = _copy(place, hr.to_kafka(topic, servers=servers))
    for pipeline in (read, write):
        found = _one(pipeline, spark)
        assert found.id == "TOPIC_UNKNOWN" == _refused(pipeline, place, spark)
        assert topic in found.message
    create = hr.topic(partitions=2)
    assert _errors(_copy(place, hr.to_kafka(topic, servers=servers, create=create)), spark, connect=True) == []
    copies = _copy(place, hr.to_kafka(topic, servers=servers, create=hr.topic(partitions=2, replication=9)))
    assert _one(copies, spark).id == "TOPIC_NOT_CREATED"
    assert _one(write, spark).id == "TOPIC_UNKNOWN"


def test_a_topic_that_takes_no_such_messages_is_found(place: Any, spark: SparkSession, kafka: Service) -> None:
    compacted, small = (f"check-{uuid.uuid4().hex}" for _ in range(2))
    create_topic(kafka.address, compacted, 1, **{"cleanup.policy": "compact"})
    create_topic(kafka.address, small, 1, **{"max.message.bytes": "1000"})
    for topic, id in ((compacted, "KEY_MISSING"), (small, "MESSAGE_LIMIT")):
        pipeline = _copy(place, hr.to_kafka(topic, servers=kafka.address))
        assert _one(pipeline, spark).id == id == _refused(pipeline, place, spark)


def test_a_table_that_does_not_take_the_rows_is_found_and_not_created(
    place: Any, spark: SparkSession, postgres: Service
) -> None:
    name = f"check_{uuid.uuid4().hex}"
    missing = _copy(place, hr.to_postgres(name, dsn=postgres.url, create=False), columns="id")
    assert _one(missing, spark).id == "TABLE_MISSING" == _refused(missing, place, spark)
    assert _errors(_copy(place, hr.to_postgres(name, dsn=postgres.url), columns="id"), spark, connect=True) == []
    assert _one(missing, spark).id == "TABLE_MISSING"
    with psycopg.connect(postgres.dsn, autocommit=True) as database:
        database.execute(f"create table {name} (id text, amount text, n bigint generated always as (1) stored)")
        database.execute(f"create view {name}_view as select id from {name}")
        database.execute(f"create table {name}_ruled (id text primary key)")
        database.execute(f"create rule quiet as on insert to {name}_ruled do instead nothing")
    wrong: dict[str, tuple[str, dict[str, Any], str]] = {
        "COLUMN_MISSING": ("account", {}, name),
        "COLUMN_TYPE": ("amount", {}, name),
        "COLUMN_GENERATED": ("amount AS n", {}, name),
        "UPSERT_WITHOUT_UNIQUE": ("id", {"upsert_on": "id"}, name),
        "TABLE_HAS_RULES": ("id", {"upsert_on": "id"}, f"{name}_ruled"),
        "NOT_A_TABLE": ("id", {}, f"{name}_view"),
    }
    for id, (columns, options, table) in wrong.items():
        pipeline = _copy(place, hr.to_postgres(table, dsn=postgres.url, **options), columns=columns)
        found = _one(pipeline, spark)
        assert found.id == id == _refused(pipeline, place, spark)
        assert table in found.message
    typed = _one(_copy(place, hr.to_postgres(name, dsn=postgres.url), columns="amount"), spark)
    assert "column 'amount' is text, the rows have BIGINT, which needs bigint" in typed.message
    with psycopg.connect(postgres.dsn) as database:
        marks = database.execute(f"select count(*) from pg_tables where tablename = '{name}_marks'").fetchone()
        assert marks == (0,)


def test_a_delta_table_that_does_not_take_the_rows_is_found(place: Any, spark: SparkSession) -> None:
    path = place.root / "table"
    spark.createDataFrame([("a",)], "amount STRING").write.format("delta").save(str(path))
    found = _one(_copy(place, hr.to_delta(path), columns="amount"), spark)
    assert found.id == "DELTA_SCHEMA"
    assert "column 'amount' is STRING, the rows have BIGINT" in found.message
    other = place.root / "other"
    assert _errors(_copy(place, hr.to_delta(other), columns="amount"), spark, connect=True) == []
    assert not other.exists()


def test_a_table_of_a_join_that_cannot_be_read_is_found(place: Any, spark: SparkSession) -> None:
    missing, wrong = place.root / "missing.csv", place.root / "wrong.csv"
    wrong.write_text("other,name\n1,x\n")

    def joined(file: Path) -> Pipeline:
        @hr.pipeline(name="joined")
        def join(spark: SparkSession) -> None:
            rows = hr.read_files(spark, place.landing, format="json", schema=SCHEMA)
            step = hr.broadcast_join(
                "names", table=hr.file_table(file, schema="account STRING, name STRING"), on="account"
            )
            hr.write("joined", rows.transform(step), hr.to_memory("none"))

        return join

    for file in (missing, wrong):
        assert _one(joined(file), spark).id == _refused(joined(file), place, spark)


def test_an_index_or_cluster_that_refuses_is_found(
    place: Any, spark: SparkSession, opensearch: Service, redis_server: Service, mosquitto: Service
) -> None:
    index = f"check-{uuid.uuid4().hex}"
    fine = [
        hr.to_opensearch(opensearch.url, index, id="{id}"),
        hr.to_redis(redis_server.url, key=f"{index}:{{id}}"),
    ]
    assert _errors(_copy(place, *fine, columns="id"), spark, connect=True) == []
    reading = _copy(
        place,
        hr.to_memory("none"),
        read=lambda spark: hr.read_mqtt(spark, "t", servers=mosquitto.address, schema="id STRING"),
    )
    assert _errors(reading, spark, connect=True) == []
