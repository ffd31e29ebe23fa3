"""Rows rendered for systems outside Spark: flat columns, last changes, JSON, texts from templates."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.rendering import (
    Changes,
    flat,
    flat_schema,
    json_lines,
    json_rows,
    json_values,
    last_changes,
    parse_template,
    refused_rows,
)

ROWS = pl.DataFrame(
    {
        "account": ["a"],
        "window": [{"start": date(2026, 1, 1), "shop": {"town": "Ulm", "zip": 89073}}],
        "spent": [2.5],
    }
)


def test_structs_in_structs_become_columns_in_their_place() -> None:
    even = flat(ROWS)
    assert even.columns == ["account", "window_start", "window_shop_town", "window_shop_zip", "spent"]
    assert even.row(0) == ("a", date(2026, 1, 1), "Ulm", 89073, 2.5)
    assert flat_schema(dict(ROWS.schema)) == dict(even.schema)


def test_a_struct_that_is_null_is_columns_that_are_null() -> None:
    rows = pl.DataFrame({"window": [None, {"start": 1}]}, schema={"window": pl.Struct({"start": pl.Int64()})})
    assert flat(rows)["window_start"].to_list() == [None, 1]


def test_the_fields_of_a_window_are_columns_of_their_own() -> None:
    window = pl.Struct({"start": pl.Date(), "end": pl.Date()})
    flattened = {"n": pl.Int64(), "window_start": pl.Date(), "window_end": pl.Date()}
    assert flat_schema({"n": pl.Int64(), "window": window}) == flattened


@pytest.mark.parametrize("name", ["window_start", "window_time_zone"])
def test_a_column_that_is_also_a_field_of_a_struct_is_an_error(name: str) -> None:
    inner = pl.Struct({"zone": pl.String()})
    window = pl.Struct({"start": pl.Datetime("us", "UTC"), "time": inner})
    for columns in ({"window": window, name: pl.Int64()}, {name: pl.Int64(), "window": window}):
        with pytest.raises(DefinitionError, match=rf"^\[COLUMN_EXISTS\] column '{name}' is there twice"):
            flat_schema(columns)


def test_rows_that_are_no_changelog_set_their_keys_whatever_they_say() -> None:
    rows = pl.DataFrame({"id": [1, 2, 1], "change": ["delete", "delete", "insert"]})
    changes = last_changes(rows, ["id"], changelog=False)
    assert (changes.upserts.rows(), changes.deletes.height, changes.superseded) == (
        [(2, "delete"), (1, "insert")],
        0,
        1,
    )


def test_a_change_that_is_null_sets_its_key() -> None:
    changes = last_changes(pl.DataFrame({"id": [1], "change": [None]}), ["id"], changelog=True)
    assert (changes.upserts.rows(), changes.deletes.height) == ([(1,)], 0)


def test_an_update_is_its_last_half_and_a_delete_leaves_only_the_key() -> None:
    rows = pl.DataFrame(
        [
            (1, 5, "insert"),
            (2, 6, "insert"),
            (1, 5, "update_before"),
            (1, 9, "update_after"),
            (2, 6, "delete"),
            (3, 7, "update_before"),
        ],
        schema=["id", "n", "change"],
        orient="row",
    )
    changes = last_changes(rows, ["id"], changelog=True)
    assert changes.upserts.rows() == [(1, 9)]
    assert changes.deletes.rows() == [(2,), (3,)]
    assert changes.superseded == 3


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(), st.sampled_from(["insert", "delete"]))))
def test_the_last_change_of_a_key_wins_and_every_row_is_counted(given_rows: list[tuple[int, int, str]]) -> None:
    rows = pl.DataFrame(
        given_rows, schema={"id": pl.Int64(), "n": pl.Object(), "change": pl.String()}, orient="row"
    ).drop("n")
    rows = rows.with_columns(n=pl.Series(range(rows.height), dtype=pl.Int64))
    expected: dict[int, tuple[int, str]] = {}
    for number, (key, _, change) in enumerate(given_rows):
        expected[key] = (number, change)
    changes: Changes = last_changes(rows, ["id"], changelog=True)
    kept = {key: number for key, (number, change) in expected.items() if change == "insert"}
    assert dict(changes.upserts.select("id", "n").iter_rows()) == kept
    assert set(changes.deletes["id"]) == expected.keys() - kept.keys()
    assert changes.upserts.height + changes.deletes.height + changes.superseded == rows.height


def test_json_is_plain_for_every_reader() -> None:
    rows = pl.DataFrame(
        {
            "text": ['line\nbreak "quoted" ü'],
            "data": [b"\x00\xff"],
            "price": [Decimal("12.50")],
            "at": [datetime(2026, 1, 1, 12, tzinfo=UTC)],
            "nothing": pl.Series([None], dtype=pl.Int64),
            "window": [{"start": date(2026, 1, 1)}],
        }
    )
    [text] = json_rows(rows)
    assert b"\n" not in text
    read = json.loads(text)
    assert datetime.fromisoformat(read.pop("at")) == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert read == {
        "text": 'line\nbreak "quoted" ü',
        "data": "AP8=",
        "price": "12.50",
        "nothing": None,
        "window": {"start": "2026-01-01"},
    }


def test_json_lines_are_one_object_for_each_row() -> None:
    rows = pl.DataFrame({"n": [1, 2], "spent": [2.5, None]})
    assert json_lines(rows) == b'{"n":1,"spent":2.5}\n{"n":2,"spent":null}\n'
    assert json_rows(rows) == json_lines(rows).splitlines()


@given(st.lists(st.text(), max_size=20))
def test_there_is_one_json_object_for_each_row(texts: list[str]) -> None:
    rows = pl.DataFrame({"text": texts}, schema={"text": pl.String()})
    assert [json.loads(text)["text"] for text in json_rows(rows)] == texts


def test_no_rows_are_refused_as_none() -> None:
    none = refused_rows(ROWS.clear(), "KEY_NULL", "account is null")
    assert none.is_empty()
    assert none.columns == ["reason", "detail", "raw"]


def test_a_time_that_no_calendar_has_is_written_as_a_number() -> None:
    times = pl.Series("at", [0, -(2**63) + 1, None]).cast(pl.Datetime("us", "UTC"))
    assert [json.loads(row)["at"] for row in json_rows(times.to_frame())] == [
        "1970-01-01T00:00:00.000000+00:00",
        "-9223372036854775807",
        None,
    ]


def test_bytes_are_in_base_64_wherever_they_stand() -> None:
    kind = pl.Struct({"k": pl.String(), "v": pl.Binary()})
    rows = pl.DataFrame(
        {
            "struct": [{"bytes": b"\x00\xff", "list": [b"a", None]}, None],
            "list": [[], [b"b"]],
            "map": [[{"k": "x", "v": b"c"}, None], None],
            "lists": [[[b"d"], None, []], []],
            "numbers": [[1, None], None],
        },
        schema={
            "struct": pl.Struct({"bytes": pl.Binary(), "list": pl.List(pl.Binary())}),
            "list": pl.List(pl.Binary()),
            "map": pl.List(kind),
            "lists": pl.List(pl.List(pl.Binary())),
            "numbers": pl.List(pl.Int64()),
        },
    )
    first = {
        "struct": {"bytes": "AP8=", "list": ["YQ==", None]},
        "list": [],
        "map": [{"k": "x", "v": "Yw=="}, None],
        "lists": [["ZA=="], None, []],
        "numbers": [1, None],
    }
    second = {"struct": None, "list": ["Yg=="], "map": None, "lists": [], "numbers": None}
    assert [json.loads(row) for row in json_rows(rows)] == [first, second]
    assert [json.loads(row) for row in json_rows(rows.slice(1))] == [second]


def test_a_map_is_an_object_whose_values_are_written_as_any_others() -> None:
    maps = pl.DataFrame(
        {
            "by_name": [{"a": math.nan, "b": None, "c": 1.5}, {}, None],
            "by_day": [{date(2026, 1, 1): b"\xff"}, None, {}],
            "by_ratio": [{1.5: 1, math.nan: 2}, {}, None],
        },
        schema={
            "by_name": pl.Map(pl.String(), pl.Float64()),
            "by_day": pl.Map(pl.Date(), pl.Binary()),
            "by_ratio": pl.Map(pl.Float64(), pl.Int64()),
        },
    )
    assert [json.loads(row) for row in json_rows(maps)] == [
        {
            "by_name": {"a": "NaN", "b": None, "c": 1.5},
            "by_day": {"2026-01-01": "/w=="},
            "by_ratio": {"1.5": 1, "NaN": 2},
        },
        {"by_name": {}, "by_day": None, "by_ratio": {}},
        {"by_name": None, "by_day": {}, "by_ratio": None},
    ]


def test_a_number_that_json_lacks_is_text_wherever_it_stands_and_others_stay_numbers() -> None:
    rows = pl.DataFrame(
        {
            "score": [math.nan, 1.5, None],
            "small": [0.1, math.inf, -math.inf],
            "list": [[math.inf, None, 2.0], [], None],
            "struct": [{"score": -math.inf, "text": "NaN"}, {"score": 5e-324, "text": '"1"'}, None],
            "map": [[{"key": "a", "value": math.nan}], [{"key": "b", "value": 1e300}], []],
            "n": [1, 2, 3],
        },
        schema_overrides={"small": pl.Float32()},
    )
    assert [json.loads(row) for row in json_rows(rows)] == [
        {
            "score": "NaN",
            "small": 0.1,
            "list": ["Infinity", None, 2.0],
            "struct": {"score": "-Infinity", "text": "NaN"},
            "map": [{"key": "a", "value": "NaN"}],
            "n": 1,
        },
        {
            "score": 1.5,
            "small": "Infinity",
            "list": [],
            "struct": {"score": 5e-324, "text": '"1"'},
            "map": [{"key": "b", "value": 1e300}],
            "n": 2,
        },
        {"score": None, "small": "-Infinity", "list": None, "struct": None, "map": [], "n": 3},
    ]
    assert json_values(rows["score"]) == [b'"NaN"', b"1.5", b"null"]


@given(st.lists(st.floats(), min_size=1))
def test_a_number_is_written_the_same_beside_one_that_json_lacks(numbers: list[float]) -> None:
    alone, beside = (pl.Series("x", each, dtype=pl.Float64) for each in (numbers, [*numbers, math.nan]))
    finite = [place for place, number in enumerate(numbers) if math.isfinite(number)]
    written, expected = json_values(beside), json_values(alone.filter(alone.is_finite()))
    assert [written[place] for place in finite] == expected


def test_a_time_that_no_calendar_has_is_written_as_a_number_inside_others_too() -> None:
    times = pl.Series("at", [2**63 - 1, None]).cast(pl.Datetime("us", "UTC"))
    rows = times.to_frame().select(pl.struct("at").alias("struct"), pl.concat_list("at").alias("list"))
    assert [json.loads(row) for row in json_rows(rows)] == [
        {"struct": {"at": "9223372036854775807"}, "list": ["9223372036854775807"]},
        {"struct": {"at": None}, "list": [None]},
    ]


def test_values_of_every_kind_are_written_as_people_write_them() -> None:
    rows = pl.DataFrame(
        {
            "text": ["ü -"],
            "number": [-5],
            "ratio": [1.5],
            "boundless": [-math.inf],
            "unknown": [math.nan],
            "price": [Decimal("2.50")],
            "flag": [True],
            "day": [date(2026, 1, 1)],
            "at": [datetime(2026, 1, 1, 12, tzinfo=UTC)],
            "local": [datetime(2026, 1, 1, 12)],
            "lasted": [timedelta(minutes=5)],
            "data": [b"\x00\xff"],
        }
    )
    expected = {
        "text": "ü -",
        "number": "-5",
        "ratio": "1.5",
        "boundless": "-Infinity",
        "unknown": "NaN",
        "price": "2.50",
        "flag": "true",
        "day": "2026-01-01",
        "at": "2026-01-01T12:00:00Z",
        "local": "2026-01-01T12:00:00.000000",
        "lasted": "PT5M",
        "data": "00ff",
    }
    assert {name: parse_template(f"<{{{name}}}>").render(rows).item() for name in rows.columns} == {
        name: f"<{text}>" for name, text in expected.items()
    }


def test_a_row_with_a_null_has_no_name() -> None:
    rows = pl.DataFrame({"a": ["x", None, "z"], "b": [1, 2, None]})
    assert parse_template("{a}:{b}").render(rows).to_list() == ["x:1", None, None]


def test_no_rows_have_no_names() -> None:
    assert parse_template("{a}").render(pl.DataFrame(schema={"a": pl.String()})).to_list() == []


@given(st.lists(st.tuples(st.text("ab-%:", max_size=4), st.text("ab-%:", max_size=4)), min_size=1, unique=True))
def test_different_values_have_different_names(pairs: list[tuple[str, str]]) -> None:
    rows = pl.DataFrame(pairs, schema={"a": pl.String(), "b": pl.String()}, orient="row")
    for text in ("{a}-{b}", "{a}--{b}", "{a}:-{b}:", "-{b}-{a}"):
        assert parse_template(text).render(rows).n_unique() == len(pairs)


def test_braces_are_written_twice() -> None:
    template = parse_template("{{{a}}}.x")
    assert template.render(pl.DataFrame({"a": ["1"]})).to_list() == ["{1}.x"]
    assert str(template) == "{{{a}}}.x"


@pytest.mark.parametrize("text", ["", "constant", "{", "{}", "{a}{b}", "{a}and{b}", "{a}%{b}", "{a!r}", "{a:>3}"])
def test_a_template_that_cannot_be_is_an_error(text: str) -> None:
    with pytest.raises(DefinitionError, match="TEMPLATE_INVALID"):
        parse_template(text)


def test_a_column_must_be_there_and_have_single_values() -> None:
    columns = {"a": pl.String(), "tags": pl.List(pl.String())}
    parse_template("{a}").check(columns)
    with pytest.raises(DefinitionError, match=r"TEMPLATE_COLUMN.*'b'.*Existing columns: a, tags"):
        parse_template("{b}").check(columns)
    with pytest.raises(DefinitionError, match=r"TEMPLATE_COLUMN.*ARRAY<STRING>"):
        parse_template("{tags}").check(columns)
