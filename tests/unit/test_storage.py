"""Opening files by the names that Spark gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.storage import local_path, open_binary


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_local_file_opens_by_path_and_by_address(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "part.json").write_bytes(b"{}")
    with open_binary(f"{prefix}{tmp_path}/part.json") as stream:
        assert stream.read() == b"{}"


def test_an_address_as_spark_writes_it_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "monday 100%.json").write_bytes(b"{}")
    with open_binary(f"file:{tmp_path}/monday%20100%25.json") as stream:
        assert stream.read() == b"{}"


@pytest.mark.parametrize("name", ["monday%20morning.json", "why?.json", "100%25.json", "a#b.json"])
@pytest.mark.parametrize("prefix", ["file:", "file://", "file://localhost"])
def test_a_file_that_is_there_by_its_name_as_given_is_meant(tmp_path: Path, prefix: str, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    assert local_path(f"{prefix}{tmp_path}/{name}") == tmp_path / name


def test_a_plain_path_keeps_its_percent_signs() -> None:
    assert local_path("in/a%20b.json") == Path("in/a%20b.json")


def test_another_file_system_is_reached_by_its_scheme() -> None:
    with pytest.raises(OSError, match="does not exist"):
        open_binary("mock://nothing-here/part.json")
