"""How rules come to a step: read where they arrive, each with the matching that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from headrace.errors import DefinitionError
from headrace.event_time.lateness import Lateness
from headrace.event_time.record import TimeBounds
from headrace.expressions.operands import common_type
from headrace.operators.patterns.bound import BoundPattern
from headrace.operators.patterns.by_pattern import PatternMatching
from headrace.operators.patterns.definition import Definition
from headrace.operators.patterns.match_values import CarriedColumns
from headrace.operators.rows import Rows
from headrace.wheel.operator import Combined

TIME, RULE, PATTERN = "__time", "rule", "__pattern"
_BY_ITSELF = Lateness("drop")


@dataclass(frozen=True)
class RulePlace:
    """What the patterns of a step's rules have in common."""

    step: str
    key: tuple[str, ...]
    time: str
    schema: tuple[tuple[str, pl.DataType], ...]
    output: tuple[tuple[str, pl.DataType], ...]
    most: int

    @property
    def rows(self) -> Rows:
        """What is known of the rows."""
        return Rows(self.step, self.key, self.time, dict(self.schema))


@lru_cache(maxsize=1_024)
def rule_matching(place: RulePlace, text: str) -> PatternMatching:
    """The matching of one rule, or a definition error that says what is wrong with it."""
    definition = Definition.from_json(text)
    definition.check("the rule")
    if not definition.measures:
        raise DefinitionError("MEASURES_MISSING", "the rule: a match says nothing. Add .select(...) to its pattern.")
    bound = BoundPattern(definition, place.most, CarriedColumns(dict(place.schema)))
    matching = PatternMatching(place.step, place.rows, bound, _BY_ITSELF)
    _ = matching.state_schema
    output = dict(place.output)
    for name, dtype in bound.measures.schema.items():
        if name not in output or common_type(dtype, output[name]) != output[name]:
            declared = ", ".join(f"{column} {of}" for column, of in output.items())
            raise DefinitionError(
                "RULE_OUTPUT",
                f"measure {name!r} is {dtype}, but the step's output has {declared}. Give the rule's measures "
                "the names and types of the output.",
            )
    return matching


@dataclass(frozen=True)
class PatternRuleIntake:
    """How rule rows come to the key groups: all of them to each; what is no pattern stays behind."""

    place: RulePlace
    rule: str
    """The column that tells rules apart."""
    deleted: bool
    """Whether rows can remove a rule."""
    time: pl.Expr
    name: str = "rules"
    broadcast: bool = True
    late_output: str = "late_rules"
    key: tuple[str, ...] = ()

    @property
    def partial_schema(self) -> dict[str, pl.DataType]:
        """When, which rule, and its pattern; no pattern removes it."""
        return {TIME: pl.Int64(), RULE: pl.String(), PATTERN: pl.String()}

    def combine(self, rows: pl.DataFrame, bounds: TimeBounds) -> Combined:
        """Rules that can be read travel; a late one counts from now on."""
        gone = pl.col("deleted").fill_null(False) if self.deleted else pl.lit(False)
        pattern = pl.when(gone).then(None).otherwise(pl.col("pattern").fill_null(""))
        given = rows.select(self.time.alias(TIME), pl.col(self.rule).alias(RULE), pattern.alias(PATTERN))
        wrong = pl.Series([self._wrong(*each) for each in given.select(RULE, PATTERN).rows()], dtype=pl.String)
        good = given.filter(wrong.is_null())
        return Combined(good, rows.clear(), good.height, failed=self._failed(rows, wrong))

    def _wrong(self, rule: str | None, text: str | None) -> str | None:
        """Why a rule cannot be used, or None."""
        if rule is None:
            return f"[RULE_ID_MISSING] {self.rule} is null, so the rule cannot be told from others. Give it one."
        try:
            if text is not None:
                rule_matching(self.place, text)
        except DefinitionError as error:
            return str(error)
        except Exception as error:
            # Whatever somebody writes into a rule, the flow goes on with the others.
            return f"[PATTERN_UNREADABLE] the pattern cannot be used ({type(error).__name__}: {error}). Simplify it."
        return None

    def _failed(self, rows: pl.DataFrame, wrong: pl.Series) -> pl.DataFrame:
        """Rules that cannot be used, as dead letters."""
        bad = rows.filter(wrong.is_not_null())
        whole = pl.struct(pl.all()).struct.json_encode()
        return bad.select(
            pl.lit("RULE_UNREADABLE").alias("reason"), wrong.drop_nulls().alias("detail"), whole.alias("row")
        )

    def merge(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Rules stay as they are, in the order of their arrival."""
        return partials
