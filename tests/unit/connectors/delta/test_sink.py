"""``hr.to_delta`` as a value: what is found wrong before any table is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.types import StructType

from headrace.connectors.base.delivery import quoted
from headrace.connectors.base.sink import Sink
from headrace.connectors.delta.sink import check_fit, to_delta
from headrace.errors import HeadraceError
from headrace.schemas import parse_ddl


@dataclass(frozen=True)
class Session:
    """Spark's settings alone."""

    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """A table that only has columns."""

    columns: str | None
    folders: tuple[str, ...] = ()
    path: str = "/tables/spend"
    spark: Session = Session()

    def exists(self) -> bool:
        return self.columns is not None

    def schema(self) -> StructType:
        return parse_ddl(self.columns or "")

    def partition_columns(self) -> tuple[str, ...]:
        return self.folders


def _problem(log: Any, columns: str, partition_by: tuple[str, ...] = ()) -> str:
    with pytest.raises(HeadraceError) as raised:
        check_fit(log, parse_ddl(columns), partition_by)
    return str(raised.value)


def test_the_sink_prints_itself_as_the_code_that_makes_it_and_says_why_it_is_exact() -> None:
    sink = to_delta("t", upsert_on="account", partition_by=["day"])
    assert repr(sink) == "hr.to_delta('t', upsert_on=['account'], partition_by=['day'])"
    assert sink == to_delta("t", upsert_on=["account"], partition_by="day")
    assert isinstance(sink, Sink)
    assert sink.guarantee == "exactly_once"
    assert "transaction identifier" in sink.why


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(HeadraceError) as raised:
        to_delta("t", upsert_on=[])
    assert raised.value.id == "COLUMNS_MISSING"


def test_a_table_that_is_missing_takes_anything_but_intervals() -> None:
    check_fit(Log(None), parse_ddl("n BIGINT, s STRUCT<a: INT>"), ("n",))  # type: ignore[arg-type]
    with pytest.raises(HeadraceError) as raised:
        to_delta("/tables/spend").check_columns(parse_ddl("n BIGINT, late STRUCT<by: INTERVAL DAY TO SECOND>"))
    said = "[DELTA_SCHEMA] Delta table '/tables/spend': column 'late' is STRUCT<by: INTERVAL DAY TO SECOND>"
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        ("n BIGINT", "n BIGINT, m INT", "it has no column 'm', only n. Add the column or select others."),
        ("n BIGINT", "n STRING", "column 'n' is BIGINT, the rows have STRING. Cast it."),
        (
            "s STRUCT<a: INT>",
            "s STRUCT<b: INT>",
            "column 's' is STRUCT<a: INT>, the rows have STRUCT<b: INT>. Cast it.",
        ),
        ("n BIGINT, m INT NOT NULL", "n BIGINT", "the rows lack its column 'm', which cannot be left out."),
    ],
)
def test_columns_that_do_not_fit_the_table_are_named(table: str, columns: str, said: str) -> None:
    assert said in _problem(Log(table), columns)


def test_a_table_may_have_more_columns_and_what_is_nullable_in_it_may_differ() -> None:
    table = Log("n BIGINT, s STRUCT<a: INT NOT NULL>, more STRING")
    check_fit(table, parse_ddl("n BIGINT NOT NULL, s STRUCT<a: INT>"), ())  # type: ignore[arg-type]


def test_other_folders_than_the_tables_are_refused() -> None:
    assert "it is partitioned by n, not by m." in _problem(Log("n BIGINT, m INT", ("n",)), "n BIGINT, m INT", ("m",))
    assert "it is partitioned by no column, not by m." in _problem(Log("n BIGINT, m INT"), "n BIGINT, m INT", ("m",))
    assert "the rows lack its column 'm'" in _problem(Log("n BIGINT, m INT", ("m",)), "n BIGINT")


def test_a_session_that_does_not_count_rows_is_refused() -> None:
    log = Log(None, spark=Session({"spark.databricks.delta.stats.collect": "false"}))
    assert _problem(log, "n BIGINT").startswith("[DELTA_STATISTICS_OFF]")


def test_names_are_quoted_whatever_is_in_them() -> None:
    assert quoted("x` = 1; drop table `y") == "`x`` = 1; drop table ``y`"
