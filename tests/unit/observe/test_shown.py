"""Tables for people: names and values are never taken for markup, in a terminal or in HTML."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from headrace.observe.shown import ShownTable, as_html, as_text
from headrace.rendering import shown

ODD = pl.DataFrame({"<b>": ["[red]x[/]", "<script>alert('&')</script>"], "n": [1, None]})


def test_names_and_values_are_escaped_in_html() -> None:
    html = as_html([ShownTable.of(ODD, title="<i>spend</i>", note="a & b")])
    assert "<script>" not in html
    assert "<th>&lt;b&gt;</th>" in html
    assert "<td>&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;</td>" in html
    assert "&lt;i&gt;spend&lt;/i&gt;" in html
    assert "a &amp; b" in html
    assert '<td class="number">1</td>' in html


def test_text_shows_values_as_they_are() -> None:
    lines = as_text([ShownTable.of(ODD, title="[b]spend[/]", note="2 rows")]).splitlines()
    assert lines[0] == "[b]spend[/]  2 rows"
    assert any("[red]x[/]" in line for line in lines)


def test_a_table_without_columns_is_its_title() -> None:
    assert as_text([ShownTable((), (), title="spend", note="failed")]) == "spend  failed"
    assert "<table>" not in as_html([ShownTable((), (), title="spend", note="failed")])


def test_values_are_shown_as_people_write_them() -> None:
    hour = datetime(2026, 1, 5, 10, tzinfo=UTC)
    window = {"start": hour, "end": hour + timedelta(days=1)}
    assert shown(window) == "2026-01-05 10:00 to 2026-01-06 10:00"
    assert shown([window, None, {"a": 1, "b": "x"}]) == f"[{shown(window)}, , {{a: 1, b: x}}]"
    assert shown(b"\xffraw") == "\ufffdraw"
    assert shown(hour.replace(second=1, microsecond=5)) == "2026-01-05 10:00:01.000005"


def test_few_rows_that_are_too_wide_become_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = pl.DataFrame({"flow": ["spend"], **{f"number {n}": [n] for n in range(20)}})
    lines = as_text([ShownTable.of(wide)]).splitlines()
    assert max(map(len, lines)) <= 30
    assert any(line.split() == ["│", "number", "19", "│", "19", "│"] for line in lines)
    many = as_text([ShownTable.of(pl.concat([wide] * 4))]).splitlines()
    assert max(map(len, many)) == 80
