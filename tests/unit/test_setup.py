"""The set-up scripts, run with a PATH of our own making."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)


def run(script: Path, *arguments: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *arguments],
        env={"PATH": str(path), "HOME": str(path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with a system's basic programs, without Java, uv, sudo or apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "cat", "dirname", "env", "head", "readlink", "rm", "sed", "sha256sum"):
        (folder / name).symlink_to(shutil.which(name) or name)
    program(folder, "id", "echo 1000")
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that the set-up reads, in a place without .venv."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_without_java_and_without_root_one_sentence_names_the_package(bare: Path, clone: Path) -> None:
    outcome = run(clone / "scripts/setup", path=bare)
    assert outcome.returncode == 1
    assert outcome.stderr.count("\n") == 1
    assert "sudo apt-get install openjdk-17-jre-headless" in outcome.stderr
    assert not (clone / ".venv").exists()


def test_a_java_home_that_is_too_old_is_named(bare: Path, clone: Path, tmp_path: Path) -> None:
    (tmp_path / "old/bin").mkdir(parents=True)
    program(tmp_path / "old/bin", "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    outcome = run(clone / "scripts/setup", path=bare, JAVA_HOME=str(tmp_path / "old"))
    assert outcome.returncode == 1
    assert "JAVA_HOME" in outcome.stderr


def test_package_lists_are_fetched_when_the_first_try_fails(bare: Path, tmp_path: Path) -> None:
    program(bare, "id", "echo 0")
    calls = tmp_path / "calls"
    program(bare, "apt-get", f'echo "$*" >>{calls}; [[ "$*" == *update* ]] && exit 0; grep -q update {calls}')
    (bare / "grep").symlink_to(shutil.which("grep") or "grep")
    assert run(ROOT / "scripts/apt-install", "one", "two", path=bare).returncode == 0
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == ["one", "two", "update", "one"]


def test_a_python_older_than_three_eleven_is_refused(bare: Path) -> None:
    program(bare, "python3", "exit 1")
    outcome = run(ROOT / "scripts/find-python", path=bare)
    assert outcome.returncode == 1
    assert "Python 3.11" in outcome.stderr


def test_the_lock_holds_hashes_and_neither_addresses_nor_paths() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    names = re.findall(r"^[a-z][\w.-]*==.*$", lock, re.MULTILINE)
    assert len(names) > 20
    assert all(name.endswith("\\") for name in names), "a package without a hash"
    assert re.search(r"//|--(extra-)?index|file:|(?<!\S)/", lock) is None
    assert os.sep + "home" not in lock
