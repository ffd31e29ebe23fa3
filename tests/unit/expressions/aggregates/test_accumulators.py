"""Aggregates that authors write themselves, row by row or as expressions."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import polars as pl
import pytest

import headrace as hr
from headrace.errors import DefinitionError, HeadraceError
from headrace.expressions import parse_aggregate
from headrace.expressions.aggregates.accumulators import AccumulatorFailed
from headrace.schemas import polars_schema, spark_schema
from headrace.wheel.codec import decode, encode

TIME = pl.lit(0, pl.Int64)
Buffer = dict[str, Any]
FRAME = pl.DataFrame({"g": ["a", "b", "a", "c"], "x": [1.0, 2.0, 4.0, None], "y": [10, 20, 30, 40]})


class Span(hr.Accumulator):
    """The greatest value less the least; null if there is none."""

    state = "low DOUBLE, high DOUBLE"
    result_type = "DOUBLE"

    def start(self) -> Buffer:
        return {"low": float("inf"), "high": float("-inf")}

    def add(self, buffer: Buffer, value: float | None) -> Buffer:
        return buffer if value is None else self.merge(buffer, {"low": value, "high": value})

    def merge(self, one: Buffer, other: Buffer) -> Buffer:
        return {"low": min(one["low"], other["low"]), "high": max(one["high"], other["high"])}

    def result(self, buffer: Buffer) -> float | None:
        return buffer["high"] - buffer["low"] if buffer["high"] >= buffer["low"] else None


class Dot(hr.Accumulator):
    """The sum of the products of two columns, and how many there were, above a floor."""

    state = "n INT, total DECIMAL(20, 2), last TIMESTAMP"
    result_type = "STRUCT<n: INT, total: DECIMAL(20, 2)>"

    def __init__(self, *values: str, floor: int) -> None:
        super().__init__(*values)
        self.floor = floor

    def start(self) -> Buffer:
        return {"n": 0, "total": Decimal(0), "last": None}

    def add(self, buffer: Buffer, value: Buffer) -> Buffer:
        if value["x"] is None or value["y"] <= self.floor:
            return buffer
        product = Decimal(value["x"]) * value["y"]
        return {"n": buffer["n"] + 1, "total": buffer["total"] + product, "last": datetime(2026, 1, 1, tzinfo=UTC)}

    def merge(self, one: Buffer, other: Buffer) -> Buffer:
        return {
            "n": one["n"] + other["n"],
            "total": one["total"] + other["total"],
            "last": one["last"] or other["last"],
        }

    def result(self, buffer: Buffer) -> Buffer:
        return {"n": buffer["n"], "total": buffer["total"]}


class Mean(hr.VectorAccumulator):
    """The mean of one column weighted by another."""

    state = "weighted DOUBLE, weight BIGINT"
    result_type = "DOUBLE"

    def partial(self, value: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {
            "weighted": (value["x"] * value["y"]).sum(),
            "weight": value["y"].filter(value["x"].is_not_null()).sum(),
        }

    def merge(self, buffer: Any) -> dict[str, pl.Expr]:
        return {name: buffer[name].sum() for name in ("weighted", "weight")}

    def result(self, buffer: Any) -> pl.Expr:
        return pl.when(buffer["weight"] > 0).then(buffer["weighted"] / buffer["weight"])


def results(given: Any) -> dict[str, Any]:
    """The value of each group, over two partials that were stored in between."""
    aggregate = parse_aggregate(given, name="out")
    schema = FRAME.schema
    given_type = aggregate.result_type(schema)
    halves = [FRAME[:2], FRAME[2:]]
    partials = pl.concat([half.group_by("g").agg(**aggregate.partial(schema, TIME)) for half in halves])
    types = aggregate.state_types(schema)
    assert polars_schema(spark_schema(types)) == types
    merged = decode([encode(partials)]).group_by("g").agg(**aggregate.merge(schema)).sort("g")
    assert dict(merged.drop("g").schema) == types
    answer = merged.select("g", aggregate.result(schema))
    assert answer.schema["out"] == given_type
    return dict(answer.rows())


def test_a_value_is_added_for_each_row_and_partials_merge() -> None:
    assert results(Span("x")) == {"a": 3.0, "b": 0.0, "c": None}


def test_an_accumulator_of_several_columns_gets_them_by_name_and_keeps_its_own_settings() -> None:
    assert results(Dot("x", "y", floor=10)) == {
        "a": {"n": 1, "total": Decimal(120)},
        "b": {"n": 1, "total": Decimal(40)},
        "c": {"n": 0, "total": Decimal(0)},
    }


def test_expressions_run_over_whole_groups() -> None:
    assert results(Mean("x", "y")) == {"a": 130 / 40, "b": 2.0, "c": None}


def test_a_group_without_rows_that_count_has_the_result_of_the_start() -> None:
    assert results(Dot("x", "y", floor=0).where("y > 25")) == {
        "a": {"n": 1, "total": Decimal(120)},
        "b": {"n": 0, "total": Decimal(0)},
        "c": {"n": 0, "total": Decimal(0)},
    }


def test_what_is_kept_of_no_rows_is_null_and_merges_as_nothing() -> None:
    aggregate = parse_aggregate(Span("x").where("y > 99"), name="out")
    partial = FRAME.select(**aggregate.partial(FRAME.schema, TIME))
    assert partial["out.kept"].to_list() == [None]
    assert pl.concat([partial, partial]).select(**aggregate.merge(FRAME.schema))["out.kept"].to_list() == [None]


def test_accumulators_read_their_columns_and_are_told_by_what_they_keep() -> None:
    aggregate = parse_aggregate(Dot("x", "y", floor=3), name="out")
    assert aggregate.columns == {"x", "y"}
    assert aggregate.text == (
        "Dot('x', 'y', floor=3) keeping (n INT, total DECIMAL(20, 2), last TIMESTAMP) "
        "for STRUCT<n: INT, total: DECIMAL(20, 2)>"
    )
    assert aggregate == parse_aggregate(Dot("x", "y", floor=3), name="out")
    assert aggregate != parse_aggregate(Dot("x", "y", floor=4), name="out")


def test_columns_of_an_accumulator_must_exist() -> None:
    for own in (Span("z"), Mean("x", "z")):
        with pytest.raises(DefinitionError, match=r"\[COLUMN_UNKNOWN\] 'z'"):
            parse_aggregate(own, name="out").result_type(FRAME.schema)


class Broken(Span):
    """A span whose methods give what they are told to."""

    def __init__(self, *values: str, **gives: Any) -> None:
        super().__init__(*values)
        self.gives = gives

    def start(self) -> Buffer:
        return cast(Buffer, self.gives.get("start", super().start()))

    def add(self, buffer: Buffer, value: float | None) -> Buffer:
        return cast(Buffer, self.gives.get("add", buffer))

    def merge(self, one: Buffer, other: Buffer) -> Buffer:
        return cast(Buffer, self.gives.get("merge", one))

    def result(self, buffer: Buffer) -> Any:
        return self.gives.get("result", 1.0)


@pytest.mark.parametrize(
    ("method", "gives", "message"),
    [
        ("start", {"low": 1.0}, "returned {'low': 1.0}, which is not a dict of low, high"),
        ("add", (1, 2), "returned (1, 2), which is not a dict of low, high"),
        ("add", {"low": "x", "high": 1.0}, "returned a value that is not Float64"),
        ("merge", {"low": 1.0}, "returned {'low': 1.0}, which is not a dict of low, high"),
        ("result", "much", "returned a value that is not Float64"),
    ],
)
def test_what_does_not_fit_the_declared_types_is_named(method: str, gives: Any, message: str) -> None:
    with pytest.raises(HeadraceError) as failure:
        results(Broken("x", **{method: gives}))
    assert failure.value.id == "ACCUMULATOR_FAILED"
    assert f"aggregate 'out': Broken.{method} {message}" in str(failure.value)
    assert "Its state is (low DOUBLE, high DOUBLE) and its result DOUBLE" in str(failure.value)


class Failing(Span):
    """A span that does not take everything."""

    def add(self, buffer: Buffer, value: float | None) -> Buffer:
        return {"low": buffer["low"] + value, "high": 1 / 0}


def test_an_error_of_the_authors_code_is_told_with_its_line() -> None:
    with pytest.raises(AccumulatorFailed) as failure:
        results(Failing("x"))
    assert failure.value.id == "ACCUMULATOR_FAILED"
    said = "[ACCUMULATOR_FAILED] aggregate 'out': Failing.add raised ZeroDivisionError: division by zero (at test_acc"
    assert str(failure.value).startswith(said)
    assert "This error occurred" not in str(failure.value)


class Halves(Mean):
    """Expressions of other types than declared."""

    def __init__(self, *values: str, method: str) -> None:
        super().__init__(*values)
        self.method = method

    def partial(self, value: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        parts = super().partial(value)
        return {"weighted": parts["weighted"]} if self.method == "partial" else parts

    def merge(self, buffer: Any) -> dict[str, pl.Expr]:
        parts = super().merge(buffer)
        return {**parts, "weight": parts["weight"].cast(pl.String)} if self.method == "merge" else parts

    def result(self, buffer: Any) -> pl.Expr:
        return pl.col("nothing") if self.method == "result" else super().result(buffer)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("partial", "gives {'weighted': Float64}, and the class declares {'weighted': Float64, 'weight': Int64}"),
        ("merge", "gives {'weighted': Float64, 'weight': String}, and the class declares"),
        ("result", 'gives unable to find column "nothing"'),
    ],
)
def test_expressions_of_other_types_are_found_before_any_data(method: str, message: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        parse_aggregate(Halves("x", "y", method=method), name="out").result_type(FRAME.schema)
    assert failure.value.id == "ACCUMULATOR_TYPE"
    assert f"aggregate 'out': Halves.{method} {message}" in str(failure.value)


def test_a_class_must_say_what_it_keeps_and_gives() -> None:
    class Silent(hr.Accumulator):
        state = "n BIGINT"

    with pytest.raises(DefinitionError, match=r"\[ACCUMULATOR_INCOMPLETE\] class Silent does not declare"):
        Silent("x")  # type: ignore[abstract]
    with pytest.raises(DefinitionError, match=r"\[ACCUMULATOR_INCOMPLETE\] Span\(\) reads nothing"):
        Span()


def test_a_method_that_is_missing_is_named_before_any_data() -> None:
    class Half(hr.Accumulator):
        state = "n BIGINT"
        result_type = "BIGINT"

        def start(self) -> Buffer:
            return {"n": 0}

        def add(self, buffer: Buffer, value: Any) -> Buffer:
            return {"n": buffer["n"] + 1}

    with pytest.raises(DefinitionError, match=r"\[ACCUMULATOR_INCOMPLETE\] class Half does not define merge, result"):
        Half("x")  # type: ignore[abstract]


def test_a_schema_that_cannot_be_read_is_named() -> None:
    class Odd(Span):
        state = "n LARGEINT"

    with pytest.raises(DefinitionError, match=r"\[SCHEMA_UNREADABLE\] schema 'n LARGEINT'"):
        parse_aggregate(Odd("x"), name="out").state_types(FRAME.schema)


def test_a_class_is_not_yet_an_aggregate() -> None:
    with pytest.raises(DefinitionError, match=r"\[AGGREGATE_EXPECTED\] aggregate 'out' is Span, a class"):
        parse_aggregate(Span, name="out")
    with pytest.raises(DefinitionError, match=r"\[AGGREGATE_EXPECTED\] aggregate 'out' is 3\."):
        parse_aggregate(3, name="out")


def test_a_step_with_an_accumulator_is_printed_as_it_is_written_and_its_identity_says_what_is_kept() -> None:
    step = hr.tumbling("w", size="1 hour", key="k").agg(
        one=Dot("x", "y", floor=3), some=Dot("x", "y", floor=0).where("x > 0"), n="count(*)", p=hr.percentile("x", 0.5)
    )
    assert "one=Dot('x', 'y', floor=3), some=Dot('x', 'y', floor=0).where('x > 0'), n='count(*)', p=hr." in repr(step)
    assert eval(repr(step), {"hr": hr, "Dot": Dot}) == step
    kept = "keeping (n INT, total DECIMAL(20, 2), last TIMESTAMP)"
    texts: Any = step.fingerprint["aggregates"]
    assert [kept in text for text in texts.values()] == [True, True, False, False]
