"""Flink's own environment below Headrace's cache: Python packages by hash, jars by sha256; made once, then found."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.services.jars import cache_folder, fetch, jar_path

HERE = Path(__file__).parent
UV = HERE.parents[1] / "scripts" / "uv"
LOCK = HERE / "requirements.lock"
JARS = HERE / "jars.toml"
PYTHON = "3.11"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where Flink is."""

    python: Path
    jars: tuple[Path, ...]
    """Connectors and formats that Flink's package does not bring."""


def environment() -> Environment:
    """Flink, fetched the first time (some 700 MB) and whenever the lock has changed."""
    folder = cache_folder().parent / "flink"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = _packages(folder)
        return Environment(python, tuple(_jar(folder, *pinned) for pinned in pinned_jars().items()))


def pinned_jars() -> Mapping[str, str]:
    """The sha256 of every jar by coordinate."""
    found: dict[str, str] = tomllib.loads(JARS.read_text())["sha256"]
    return found


def write_locks() -> None:
    """Choose the versions of Python packages anew, and take the sums of the jars as they are now."""
    command = ["pip", "compile", "--quiet", "--upgrade", "--python-version", PYTHON, "--generate-hashes"]
    command += ["--no-emit-index-url", "--custom-compile-command", "python -m benchmarks.flink --lock"]
    _uv(*command, str(HERE / "requirements.in"), "--output-file", str(LOCK))
    work = cache_folder().parent / "flink" / "unfinished"
    lines = [line for line in JARS.read_text().splitlines() if line.startswith("#")]
    lines += ["", "[sha256]"]
    for coordinate in pinned_jars():
        lines.append(f'"{coordinate}" = "{_sum(_fetched(coordinate, work))}"')
    shutil.rmtree(work)
    JARS.write_text("\n".join(lines) + "\n")


def _packages(folder: Path) -> Path:
    home, stamp = folder / "venv", folder / "venv.stamp"
    python = home / "bin" / "python"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted or not python.exists():
        stamp.unlink(missing_ok=True)
        _uv("venv", "--quiet", "--clear", "--python", PYTHON, str(home))
        # Compiled now: some environments forbid Python to write bytecode and would compile at every start.
        options = ("--quiet", "--python", str(python), "--require-hashes", "--compile-bytecode")
        _uv("pip", "sync", *options, str(LOCK))
        stamp.write_text(wanted)
    return python


def _jar(folder: Path, coordinate: str, checksum: str) -> Path:
    place = folder / "jars" / jar_path(coordinate)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        work = folder / "unfinished"
        _fetched(coordinate, work).replace(place)
        shutil.rmtree(work)
    if _sum(place) != checksum:
        place.unlink()
        raise SystemExit(f"{coordinate} is not the jar that {JARS.name} names: its sha256 differs. It was removed.")
    return place


def _fetched(coordinate: str, work: Path) -> Path:
    said = fetch([coordinate], work / "jars", transitive=False, work=work)
    arrived = work / "jars" / jar_path(coordinate)
    if not arrived.exists():
        raise SystemExit(f"{coordinate} could not be fetched:\n{said[-2000:]}")
    return arrived


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _uv(*arguments: str) -> None:
    outcome = subprocess.run([str(UV), *arguments], capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise SystemExit(f"uv {' '.join(arguments[:2])} failed:\n{outcome.stderr[-2000:]}")
