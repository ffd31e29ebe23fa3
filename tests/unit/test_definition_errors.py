"""Every mistake in a definition is a clear error with an id, found before any data is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.operators.windows.fixed_windows import Tumbling
from headrace.runtime.pipeline import Pipeline
from headrace.runtime.session import require_java

Define = Callable[[SparkSession], None]
SCHEMA = "id STRING, account STRING, amount DOUBLE, tags ARRAY<STRING>, at TIMESTAMP"


@pytest.fixture
def landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place with the folder ``in``, which is also the working folder."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _define(spark: SparkSession, place: Path, function: Define) -> None:
    hr.pipeline(name="spend")(function).define(spark, place / "checkpoint")


def _read(spark: SparkSession, **options: str) -> DataFrame:
    # Absolute, because Spark was started in another folder.
    return hr.read_files(spark, Path("in").absolute(), **{"format": "json", "schema": SCHEMA, **options})  # type: ignore[arg-type]


def _timed(spark: SparkSession, **options: str) -> DataFrame:
    return _read(spark, **options).transform(hr.event_time("at", out_of_order="1 second"))


def _hourly(name: str = "hourly") -> Tumbling:
    return hr.tumbling(name, size="1 hour", key="account").agg(n="count(*)").late(hr.drop())


def _missing_folder(spark: SparkSession) -> None:
    hr.read_files(spark, "nowhere", format="json", schema=SCHEMA)


def _unknown_format(spark: SparkSession) -> None:
    _read(spark, format="avro")


def _unknown_sink_format(spark: SparkSession) -> None:
    hr.to_files("out", format="csv")  # type: ignore[arg-type]


def _unknown_key(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="acount").agg(n="count(*)").late(hr.drop())(_timed(spark))


def _nested_key(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="tags").agg(n="count(*)").late(hr.drop())(_timed(spark))


def _unknown_column_in_aggregate(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account").agg(n="sum(amont)").late(hr.drop())(_timed(spark))


def _no_late(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account").agg(n="count(*)")(_timed(spark))


def _no_aggregates(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account").late(hr.drop())(_timed(spark))


def _empty_size(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="0 seconds", key="account")


def _unreadable_size(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="an hour", key="account")


def _long_offset(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account", offset="90 minutes")


def _calendar_without_days(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account", time_zone="Europe/Berlin")


def _unknown_zone(spark: SparkSession) -> None:
    hr.tumbling("daily", size="1 day", key="account", time_zone="Europe/Atlantis")


def _taken_result(spark: SparkSession) -> None:
    hr.tumbling("hourly", size="1 hour", key="account").agg(window="count(*)")


def _reused_step(spark: SparkSession) -> None:
    payments = _timed(spark)
    _hourly()(payments)
    _hourly()(payments)


def _reused_source(spark: SparkSession) -> None:
    _read(spark)
    _read(spark)


def _reused_flow(spark: SparkSession) -> None:
    payments = _read(spark)
    hr.write("rows", payments, hr.to_console())
    hr.write("rows", payments, hr.to_console())


def _step_in_two_flows(spark: SparkSession) -> None:
    hourly = _hourly()(_timed(spark))
    hr.write("one", hourly, hr.to_console())
    hr.write("two", hourly, hr.to_console())


def _invalid_step_name(spark: SparkSession) -> None:
    hr.tumbling("per hour", size="1 hour", key="account")


def _invalid_source_name(spark: SparkSession) -> None:
    _read(spark, name="1st")


def _invalid_flow_name(spark: SparkSession) -> None:
    hr.write("a/b", _read(spark), hr.to_console())


def _no_event_time(spark: SparkSession) -> None:
    _hourly()(_read(spark))


def _event_time_lost(spark: SparkSession) -> None:
    _hourly()(_timed(spark).select("account", (F.col("at") + F.expr("INTERVAL 1 HOUR")).alias("at")))


def _event_time_after_filter(spark: SparkSession) -> None:
    _read(spark).where("amount > 0").transform(hr.event_time("at"))


def _event_time_twice(spark: SparkSession) -> None:
    _timed(spark).transform(hr.event_time("at"))


def _event_time_unknown(spark: SparkSession) -> None:
    _read(spark).transform(hr.event_time("time"))


def _event_time_of_text(spark: SparkSession) -> None:
    _read(spark).transform(hr.event_time("id"))


def _unknown_partition(spark: SparkSession) -> None:
    _read(spark).transform(hr.event_time("at", partition="gateway"))


def _negative_disorder(spark: SparkSession) -> None:
    hr.event_time("at", out_of_order="-1 second")


def _unknown_idle_choice(spark: SparkSession) -> None:
    hr.event_time("at", when_all_idle="wait")  # type: ignore[arg-type]


def _unreadable_moment(spark: SparkSession) -> None:
    hr.valid_times(not_before="last year")


def _existing_arrival_column(spark: SparkSession) -> None:
    _read(spark).transform(hr.ingestion_time("at"))


def _united_sources(spark: SparkSession) -> None:
    _hourly()(_timed(spark, name="one").union(_timed(spark, name="two")))


def _empty_flow(spark: SparkSession) -> None:
    hr.write("rows")


def _not_a_sink(spark: SparkSession) -> None:
    hr.write("rows", _read(spark), "out")


def _no_sink(spark: SparkSession) -> None:
    hr.write("rows", (_read(spark),))


def _stream_of_spark(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def _table(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'a' AS account, now() AS at")


def _write_of_a_table(spark: SparkSession) -> None:
    hr.write("rows", _table(spark), hr.to_console())


def _write_of_a_stream(spark: SparkSession) -> None:
    hr.write("rows", _stream_of_spark(spark), hr.to_console())


def _step_over_a_table(spark: SparkSession) -> None:
    _hourly()(_table(spark))


def _step_over_a_stream(spark: SparkSession) -> None:
    _hourly()(_stream_of_spark(spark))


def _step_over_a_stream_joined_to_ours(spark: SparkSession) -> None:
    _hourly()(_timed(spark).crossJoin(_stream_of_spark(spark)))


def _lookup_of_a_stream(spark: SparkSession) -> None:
    levels = hr.redis_lookup("redis://cache", key="level:{account}")
    hr.lookup("levels", levels, on="account", output="level INT", on_failure="null")(_stream_of_spark(spark))


def _event_time_of_a_table(spark: SparkSession) -> None:
    _table(spark).transform(hr.event_time("at"))


def _event_time_of_a_stream(spark: SparkSession) -> None:
    _stream_of_spark(spark).transform(hr.event_time("timestamp"))


def _over_a_stream(spark: SparkSession) -> None:
    hr.write("rows", hr.over(_timed(spark), _hourly().late(hr.drop())), hr.to_console())


def _late_that_is_dropped(spark: SparkSession) -> None:
    hourly = _hourly().outputs(_timed(spark))
    hr.write("rows", (hourly.main, hr.to_console()), (hourly.late, hr.to_console()))


def _nothing_written(spark: SparkSession) -> None:
    _read(spark)


EXISTING = "Existing columns: id, account, amount, tags, at."
UNITS = "microsecond, millisecond, second, minute, hour, day, week"
A_STREAM = (
    "[STREAM_NOT_WRAPPED] {} was given a stream that Spark reads by itself, so Headrace knows no position in it. "
    "Wrap it in the pipeline: hr.source(frame, name='payments')."
)
A_TABLE = (
    "[NOT_A_STREAM] {} was given a table, without rows of a source of the pipeline. For a stream use "
    "hr.read_files(...) or another of hr.read_.... To run a step once over a table use hr.over(frame, step, "
    "time='at'), and Spark's own frame.write."
)
MISTAKES: list[tuple[Define, str]] = [
    (
        _missing_folder,
        "[SOURCE_MISSING] folder 'nowhere' does not exist. Create it first.",
    ),
    (_unknown_format, "[FORMAT_UNKNOWN] format='avro' is not known. Use 'json' (lines), 'csv' or 'parquet'."),
    (_unknown_sink_format, "[FORMAT_UNKNOWN] format='csv' is not known. Use 'parquet' or 'json'."),
    (_unknown_key, f"[COLUMN_UNKNOWN] step 'hourly': key column 'acount' does not exist. {EXISTING}"),
    (
        _nested_key,
        "[KEY_TYPE] step 'hourly': key column 'tags' is List(String), which cannot be a key. "
        "Use its fields or elements.",
    ),
    (
        _unknown_column_in_aggregate,
        f"[COLUMN_UNKNOWN] 'amont': there is no column 'amont'. {EXISTING}",
    ),
    (
        _no_late,
        "[LATE_NOT_CHOSEN] window 'hourly' does not say what happens to late rows, so some would silently be lost. "
        "Add .late(...) with hr.drop(), hr.side_output() or hr.update_for('5 minutes').",
    ),
    (
        _no_aggregates,
        "[AGGREGATES_MISSING] window 'hourly': it computes nothing. Add .agg(...), as in .agg(rows='count(*)').",
    ),
    (
        _empty_size,
        "[DURATION_NOT_POSITIVE] size='0 seconds' must be greater than zero. "
        "Give a positive duration, as in size='1 minute'.",
    ),
    (
        _unreadable_size,
        "[DURATION_UNREADABLE] size='an hour' is not a duration. Write a number and a unit, as in '10 seconds' or "
        f"'1 hour 30 minutes'; units are {UNITS}. '90s', '1h30m' (m is minutes) and 'PT1H30M' are durations too.",
    ),
    (
        _long_offset,
        "[WINDOW_OFFSET_TOO_LONG] window 'hourly': offset='90 minutes' is not shorter than size='1 hour'. "
        "Choose a shorter one.",
    ),
    (
        _calendar_without_days,
        "[CALENDAR_NEEDS_DAYS] window 'hourly': size='1 hour' with time_zone='Europe/Berlin'. Calendar windows need a "
        "time zone and a size of whole days, weeks or months. Use size='1 day' or '1 month' with "
        "time_zone='Europe/Berlin', or leave time_zone out.",
    ),
    (
        _unknown_zone,
        "[TIME_ZONE_UNKNOWN] window 'daily': time_zone='Europe/Atlantis' is not known. "
        "Use a name such as 'Europe/Berlin'.",
    ),
    (
        _taken_result,
        "[RESULT_NAME_TAKEN] window 'hourly': result 'window' has the name of another column of results "
        "(window, pane, revision, change, session_id, account). Choose another name.",
    ),
    (
        _reused_step,
        "[STEP_NAME_REUSED] two steps are named 'hourly', but a name is the identity of a step's state. "
        "Rename one of them.",
    ),
    (
        _reused_source,
        "[SOURCE_NAME_REUSED] two sources are named 'in', so their positions could be mixed up after a restart. "
        "Give one of them another name with name='...'.",
    ),
    (
        lambda spark: hr.write("waiting", _read(spark), hr.to_console()),
        "[FLOW_NAME_TAKEN] a flow cannot be named 'waiting': a folder of that name in the checkpoint is Headrace's "
        "own. Choose another name.",
    ),
    (_reused_flow, "[FLOW_NAME_REUSED] two flows are named 'rows'. Rename one of them."),
    (
        _step_in_two_flows,
        "[STEP_IN_TWO_FLOWS] step 'hourly' is written by the flows 'one' and 'two', which would run it twice with two "
        "states. Write all its outputs in one hr.write(...).",
    ),
    (
        _invalid_step_name,
        "[NAME_INVALID] step name 'per hour' is used in file and state names. "
        "Use at most 100 letters, digits and _, a letter first.",
    ),
    (
        _invalid_source_name,
        "[NAME_INVALID] source name '1st' is used in file and state names. "
        "Use at most 100 letters, digits and _, a letter first.",
    ),
    (
        _invalid_flow_name,
        "[NAME_INVALID] flow name 'a/b' is used in file and state names. "
        "Use at most 100 letters, digits and _, a letter first.",
    ),
    (
        _no_event_time,
        "[EVENT_TIME_MISSING] step 'hourly' needs event time, but none of the columns id, account, amount, tags, at "
        "carries it. Apply hr.event_time(...) to the source, and keep its column (or a window) unchanged in every "
        "select.",
    ),
    (
        _event_time_lost,
        "[EVENT_TIME_MISSING] step 'hourly' needs event time, but none of the columns account, at carries it. Apply "
        "hr.event_time(...) to the source, and keep its column (or a window) unchanged in every select.",
    ),
    (
        _event_time_after_filter,
        "[EVENT_TIME_NOT_AT_SOURCE] hr.event_time('at') was given a frame that does not come straight from a source, "
        "so filtered rows would not advance the watermark. Apply it right after hr.read_...(...), before your own "
        "where and select.",
    ),
    (
        _event_time_twice,
        "[EVENT_TIME_TWICE] source 'in' already has hr.event_time('at', out_of_order='1 second'). Read it a second "
        "time under another name, or use one strategy for both.",
    ),
    (_event_time_unknown, f"[COLUMN_UNKNOWN] source 'in' has no column 'time'. {EXISTING}"),
    (
        _event_time_of_text,
        "[EVENT_TIME_TYPE] source 'in': event time column 'id' is string. Declare it as TIMESTAMP.",
    ),
    (_unknown_partition, f"[COLUMN_UNKNOWN] source 'in' has no column 'gateway'. {EXISTING}"),
    (
        _negative_disorder,
        "[OUT_OF_ORDER_NEGATIVE] out_of_order='-1 second' is negative, so the watermark would run ahead of the rows. "
        "Give '0 seconds' for rows in order, or how far they may be out of order.",
    ),
    (
        _unknown_idle_choice,
        "[WHEN_ALL_IDLE_UNKNOWN] when_all_idle='wait' is not known. Use 'hold' or 'advance'.",
    ),
    (
        _unreadable_moment,
        "[MOMENT_UNREADABLE] not_before='last year' is not a moment. Write it as in '2026-01-01T10:00:00Z'.",
    ),
    (
        _existing_arrival_column,
        "[COLUMN_EXISTS] source 'in' already has a column 'at'. Choose another name, as in "
        "hr.ingestion_time('arrived').",
    ),
    (
        _united_sources,
        "[SOURCES_UNITED] step 'hourly' reads a union of the sources one, two, whose watermarks differ. "
        "Give each source a step of its own.",
    ),
    (
        _empty_flow,
        "[FLOW_EMPTY] flow 'rows' writes nothing. Give it a frame and a sink, as in hr.write(name, frame, sink).",
    ),
    (
        _not_a_sink,
        "[NOT_A_SINK] flow 'rows': 'out' is not a sink. Use hr.to_files(...), hr.to_kafka(...) or another of "
        "hr.to_..., or a class with guarantee and write.",
    ),
    (_no_sink, "[SINK_MISSING] flow 'rows': an output has no sink. Add one, as hr.to_console()."),
    (_write_of_a_table, A_TABLE.format("flow 'rows'")),
    (_write_of_a_stream, A_STREAM.format("flow 'rows'")),
    (_step_over_a_table, A_TABLE.format("step 'hourly'")),
    (_step_over_a_stream, A_STREAM.format("step 'hourly'")),
    (_step_over_a_stream_joined_to_ours, A_STREAM.format("step 'hourly'")),
    (_lookup_of_a_stream, A_STREAM.format("step 'levels'")),
    (_event_time_of_a_table, A_TABLE.format("hr.event_time('at', out_of_order='0 seconds')")),
    (_event_time_of_a_stream, A_STREAM.format("hr.event_time('timestamp', out_of_order='0 seconds')")),
    (
        _over_a_stream,
        "[OVER_A_STREAM] step 'hourly': hr.over runs once over tables, and this frame is a stream. In a pipeline apply "
        "the step itself, as in frame.transform(step); hr.source(frame, name=...) reads a stream of Spark.",
    ),
    (
        _late_that_is_dropped,
        "[OUTPUT_NOT_KEPT] flow 'rows' writes output 'late' of step 'hourly', which drops late rows. "
        "Choose .late(hr.side_output()).",
    ),
    (
        _nothing_written,
        "[PIPELINE_EMPTY] pipeline 'spend' writes nothing. End it with hr.write(name, frame, sink).",
    ),
]


@pytest.mark.spark
@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[each[0].__name__.strip("_") for each in MISTAKES])
def test_a_mistake_says_what_was_given_why_it_is_wrong_and_what_to_do(
    mistake: Define, message: str, spark: SparkSession, landing: Path
) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        _define(spark, landing, mistake)
    said, _, place = str(raised.value).rpartition(" (at ")
    assert said == message
    assert place.startswith("test_definition_errors.py:")
    assert raised.value.id == message[1 : message.index("]")]


@pytest.mark.spark
def test_a_mistake_is_shown_with_the_authors_own_line(spark: SparkSession, landing: Path) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        _define(spark, landing, _missing_folder)
    line = _missing_folder.__code__.co_firstlineno + 1
    code = 'hr.read_files(spark, "nowhere", format="json", schema=SCHEMA)'
    assert str(raised.value).endswith(f" (at test_definition_errors.py:{line}: {code})")


@pytest.mark.spark
def test_check_reports_a_mistake_as_a_finding_instead_of_raising_it(spark: SparkSession, landing: Path) -> None:
    found = hr.pipeline(name="spend")(_missing_folder).check(spark=spark)
    assert [(finding.id, finding.severity) for finding in found] == [("SOURCE_MISSING", "error")]


@pytest.mark.spark
@pytest.mark.parametrize(("frame", "said"), [(_table, A_TABLE), (_stream_of_spark, A_STREAM)])
def test_outside_of_a_pipeline_a_step_says_what_takes_such_a_frame(
    frame: Callable[[SparkSession], DataFrame], said: str, spark: SparkSession
) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        frame(spark).transform(_hourly())
    assert str(raised.value).startswith(said.format("step 'hourly'"))


@pytest.mark.spark
def test_a_source_outside_of_a_pipeline_is_refused(spark: SparkSession, landing: Path) -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        _read(spark)
    assert str(raised.value).rpartition(" (at ")[0] == (
        "[NO_PIPELINE] sources, steps and hr.write(...) belong inside a function decorated with @hr.pipeline. "
        "Move this call there and start it with .run(checkpoint=...)."
    )


def test_a_pipeline_whose_name_is_no_file_name_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"^\[NAME_INVALID\] pipeline name 'my spend' is used in file"):
        hr.pipeline(name="my spend")(_missing_folder)


class _Seen(hr.KeyedProcess):
    def on_row(self, row: object, context: object) -> None:
        """See nothing."""


NAMED: dict[str, Callable[[SparkSession, str], object]] = {
    "flow": lambda spark, name: hr.write(name, _read(spark), hr.to_console()),
    "step": lambda spark, name: _hourly(name)(_timed(spark)),
    "output": lambda spark, name: hr.process("seen", _Seen, key="id", output="id STRING", outputs={name: "n INT"}),
    "source of files": lambda spark, name: _read(spark, name=name),
    "source of Kafka": lambda spark, name: hr.read_kafka(
        spark, "rows", servers="127.0.0.1:1", schema="id STRING", name=name
    ),
    "source of MQTT": lambda spark, name: hr.read_mqtt(
        spark, "rows", servers="127.0.0.1:1", schema="id STRING", name=name
    ),
    "source of changes": lambda spark, name: hr.read_postgres_changes(
        spark, "rows", dsn="host=127.0.0.1 port=1", slot="rows", schema="id STRING", name=name
    ),
    "generated source": lambda spark, name: hr.generate(spark, hr.Payments(), name=name),
    "source of Spark": lambda spark, name: hr.source(_stream_of_spark(spark), name=name),
}
"""Whatever is called by a name that becomes one of files."""


@pytest.mark.spark
@pytest.mark.parametrize("name", ["../../evil", "/evil", "a" * 101, "é", ".."], ids=lambda name: name[:10])
@pytest.mark.parametrize("named", NAMED.values(), ids=NAMED)
def test_a_name_that_is_none_of_a_file_is_refused_and_nothing_is_created(
    named: Callable[[SparkSession, str], object], name: str, spark: SparkSession, landing: Path
) -> None:
    @hr.pipeline(name="spend")
    def spend(spark: SparkSession) -> None:
        hr.write("rows", _read(spark, name="rows"), hr.to_files(landing / "out"))
        named(spark, name)

    with pytest.raises(hr.DefinitionError, match=r"^\[NAME_INVALID\] .*" + re.escape(repr(name))):
        spend.run(checkpoint=landing / "a" / "b" / "checkpoint", mode=hr.available_now(), spark=spark)
    assert [file.name for file in landing.rglob("*")] == ["in"]
    assert not Path("/evil").exists()


@pytest.mark.spark
def test_a_name_may_have_100_letters(spark: SparkSession, landing: Path) -> None:
    longest = "a" * 100

    @hr.pipeline(name=longest)
    def spend(spark: SparkSession) -> None:
        hourly = _hourly(longest).late(hr.side_output()).outputs(_timed(spark, name=longest))
        hr.write(longest, hourly.main, hr.to_files(landing / "out"))

    (landing / "in" / "1.json").write_text('{"account": "a", "at": "2025-01-01T10:00:00Z"}\n')
    spend.run(checkpoint=landing / "checkpoint", mode=hr.available_now(drain=True), spark=spark)
    assert hr.read_results(spark, landing / "out").count() == 1


def test_a_negative_correction_time_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"^\[DURATION_NOT_POSITIVE\] update_for='-1 hour' must be greater"):
        hr.update_for("-1 hour")


def test_a_trigger_interval_of_nothing_is_refused() -> None:
    with pytest.raises(hr.DefinitionError, match=r"^\[DURATION_NOT_POSITIVE\] interval='0 seconds' must be greater"):
        hr.micro_batch("0 seconds")


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_no_java_is_told_before_spark_is_started(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(hr.HeadraceError) as raised:
        require_java()
    assert str(raised.value) == (
        "[JAVA_MISSING] Spark needs Java 17 or newer, and none was found. "
        "Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
    )


def test_a_java_that_is_too_old_is_told_with_its_version_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(hr.HeadraceError) as raised:
        require_java()
    assert str(raised.value) == (
        f"[JAVA_TOO_OLD] Spark needs Java 17 or newer, found 11: {java}. "
        "Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
    )


@pytest.mark.parametrize("verb", [Pipeline.start, Pipeline.run])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_anything_runs(
    verb: Callable[..., object], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(hr.HeadraceError) as raised:
        verb(hr.pipeline(name="spend")(_missing_folder), checkpoint=file / "checkpoint")
    assert str(raised.value) == (
        f"[CHECKPOINT_NOT_WRITABLE] checkpoint '{file}/checkpoint' cannot be written (Not a directory), so nothing "
        "would survive a restart. Choose a folder this user may write to."
    )


def test_a_read_only_checkpoint_folder_is_refused_even_for_root() -> None:
    with pytest.raises(
        hr.HeadraceError, match=r"^\[CHECKPOINT_NOT_WRITABLE\] checkpoint '/proc/sys' cannot be written"
    ):
        hr.pipeline(name="spend")(_missing_folder).start(checkpoint="/proc/sys")
