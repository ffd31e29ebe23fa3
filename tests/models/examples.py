"""How many examples a property of a timeline is tried with."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def examples(count: int) -> settings:
    """So many of a hundred that the profile asks for, and at least one; of a hundred two more.

    The first ones are always the simplest: without rows, or all in one batch.

    A counterexample is shown as it was found: to shrink it would play hundreds of timelines.
    """
    return settings(
        max_examples=max(1, count * settings().max_examples // 100) + settings().max_examples // 50,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
