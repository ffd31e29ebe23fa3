"""Dead rows of text files: verdicts on lines and problems of values, with the raw text of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from headrace.connectors.base.conversion import PROBLEM_SCHEMA
from headrace.connectors.base.decoding import DEAD_SCHEMA, RAW_BYTES
from headrace.connectors.base.lines import Lines

Verdict = tuple[str, str]


def dead_lines(lines: Lines, verdicts: Mapping[int, Verdict], problems: pl.DataFrame) -> pl.DataFrame:
    """Dead rows in the order of the file; ``verdicts`` maps a line's index in the chunk to reason and detail."""
    if not verdicts and problems.height == 0:
        return pl.DataFrame(schema=DEAD_SCHEMA)
    order = sorted(verdicts)
    judged = pl.DataFrame(
        {
            "position": lines.positions[np.array(order, dtype=np.int64)],
            "reason": [verdicts[index][0] for index in order],
            "detail": [verdicts[index][1] for index in order],
        },
        schema=PROBLEM_SCHEMA,
    )
    dead = pl.concat([judged, problems]).sort("position")
    return dead.with_columns(lines.raw_at(dead["position"], RAW_BYTES))
