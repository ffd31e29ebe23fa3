"""``hr.top(n, by=, rows=True)``: the best rows of a window, each a row of the output, in every kind of window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import at, batch, crash, expect, play, row, timeline, watermark
from tests.models.examples import examples
from tests.models.rows import end_of_rows, make_input, micros, split

best = hr.tumbling("best", size="1 hour", key="auction").agg(rank=hr.top(2, by="price", rows=True), bids="count(*)")


@pytest.mark.spark
def test_the_best_rows_of_a_window_come_with_all_columns_and_their_rank() -> None:
    timeline(
        best.late(hr.drop()),
        at("10:05", auction=1, bidder="ann", price=3.0, tags=["x"], seen={"in": "shop"}),
        at("10:06", auction=1, bidder="bob", price=5.0, tags=None, seen=None),
        at("10:07", auction=2, bidder="ann", price=1.0, tags=[], seen={"in": None}),
        batch(),
        at("10:01", auction=1, bidder="eve", price=3.0, tags=["y", None], seen={"in": "web"}),
        crash(),
        batch(),
        watermark("11:00"),
        expect(
            row(auction=1, bidder="bob", price=5.0, tags=None, seen=None, rank=1, bids=3),
            row(auction=1, bidder="eve", price=3.0, tags=["y", None], seen={"in": "web"}, rank=2, bids=3),
            row(auction=2, bidder="ann", price=1.0, tags=[], seen={"in": None}, rank=1, bids=1),
        ),
    )


@pytest.mark.spark
def test_a_correction_gives_all_ranks_again_and_retracts_them_first() -> None:
    timeline(
        best.panes(hr.retracting()).late(hr.update_for("1 hour")),
        at("10:05", auction=1, bidder="ann", price=3),
        watermark("11:00"),
        expect(auction=1, bidder="ann", price=3, rank=1, bids=1, revision=0, change="insert"),
        at("10:10", auction=1, bidder="bob", price=7),
        crash(),
        batch(),
        expect(
            row(auction=1, bidder="ann", price=3, rank=1, bids=1, pane="on_time", revision=0, change="update_before"),
            row(auction=1, bidder="bob", price=7, rank=1, bids=2, pane="late", revision=1, change="update_after"),
            row(auction=1, bidder="ann", price=3, rank=2, bids=2, pane="late", revision=1, change="update_after"),
        ),
    )


def test_a_result_is_known_by_key_window_and_rank() -> None:
    versions = best.versions
    assert versions is not None
    assert versions.key == (("auction",), ("window",), ("rank",))


def test_rows_without_a_value_come_last_and_equal_rows_in_the_order_of_event_time() -> None:
    timeline(
        hr.tumbling("best", size="1 hour", key=None).agg(rank=hr.top(4, by="price", rows=True)).late(hr.drop()),
        at("10:05", bidder="no price", price=None),
        at("10:06", bidder="second", price=2.0),
        batch(),
        at("10:04", bidder="first", price=2.0),
        at("10:07", bidder="nan", price=float("nan")),
        watermark("11:00"),
        expect(
            row(bidder="nan", rank=1),
            row(bidder="first", rank=2),
            row(bidder="second", rank=3),
            row(bidder="no price", rank=4),
        ),
    )


def test_a_window_in_which_no_row_meets_the_condition_has_no_rows() -> None:
    step = hr.tumbling("best", size="1 hour", key="auction")
    timeline(
        step.agg(rank=hr.top(1, by="price", rows=True).where("price > 1")).late(hr.drop()),
        at("10:05", auction=1, price=1),
        at("10:05", auction=2, price=2),
        watermark("11:00"),
        expect(auction=2, price=2, rank=1),
    )


@pytest.mark.spark
def test_a_global_window_has_the_best_rows_so_far_at_each_firing() -> None:
    step = hr.global_window("best", key="auction", ttl="1 day").agg(rank=hr.top(2, by="price", rows=True))
    timeline(
        step.emit(hr.after_rows(2)).panes(hr.retracting()).late(hr.drop()),
        at("10:05", auction=1, price=2),
        at("10:06", auction=1, price=1),
        watermark("10:10"),
        expect(row(price=2, rank=1, change="insert"), row(price=1, rank=2, change="insert")),
        at("10:11", auction=1, price=0),
        crash(),
        batch(),
        at("10:12", auction=1, price=3),
        watermark("10:20"),
        expect(
            row(price=2, rank=1, revision=0, change="update_before"),
            row(price=1, rank=2, revision=0, change="update_before"),
            row(price=3, rank=1, revision=1, change="update_after"),
            row(price=2, rank=2, revision=1, change="update_after"),
        ),
    )


def test_rows_of_an_earlier_window_leave_its_marks_behind() -> None:
    hourly = hr.tumbling("hourly", size="1 hour", key="auction").agg(price="max(price)").late(hr.drop())
    daily = hr.tumbling("daily", size="1 day", key=None).agg(rank=hr.top(1, by="price", rows=True)).late(hr.drop())
    played = play(
        (hourly, daily),
        at("10:05", auction=1, price=1),
        at("10:05", auction=2, price=2),
        watermark("2026-01-03T00:00"),
    )
    (found,) = played.main
    assert set(found) == {"window", "auction", "price", "rank", "pane", "revision"}
    assert (found["auction"], found["price"], found["window"]["end"].day) == (2, 2, 2)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (hr.sliding("best", size="1 hour", key="auction").agg(rank=hr.top(1, by="price", rows=True)), "a sliding"),
        (best.agg(a=hr.top(1, by="price", rows=True), b=hr.top(2, by="price", rows=True)), "each of them would be"),
    ],
)
def test_rows_stand_alone_in_a_step_whose_windows_are_not_rows(step: Any, said: str) -> None:
    with pytest.raises(hr.DefinitionError, match=rf"\[TOP_ROWS_MISPLACED\] .*{said}"):
        play(step.late(hr.drop()), at("10:05", auction=1, price=1))


def test_a_rank_has_a_name_that_no_column_has() -> None:
    step = hr.tumbling("best", size="1 hour", key="auction").agg(price=hr.top(1, by="price", rows=True))
    with pytest.raises(hr.DefinitionError, match=r"\[RESULT_NAME_TAKEN\] .* 'price' would be both"):
        play(step.late(hr.drop()), at("10:05", auction=1, price=1))
    with pytest.raises(hr.DefinitionError, match=r"\[AGGREGATE_CANNOT_RETRACT\]"):
        hr.table_aggregate("best", key="auction").agg(rank=hr.top(1, by="price", rows=True))


@pytest.mark.parametrize("arguments", [{"by": "price"}, {"rows": True}, {"by": "price", "rows": True, "of": "x"}])
def test_a_mixture_of_both_forms_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(hr.DefinitionError, match=r"\[TOP_FORM\]"):
        hr.top(3, **arguments)


ROWS = 120
KINDS = {
    "tumbling": hr.tumbling("w", size="10 minutes", key="account"),
    "hopping": hr.hopping("w", size="10 minutes", every="5 minutes", key="account"),
    "session": hr.session("w", gap="3 minutes", key="account"),
}
places = st.sets(st.integers(1, ROWS - 1), max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("panes", [hr.accumulating(), hr.retracting()], ids=repr)
@examples(4)
@given(seed=st.integers(0, 2**32), batches=places, crashes=places, late=st.booleans())
def test_any_split_gives_the_best_rows_of_each_window(
    kind: str, panes: Any, seed: int, batches: set[int], crashes: set[int], late: bool
) -> None:
    late = late and kind != "session"
    step = KINDS[kind].agg(rank=hr.top(3, by="amount", rows=True), ids="count(*)").panes(panes)
    given_rows = make_input(seed, rows=ROWS, disorder=3600 if late else 900, partitions=1)
    time = hr.event_time("at", out_of_order="0 seconds" if late else "15 minutes")
    rows = split(given_rows.rows, batches, crashes)
    played = play(
        step.late(hr.update_for("3 days") if late else hr.side_output()), *rows, *end_of_rows(), event_time=time
    )
    assert played.late == []
    events = sorted(given_rows.events, key=lambda event: event.time)
    for (account, start, end), found in last_results(played.main, panes.kind).items():
        inside = [event for event in events if event.account == account and start <= event.time < end]
        if account == "end":
            continue
        ranked = sorted(inside, key=lambda event: (event.amount is None, -(event.amount or 0)))[:3]
        expected = [(rank, event.amount, event.time) for rank, event in enumerate(ranked, 1)]
        assert [(each["rank"], each["amount"], micros(each["at"])) for each in found] == expected
        assert {each["ids"] for each in found} == {len(inside)}


def last_results(rows: list[dict[str, Any]], panes: str) -> dict[Any, list[dict[str, Any]]]:
    """What a reader has of each window in the end: ranks replace each other, or are taken back."""
    kept: dict[Any, dict[Any, dict[str, Any]]] = {}
    for each in rows:
        of = (each["account"], micros(each["window"]["start"]), micros(each["window"]["end"]))
        if each.get("change") in ("update_before", "delete"):
            assert kept[of].pop(each["rank"])["at"] == each["at"]
        else:
            kept.setdefault(of, {})[each["rank"]] = each
    return {of: [ranks[rank] for rank in sorted(ranks)] for of, ranks in kept.items() if ranks}
