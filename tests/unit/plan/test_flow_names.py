"""The flows of a checkpoint and those of the pipeline: a flow with another name is refused until it is renamed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.lease import Renewal, take_lease
from headrace.checkpoint.storage import LocalStorage
from headrace.errors import HeadraceError
from headrace.event_time.record import BatchLog, BatchOutcome, BatchRecord
from headrace.graph import Graph
from headrace.plan.identity import check_flows, rename_flow


def begun(checkpoint: Path, flow: str, *, pipeline: str = "shop", batches: int = 1) -> dict[str, str]:
    """A flow that has run some batches, and how the lease names it."""
    log = BatchLog(LocalStorage(checkpoint / flow))
    log.take_over(lambda _: {"pipeline": pipeline, "flow": flow, "id": f"{flow}-1"})
    for batch in range(batches):
        log.write_outcome(BatchOutcome(batch))
    return {flow: f"{flow}-1"}


def shop(checkpoint: Path, *flows: str) -> Graph:
    flow: Any = None
    return Graph("shop", checkpoint, flow, flows=dict.fromkeys(flows, flow))


def named(checkpoint: Path, known: dict[str, str]) -> None:
    """Leave a lease that names these flows, as a driver that has stopped does."""
    renewal = Renewal(take_lease(LocalStorage(checkpoint)))
    renewal.name_flows(known)
    renewal.release()


def test_a_flow_that_is_gone_while_another_is_new_is_refused_and_the_command_that_renames_it_is_told(
    tmp_path: Path,
) -> None:
    known = begun(tmp_path, "spend")
    with pytest.raises(HeadraceError) as raised:
        check_flows(shop(tmp_path, "hourly"), known)
    assert str(raised.value) == (
        f"[FLOW_RENAMED] checkpoint '{tmp_path}' holds flow 'spend', which pipeline 'shop' no longer has, and does not "
        "know flow 'hourly', which would read and write everything again. If it is the same flow, run: headrace "
        f"checkpoint rename-flow {tmp_path} spend hourly. If not, move the folder '{tmp_path}/spend' away, with the "
        "state and late rows in it, or use a new checkpoint."
    )
    assert not (tmp_path / "hourly").exists()


def test_a_flow_that_was_moved_away_is_not_asked_for_again(tmp_path: Path) -> None:
    known = begun(tmp_path, "spend")
    (tmp_path / "spend").rename(tmp_path.with_name("away"))
    with pytest.warns(RuntimeWarning, match="flow 'hourly' is new"):
        assert check_flows(shop(tmp_path, "hourly"), known) == {}


def test_a_flow_that_was_added_is_told_to_begin_without_state(tmp_path: Path) -> None:
    known = begun(tmp_path, "spend")
    with pytest.warns(RuntimeWarning, match=r"flow 'daily', 'hourly' is new in checkpoint .* begins without state"):
        assert check_flows(shop(tmp_path, "spend", "hourly", "daily"), known) == known


def test_a_flow_that_was_removed_is_told_and_stays_known(tmp_path: Path) -> None:
    known = {**begun(tmp_path, "spend"), **begun(tmp_path, "hourly")}
    with pytest.warns(RuntimeWarning, match=r"flow 'hourly' is not in pipeline 'shop' any more and does not run\."):
        assert check_flows(shop(tmp_path, "spend"), known) == known


def test_a_flow_that_never_began_may_get_another_name(tmp_path: Path) -> None:
    known = {**begun(tmp_path, "spend"), **begun(tmp_path, "hourly", batches=0)}
    with pytest.warns(RuntimeWarning, match="flow 'daily' is new"):
        assert check_flows(shop(tmp_path, "spend", "daily"), known) == {"spend": "spend-1"}


def test_of_the_first_start_and_of_an_unchanged_pipeline_nothing_is_told(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_flows(shop(tmp_path, "spend"), {}) == {}
        known = begun(tmp_path, "spend")
        assert check_flows(shop(tmp_path, "spend"), known) == known


@pytest.mark.parametrize("flows", [["hourly"], ["spend", "hourly"]])
def test_a_checkpoint_of_another_pipeline_with_other_flows_is_refused(tmp_path: Path, flows: list[str]) -> None:
    known = {**begun(tmp_path, "spend"), **begun(tmp_path, "alerts", pipeline="fraud")}
    with pytest.raises(
        HeadraceError, match=r"\[CHECKPOINT_OF_ANOTHER_PIPELINE\] .* made with pipeline 'fraud', this is"
    ):
        check_flows(shop(tmp_path, *flows), known)


def test_a_renamed_flow_keeps_its_id_its_outcome_and_the_batch_that_was_begun(tmp_path: Path) -> None:
    known = {**begun(tmp_path, "spend"), **begun(tmp_path, "alerts")}
    log = BatchLog(LocalStorage(tmp_path / "spend"))
    log.take_over()
    record = BatchRecord(1, 5, {}, {}, {}, drain=False, token="t")
    log.write_record(record)
    named(tmp_path, known)
    rename_flow(tmp_path, "spend", "hourly")
    renamed = BatchLog(LocalStorage(tmp_path / "hourly"))
    assert renamed.identity == {"pipeline": "shop", "flow": "hourly", "id": "spend-1"}
    assert renamed.outcome == BatchOutcome(0)
    assert renamed.record == record
    assert not (tmp_path / "spend").exists()
    lease = take_lease(LocalStorage(tmp_path))
    assert lease.flows == {"hourly": "spend-1", "alerts": "alerts-1"}
    assert check_flows(shop(tmp_path, "hourly", "alerts"), lease.flows) == lease.flows


def test_a_driver_that_writes_the_old_name_is_fenced_off(tmp_path: Path) -> None:
    known = begun(tmp_path, "spend")
    named(tmp_path, known)
    zombie = BatchLog(LocalStorage(tmp_path / "spend"))
    zombie.take_over()
    rename_flow(tmp_path, "spend", "hourly")
    (tmp_path / "hourly").rename(tmp_path / "spend")
    with pytest.raises(HeadraceError, match=r"\[LEASE_LOST\]"):
        zombie.write_outcome(BatchOutcome(1))


def test_a_rename_that_died_at_any_point_is_repeated_or_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(Exception):
        """The command has died."""

    def die(*_: object) -> None:
        raise Died

    named(tmp_path, begun(tmp_path, "spend"))
    for place, step in ((Path, "rename"), (Renewal, "name_flows")):
        with monkeypatch.context() as patched:
            patched.setattr(place, step, die)
            with pytest.raises(Died):
                rename_flow(tmp_path, "spend", "hourly")
    lease = take_lease(LocalStorage(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_flows(shop(tmp_path, "hourly"), lease.flows) == {}
    assert BatchLog(LocalStorage(tmp_path / "hourly")).identity["flow"] == "hourly"


def test_a_flow_that_is_not_there_and_a_name_that_is_taken_or_no_name_are_refused(tmp_path: Path) -> None:
    begun(tmp_path, "spend")
    begun(tmp_path, "alerts")
    with pytest.raises(HeadraceError, match=r"\[FLOW_UNKNOWN\] .* no flow 'spent'\. Existing flows: alerts, spend\."):
        rename_flow(tmp_path, "spent", "hourly")
    with pytest.raises(HeadraceError, match=r"\[FLOW_EXISTS\] .* folder 'alerts'"):
        rename_flow(tmp_path, "spend", "alerts")
    with pytest.raises(HeadraceError, match=r"\[NAME_INVALID\] flow name '\.\./x'"):
        rename_flow(tmp_path, "spend", "../x")
    with pytest.raises(HeadraceError, match=r"\[FLOW_UNKNOWN\] .* Existing flows: none\."):
        rename_flow(tmp_path / "nowhere", "spend", "hourly")
    assert not (tmp_path / "nowhere").exists()


def test_a_checkpoint_that_is_in_use_keeps_its_names(tmp_path: Path) -> None:
    begun(tmp_path, "spend")
    renewal = Renewal(take_lease(LocalStorage(tmp_path)))
    with pytest.raises(HeadraceError, match=r"\[CHECKPOINT_IN_USE\]"):
        rename_flow(tmp_path, "spend", "hourly")
    renewal.release()
    assert (tmp_path / "spend").is_dir()
