"""A checkpoint belongs to one definition: what would load state into the wrong step is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.storage import LocalStorage
from headrace.event_time.record import BatchLog
from headrace.plan.identity import identity_of

pytestmark = pytest.mark.spark

SCHEMA = "account STRING, shop STRING, amount DOUBLE, at TIMESTAMP, paid TIMESTAMP"
Check = Callable[..., dict[str, Any]]


def _step(name: str, **changed: Any) -> Any:
    chosen: dict[str, Any] = {
        "size": "1 minute",
        "key": "account",
        "late": hr.side_output(),
        "agg": "sum(amount)",
    } | changed
    window = hr.tumbling(name, size=chosen["size"], key=chosen["key"])
    return window.agg(amount=chosen["agg"]).late(chosen["late"]).emit(hr.on_close())


def _one(**changed: Any) -> list[Any]:
    return [_step("minutely", **changed)]


def _two() -> list[Any]:
    return [_step("minutely"), _step("hourly", size="1 hour")]


@pytest.fixture
def check(spark: SparkSession, tmp_path: Path) -> Check:
    """A function that defines a flow with these steps, and takes the one checkpoint of the test over with it."""
    for folder in ("in", "other"):
        (tmp_path / folder).mkdir()

    def checking(
        steps: list[Any],
        *,
        pipeline: str = "spend",
        time: Any = None,
        read: dict[str, Any] | None = None,
        sink: Any = None,
        key_groups: int | None = None,
    ) -> dict[str, Any]:
        def define(session: SparkSession) -> None:
            chosen: dict[str, Any] = {"path": tmp_path / "in", "format": "json", "schema": SCHEMA, "name": "payments"}
            frame = hr.read_files(session, **chosen | (read or {})).transform(time or hr.event_time("at"))
            for step in steps:
                frame = step(frame)
            hr.write("totals", frame, sink or hr.to_files(tmp_path / "out"))

        graph = hr.pipeline(name=pipeline, key_groups=key_groups)(define).define(spark, tmp_path / "checkpoint")
        storage, flow = LocalStorage(tmp_path / "checkpoint" / "totals"), graph.flows["totals"]
        log = BatchLog(storage)
        log.take_over(lambda said: identity_of(graph, flow, stored=said, storage=storage))
        return dict(log.identity)

    return checking


def test_the_same_definition_is_accepted_again(check: Check) -> None:
    check(_two())
    check(_two())


def test_a_checkpoint_of_another_pipeline_is_refused(check: Check, tmp_path: Path) -> None:
    check(_one())
    with pytest.raises(hr.HeadraceError) as raised:
        check(_one(), pipeline="audit")
    assert str(raised.value) == (
        f"[CHECKPOINT_OF_ANOTHER_PIPELINE] checkpoint '{tmp_path}/checkpoint/totals' was made with pipeline 'spend', "
        "this is 'audit'. Give this pipeline a checkpoint of its own."
    )


def test_a_changed_size_is_refused_with_both_definitions_shown(check: Check, tmp_path: Path) -> None:
    check(_one())
    with pytest.raises(hr.HeadraceError) as raised:
        check(_one(size="2 minutes"))
    shown = "key='account').agg(amount='sum(amount)').emit(hr.on_close()).late(hr.side_output())"
    assert str(raised.value) == (
        f"[STEP_CHANGED] step 'minutely' has another size than the checkpoint '{tmp_path}/checkpoint/totals', so what "
        f"it holds would be wrong. Stored: hr.tumbling('minutely', size='1 minute', {shown}. "
        f"Now: hr.tumbling('minutely', size='2 minutes', {shown}. Revert the change, or start with a new checkpoint."
    )


@pytest.mark.parametrize(
    ("steps", "differing", "shown"),
    [
        (lambda: _one(key="shop"), "key", ("key='account'", "key='shop'")),
        (lambda: _one(key=["account", "shop"]), "key", ("key='account'", "key=['account', 'shop']")),
        (lambda: _one(agg="max(amount)"), "aggregates", ("'sum(amount)'", "'max(amount)'")),
    ],
    ids=["another key", "one more key", "another aggregate"],
)
def test_a_changed_step_is_refused_with_both_definitions_shown(
    steps: Callable[[], list[Any]], differing: str, shown: tuple[str, str], check: Check
) -> None:
    check(_one())
    with pytest.raises(
        hr.HeadraceError, match=rf"^\[STEP_CHANGED\] step 'minutely' has another {differing} "
    ) as raised:
        check(steps())
    stored, now = str(raised.value).split(" Now: ")
    assert shown[0] in stored
    assert shown[1] in now


def test_swapped_steps_are_refused_with_both_orders_shown(check: Check) -> None:
    check([_step("a"), _step("b")])
    with pytest.raises(hr.HeadraceError) as raised:
        check([_step("b"), _step("a")])
    said = str(raised.value)
    assert said.startswith("[STEP_CHANGED] ")
    assert "holds the steps a, b, the pipeline now has b, a; state would be loaded into another step" in said
    assert said.index("Stored: hr.tumbling('a'") < said.index("Now: hr.tumbling('b'")


def test_an_inserted_step_is_refused(check: Check) -> None:
    check(_one())
    with pytest.raises(hr.HeadraceError, match="holds the steps minutely, the pipeline now has minutely, hourly"):
        check(_two())


def test_a_removed_step_is_refused(check: Check) -> None:
    check(_two())
    with pytest.raises(hr.HeadraceError, match="holds the steps minutely, hourly, the pipeline now has minutely;"):
        check(_one())


def test_other_columns_of_the_rows_that_a_step_holds_are_refused(check: Check) -> None:
    near = hr.interval_join("near", on="account", between=("0 seconds", "1 minute")).late(hr.drop())

    def with_columns(*names: str) -> list[Any]:
        return [lambda frame: near(*hr.split(frame.select("account", "at", *names), "account > 'm'", "true"))]

    check(with_columns("amount"))
    with pytest.raises(hr.HeadraceError, match=r"another state \(now without amount, without amount_right, with shop"):
        check(with_columns("shop"))


def test_other_columns_that_a_step_does_not_hold_may_come_and_go(check: Check) -> None:
    check([lambda frame: frame.select("account", "amount", "at"), *_one()])
    check([lambda frame: frame.select("account", "amount", "shop", "at"), *_one()])


def test_another_source_is_refused_with_both_shown(check: Check) -> None:
    check(_one())
    with pytest.raises(hr.HeadraceError) as raised:
        check(_one(), read={"name": "orders"})
    said = str(raised.value)
    assert said.startswith("[SOURCE_CHANGED] ")
    assert "holds the sources payments, the pipeline now has orders" in said
    assert said.index('Stored: {"name": "payments"') < said.index('Now: {"name": "orders"')


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({"read": {"path": "other"}}, "path"),
        ({"read": {"schema": SCHEMA + ", note STRING"}}, "schema"),
        ({"time": hr.event_time("paid")}, "time"),
        ({"time": hr.event_time("at", partition="shop")}, "time"),
    ],
    ids=["another folder", "another schema", "another time column", "another partition"],
)
def test_a_changed_source_is_refused(changed: dict[str, Any], differing: str, check: Check, tmp_path: Path) -> None:
    check(_one())
    if "path" in changed.get("read", {}):
        changed = {"read": {"path": tmp_path / "other"}}
    with pytest.raises(hr.HeadraceError, match=rf"^\[SOURCE_CHANGED\] source 'payments' has another {differing} "):
        check(_one(), **changed)


def test_longer_corrections_are_accepted_and_shorter_ones_refused(check: Check) -> None:
    check(_one())
    check(_one(late=hr.update_for("1 minute")))
    check(_one(late=hr.update_for("5 minutes")))
    with pytest.raises(hr.HeadraceError, match=r"^\[STEP_CHANGED\] step 'minutely' has another late than") as raised:
        check(_one(late=hr.update_for("1 minute")))
    assert "hr.update_for('5 minutes')" in str(raised.value)


def test_disorder_idleness_and_sinks_may_change(check: Check) -> None:
    first = check(_one())
    time = hr.event_time("at", out_of_order="1 minute", idle=None, accept=hr.valid_times(max_future=None))
    assert check(_one(), time=time) == first
    assert check(_one(), sink=hr.to_console()) == first
    assert check(_one(), read={"files_per_batch": 3}) == first


def test_the_expected_values_of_a_partition_column_may_change(check: Check) -> None:
    for partitions in (None, ["north", "south"], 3):
        check(_one(), time=hr.event_time("at", partition="shop", partitions=partitions))


def test_an_accepted_change_becomes_the_stored_definition(check: Check, tmp_path: Path) -> None:
    check(_one())
    check(_one(late=hr.update_for("1 minute")))
    stored = BatchLog(LocalStorage(tmp_path / "checkpoint" / "totals")).identity
    assert "hr.update_for('1 minute')" in stored["steps"][0]["definition"]


def test_an_empty_folder_is_a_new_checkpoint_and_one_without_its_log_is_refused(check: Check, tmp_path: Path) -> None:
    first = check(_two())
    folder = tmp_path / "checkpoint" / "totals"
    shutil.rmtree(folder)
    (folder / "waiting").mkdir(parents=True)
    (folder / "waiting" / "source.payments.json").touch()
    assert check(_one())["id"] != first["id"]
    shutil.rmtree(folder / "log")
    (folder / "history.jsonl").touch()
    with pytest.raises(
        hr.HeadraceError, match=r"\[CHECKPOINT_INCOMPLETE\].*its log is gone, but history.jsonl is still"
    ):
        check(_one())


def test_key_groups_are_fixed_when_the_checkpoint_is_made(check: Check) -> None:
    assert check(_one(), key_groups=16)["key_groups"] == 16
    assert check(_one())["key_groups"] == 16
    with pytest.raises(hr.HeadraceError, match=r"made with key_groups 16, this is 128"):
        check(_one(), key_groups=128)


def test_a_pipeline_that_says_nothing_gets_the_usual_number_of_key_groups(check: Check) -> None:
    assert check(_one())["key_groups"] == check(_one(), key_groups=128)["key_groups"] == 128


@pytest.mark.parametrize("key_groups", [0, -1, 32_769])
def test_an_impossible_number_of_key_groups_is_refused(key_groups: int) -> None:
    with pytest.raises(hr.HeadraceError, match=r"\[KEY_GROUPS_INVALID\] pipeline 'spend'.* from 1 to 32,768"):
        hr.pipeline(name="spend", key_groups=key_groups)(lambda spark: None)
