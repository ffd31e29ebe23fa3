"""Names made from a row's values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.template import parse_template


def test_values_of_every_kind_are_written_as_people_write_them() -> None:
    rows = pl.DataFrame(
        {
            "text": ["ü -"],
            "number": [-5],
            "ratio": [1.5],
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
    with pytest.raises(DefinitionError, match=r"TEMPLATE_COLUMN.*List"):
        parse_template("{tags}").check(columns)
