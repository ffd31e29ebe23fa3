"""Key groups and how Spark spreads them."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from pyspark.sql import SparkSession

from headrace.wheel.key_groups import KEY_GROUPS, _murmur3, group_ids, group_of_rows


@pytest.mark.parametrize("partitions", [1, 2, 4, 8, 16, 32, 64])
def test_every_number_of_partitions_that_divides_the_groups_gets_equally_many(partitions: int) -> None:
    spread = Counter(_murmur3(group) % partitions for group in group_ids())
    assert spread == Counter(dict.fromkeys(range(partitions), KEY_GROUPS // partitions))


@pytest.mark.parametrize("partitions", [3, 5, 6, 7, 12, 24])
def test_other_numbers_of_partitions_differ_by_little(partitions: int) -> None:
    spread = Counter(_murmur3(group) % partitions for group in group_ids())
    assert len(spread) == partitions
    assert max(spread.values()) <= 3 * KEY_GROUPS / partitions


def test_every_group_has_an_id_of_its_own_and_always_the_same() -> None:
    assert len(set(group_ids())) == KEY_GROUPS
    # State is found by these numbers after every restart.
    assert group_ids()[:4] == (38, 64, 57, 80)
    assert sum(group_ids()) == 4574


def test_keys_spread_over_all_groups() -> None:
    frame = pl.DataFrame({"key": [f"account {number}" for number in range(64_000)]})
    spread = Counter(group_of_rows(frame, ("key",)).to_list())
    assert set(spread) == set(group_ids())
    assert 850 < min(spread.values()) <= max(spread.values()) < 1150


def test_equal_keys_are_in_the_same_group() -> None:
    frame = pl.DataFrame({"key": ["a", None, "a", None], "other": [1, 2, 3, 4]})
    groups = group_of_rows(frame, ("key",)).to_list()
    assert groups[:2] == groups[2:]


@pytest.mark.spark
def test_spark_hashes_group_ids_as_we_do(spark: SparkSession) -> None:
    ids = [*group_ids(), *range(100)]
    rows = (
        spark.createDataFrame([(number,) for number in ids], "id INT").selectExpr("id", "hash(id) AS hashed").collect()
    )
    assert {row["id"]: row["hashed"] & 0xFFFFFFFF for row in rows} == {number: _murmur3(number) for number in ids}
