"""The sink of benchmark runs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

import headrace as hr


@dataclass(frozen=True, slots=True)
class Discard:
    """Computes the rows and throws them away, as Spark's own no-op sink does, unless somebody wants to compare them."""

    results: str | None
    """A folder to which rows are added; None: none are kept."""

    @property
    def guarantee(self) -> str:
        """A benchmark does not crash."""
        return "exactly_once"

    def write(self, frame: DataFrame, batch: hr.BatchIdentity) -> hr.Written:
        """Run the frame once."""
        if self.results is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.write.mode("append").parquet(self.results)
        return hr.Written(0, 0)
