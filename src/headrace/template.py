"""Names made from a row's values, as in ``"{account}-{window_start}"``: document ids, keys."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.errors import DefinitionError

_ESCAPE = "%"


@dataclass(frozen=True, slots=True)
class Template:
    """Text with columns in it: ``texts[0] columns[0] texts[1] columns[1] ... texts[-1]``."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]

    def check(self, columns: Mapping[str, pl.DataType]) -> None:
        """Fail unless every column of the template is there and has a value that can be written as text."""
        for name in self.columns:
            kind = columns.get(name)
            if kind is None:
                raise DefinitionError(
                    "TEMPLATE_COLUMN",
                    f"template {str(self)!r} names column {name!r}, which the rows do not have. Existing columns: "
                    f"{', '.join(columns)}.",
                )
            if kind.is_nested():
                raise DefinitionError(
                    "TEMPLATE_COLUMN",
                    f"template {str(self)!r} names column {name!r}, which is a {kind}. Name single values.",
                )

    def render(self, rows: pl.DataFrame) -> pl.Series:
        """The text of each row, null where one of its columns is null; different values give different texts.

        Values stand as they are. Only in text before another column, the sign that follows the column (and ``%``) is
        written as ``%`` and its hexadecimal code, so that ``a-b`` and ``c`` is not taken for ``a`` and ``b-c``.

        >>> rows = pl.DataFrame({"a": ["x-y", "x"], "b": ["z", "y-z"]})
        >>> parse_template("{a}-{b}").render(rows).to_list()
        ['x%2Dy-z', 'x-y-z']
        """
        parts: list[pl.Expr] = [pl.lit(self.texts[0])]
        for position, name in enumerate(self.columns):
            text, kind = self.texts[position + 1], rows.schema[name]
            value = _as_text(pl.col(name), kind)
            if position + 1 < len(self.columns) and not kind.is_numeric():
                value = _escaped(value, text[0], kind)
            parts += [value, pl.lit(text)]
        return rows.select(pl.concat_str(parts).alias("name"))["name"]

    def __str__(self) -> str:
        texts = [text.replace("{", "{{").replace("}", "}}") for text in self.texts]
        return texts[0] + "".join(f"{{{name}}}{text}" for name, text in zip(self.columns, texts[1:], strict=True))


def parse_template(text: str) -> Template:
    """A template from its text; ``{{`` and ``}}`` stand for the braces themselves.

    >>> template = parse_template("spend:{account}:{day}")
    >>> template.columns, str(template)
    (('account', 'day'), 'spend:{account}:{day}')
    """
    texts, columns = [""], list[str]()
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as problem:
        raise _invalid(text, str(problem)) from None
    for literal, name, form, conversion in parsed:
        texts[-1] += literal
        if name is None:
            continue
        if name == "" or form or conversion:
            raise _invalid(text, "between braces must stand a column's name and nothing else")
        columns.append(name)
        texts.append("")
    if not columns:
        raise _invalid(text, "it names no column, so all rows would have the same name")
    for between in texts[1:-1]:
        if between == "" or between[0].isalnum() or not between[0].isascii() or between[0] == _ESCAPE:
            raise _invalid(text, "after a column and before the next must stand a sign such as ':' or '-'")
    return Template(tuple(texts), tuple(columns))


def _invalid(text: str, why: str) -> DefinitionError:
    return DefinitionError("TEMPLATE_INVALID", f"template {text!r}: {why}. Write it like 'spend:{{account}}:{{day}}'.")


def _as_text(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    match kind:
        case pl.Datetime(time_zone=None):
            return value.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f")
        case pl.Datetime():
            return value.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ")
        case pl.Duration():
            return value.dt.to_string("iso")
        case pl.Binary():
            return value.bin.encode("hex")
        case _:
            return value.cast(pl.String)


def _escaped(value: pl.Expr, sign: str, kind: pl.DataType) -> pl.Expr:
    if not isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        return value
    for each in (_ESCAPE, sign):
        value = value.str.replace_all(each, f"%{ord(each):02X}", literal=True)
    return value
