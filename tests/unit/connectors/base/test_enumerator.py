"""What a batch reads is divided among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.base.enumerator import divided


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 8))
def test_every_piece_goes_to_one_task_in_order_and_no_task_gets_more_than_its_share_and_a_piece(
    weights: list[int], tasks: int
) -> None:
    runs = divided(weights, tasks)
    assert len(runs) == tasks
    assert [index for run in runs for index in range(*run.indices(len(weights)))] == list(range(len(weights)))
    assert all(sum(weights[run]) <= sum(weights) / tasks + max(weights, default=0) for run in runs)
