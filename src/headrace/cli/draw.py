"""``headrace draw``."""

from __future__ import annotations

from headrace.cli.looking import looking_session
from headrace.cli.targets import Parameters, Target, find_pipeline, read_parameters


def draw(target: Target, parameter: Parameters = None) -> None:
    """Print a pipeline's graph as Mermaid text; no data is read.

    Example: headrace draw jobs/spend.py:spend -p folder=in > spend.mmd
    """
    pipeline, parameters = find_pipeline(target), read_parameters(parameter)
    with looking_session(pipeline.name) as spark:
        text = pipeline.draw(spark=spark, **parameters)
    print(text)
