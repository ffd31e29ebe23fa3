"""``headrace explain``."""

from __future__ import annotations

from headrace.cli.looking import looking_session
from headrace.cli.targets import Parameters, Target, find_pipeline, read_parameters


def explain(target: Target, parameter: Parameters = None) -> None:
    """Say where time comes from, what state is kept and how long, and what each sink promises; no data is read.

    Example: headrace explain jobs/spend.py:spend -p folder=in
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    with looking_session(pipeline.name) as spark:
        text = pipeline.explain(spark=spark, **parameters)
    print(text)
