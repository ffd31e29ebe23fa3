"""A session of the user's own works too, unless it could not be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.runtime.checkpoint import open_checkpoint
from headrace.runtime.session import QUERY_SETTINGS, prepare


@pytest.mark.spark
def test_the_settings_of_queries_are_made_on_a_session_that_lacks_them(spark: SparkSession) -> None:
    own = spark.newSession()
    for name in QUERY_SETTINGS:
        own.conf.unset(name)
    prepare(own)
    assert {name: own.conf.get(name) for name in QUERY_SETTINGS} == QUERY_SETTINGS


@pytest.mark.spark
def test_a_session_that_runs_tasks_twice_at_once_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(type(spark.sparkContext), "getConf", lambda context: settings)
    with pytest.raises(hr.HeadraceError) as raised:
        prepare(spark)
    assert str(raised.value) == (
        "[SPECULATION_ON] spark.speculation=true runs a task twice at once, and both would write. "
        "Set it to false for this session."
    )


def test_a_checkpoint_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = open_checkpoint(tmp_path / "some" / "where")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
