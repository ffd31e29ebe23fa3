"""How many examples a property of a timeline is tried with."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

ON_SPARK = "headrace-on-spark"


def examples(count: int) -> settings:
    """So many examples inline; a tenth of them, and at least one, where each starts queries on Spark.

    A counterexample is shown as it was found: to shrink it would play hundreds of timelines.
    """
    on_spark = settings.get_current_profile_name() == ON_SPARK
    return settings(
        deadline=None,
        max_examples=1 + count // 10 if on_spark else count,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
