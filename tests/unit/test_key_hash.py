"""The hash of a key: Spark's own, and spread over all key groups."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import DefinitionError
from headrace.key_hash import canonical, hashes_of
from headrace.schemas import arrow_batches, parse_ddl, polars_schema
from headrace.state.group_range import KEY_GROUPS, groups_of


def key_hash(frame: pl.DataFrame, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """The hashes as Spark gives them."""
    return hashes_of(frame, key).view(np.int64)


def test_keys_spread_over_all_groups() -> None:
    frame = pl.DataFrame({"key": [f"account {number}" for number in range(64_000)]})
    spread = Counter(groups_of(hashes_of(frame, ["key"]), KEY_GROUPS).tolist())
    assert set(spread) == set(range(KEY_GROUPS))
    assert 400 < min(spread.values()) <= max(spread.values()) < 600


def test_equal_keys_have_one_hash_and_so_one_group() -> None:
    frame = pl.DataFrame({"key": ["a", None, "a", None], "other": [1, 2, 3, 4]})
    hashes = hashes_of(frame, ["key"]).tolist()
    assert hashes[:2] == hashes[2:]
    assert hashes == [value % 2**64 for value in key_hash(frame, ["key"]).tolist()]


GOLDEN = Path(__file__).parents[1] / "golden" / "key_hash.json"
DDL = (
    "bool BOOLEAN, byte TINYINT, short SMALLINT, int INT, long BIGINT, float FLOAT, double DOUBLE, date DATE, "
    "at TIMESTAMP, local TIMESTAMP_NTZ, wait INTERVAL DAY TO SECOND, small DECIMAL(5,2), medium DECIMAL(18,3), "
    "large DECIMAL(19,0), largest DECIMAL(38,10), text STRING, bytes BINARY"
)
KEYS = [[name] for name in polars_schema(parse_ddl(DDL))] + [
    ["text", "long"],
    ["long", "text"],
    ["bool", "double", "largest", "at", "bytes"],
]


def _sample(rows: int, seed: int) -> pl.DataFrame:
    chance = random.Random(seed)
    schema = polars_schema(parse_ddl(DDL))
    columns = {name: [_value(name, dtype, row, chance) for row in range(rows)] for name, dtype in schema.items()}
    return pl.DataFrame(columns, schema=schema)


def _value(name: str, dtype: pl.DataType, row: int, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return None
    bits = {"byte": 8, "short": 16, "int": 32, "long": 64}.get(name)
    if bits is not None:
        half = 1 << (bits - 1)
        return chance.choice([0, 1, -1, half - 1, -half, chance.randrange(-half, half)])
    if isinstance(dtype, pl.Decimal):
        digits = 10 ** chance.randint(0, dtype.precision)
        return Decimal(chance.randrange(-digits + 1, digits)).scaleb(-dtype.scale, Context(prec=60))
    if dtype in (pl.Float32, pl.Float64):
        value = chance.choice([0.0, -0.0, float("nan"), float("inf"), float("-inf"), chance.gauss(0, 1e9)])
        return struct.unpack("f", struct.pack("f", value))[0] if dtype == pl.Float32 else value
    if name == "bool":
        return chance.random() < 0.5
    if name == "date":
        return date(1970, 1, 1) + timedelta(days=chance.randint(-200_000, 200_000))
    if name in ("at", "local"):
        zone = UTC if name == "at" else None
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=chance.randint(-(10**16), 10**17))
    if name == "wait":
        return timedelta(microseconds=chance.randint(-(10**16), 10**16))
    if name == "bytes":
        return chance.randbytes(row % 101)
    return "".join(chance.choice("abcxyz019 éß水\U0001f40c") for _ in range(row % 101))


@pytest.mark.spark
def test_every_type_of_key_hashes_as_spark_hashes_it(spark: SparkSession) -> None:
    frame = _sample(1_000, seed=7)
    struct_type = parse_ddl(DDL)
    [batch] = arrow_batches(frame, struct_type)
    rows = spark.createDataFrame(pa.Table.from_batches([batch]), schema=struct_type)
    hashed = rows.selectExpr(*(f"xxhash64({', '.join(key)}) AS `{position}`" for position, key in enumerate(KEYS)))
    expected = pl.DataFrame(hashed.toArrow())
    for position, key in enumerate(KEYS):
        assert key_hash(frame, key).tolist() == expected[str(position)].to_list(), key


def test_the_golden_vectors_hold() -> None:
    vectors = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(vectors) > 60
    for vector in vectors:
        schema = polars_schema(parse_ddl(vector["types"]))
        text = pl.DataFrame([vector["values"]], schema=dict.fromkeys(schema, pl.String), orient="row")
        frame = text.select(_read(name, dtype) for name, dtype in schema.items())
        assert key_hash(frame, frame.columns).tolist() == [vector["hash"]], vector


def _read(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.Boolean:
        return column == "true"
    if dtype == pl.Binary:
        return column.str.decode("hex")
    if dtype == pl.Date:
        return column.str.to_date()
    if isinstance(dtype, pl.Datetime):
        return column.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", time_zone=dtype.time_zone)
    return column.cast(dtype)


def test_every_bit_pattern_of_nan_hashes_alike_and_so_do_the_two_zeros() -> None:
    quiet = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64).view(np.float64)
    narrow = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], dtype=np.uint32).view(np.float32)
    for values in (quiet, narrow, np.array([0.0, -0.0]), np.array([0.0, -0.0], dtype=np.float32)):
        assert len(set(key_hash(pl.DataFrame({"x": values}), ["x"]).tolist())) == 1


def test_canonical_gives_equal_floats_one_bit_pattern() -> None:
    values = np.array([0xFFF8000000000001, 0x7FF8000000000000, 1 << 63, 0], dtype=np.uint64).view(np.float64)
    frame = pl.DataFrame({"double": values, "float": pl.Series([float("nan"), 1.5, -0.0, None], dtype=pl.Float32)})
    result = canonical(frame, ["double", "float"])
    assert result.schema == frame.schema
    assert [hex(word) for word in result["double"].to_numpy().view(np.uint64)] == ["0x7ff8000000000000"] * 2 + [
        "0x0"
    ] * 2
    assert result["float"].fill_null(7).to_numpy().view(np.uint32).tolist() == [0x7FC00000, 0x3FC00000, 0, 0x40E00000]


def test_a_frame_without_float_keys_is_already_canonical() -> None:
    frame = pl.DataFrame({"account": ["a"], "level": [-0.0]})
    assert canonical(frame, ["account"]) is frame


def test_a_slice_of_a_frame_hashes_as_its_rows_do_in_the_whole() -> None:
    frame = _sample(300, seed=3)
    for key in KEYS:
        whole = key_hash(frame, key)
        assert (key_hash(frame.slice(101, 57), key) == whole[101:158]).all(), key
        assert (key_hash(pl.concat([frame[:40], frame[40:]], rechunk=False), key) == whole).all(), key


def test_one_huge_key_among_small_ones_hashes_as_it_does_alone() -> None:
    texts = ["a", "b" * 300_001, "", "c" * 31]
    together = key_hash(pl.DataFrame({"text": texts}), ["text"]).tolist()
    assert together == [key_hash(pl.DataFrame({"text": [text]}), ["text"]).tolist()[0] for text in texts]


def test_an_empty_frame_has_no_hashes() -> None:
    assert key_hash(_sample(1, seed=1).clear(), ["text", "largest", "double"]).tolist() == []


def test_a_list_is_refused_as_a_key() -> None:
    with pytest.raises(DefinitionError, match=r"\[KEY_TYPE\] key column 'tags' is List"):
        key_hash(pl.DataFrame({"tags": [["a"]]}), ["tags"])
