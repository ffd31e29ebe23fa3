"""Jars by pinned coordinates, fetched once and checked by sha256 whenever they are asked for."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.services.ivy import fetch


@cache
def pinned() -> Mapping[str, Mapping[str, str]]:
    """Of each set of jars in ``jars.toml``, the checksum of every coordinate.

    >>> sorted(pinned())
    ['connect', 'connector-delta', 'connector-kafka', 'jdbc-postgres', 'kafka-broker', 'opensearch']
    """
    read = tomllib.loads(files("headrace.services").joinpath("jars.toml").read_text())
    return {name: part["sha256"] for name, part in read.items()}


def cache_folder() -> Path:
    """Where jars are kept: below ``~/.cache/headrace``, or below what HEADRACE_CACHE names."""
    given = os.environ.get("HEADRACE_CACHE")
    return (Path.home() / ".cache" / "headrace" if given is None else Path(given)).absolute() / "jars"


def jars(name: str) -> list[Path]:
    """The jars of one set; those that are not in the cache yet are fetched."""
    wanted = pinned()[name]
    folder = cache_folder()
    if _missing(wanted, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _fetch(name, _missing(wanted, folder), folder)
    return [_checked(folder / jar_path(coordinate), checksum) for coordinate, checksum in wanted.items()]


def jar_path(coordinate: str) -> Path:
    """Where a jar is, below the cache's folder.

    >>> jar_path("org.postgresql:postgresql:42.7.7").as_posix()
    'org.postgresql/postgresql/42.7.7/postgresql-42.7.7.jar'
    """
    organisation, name, revision = coordinate.split(":")
    return Path(organisation, name, revision, f"{name}-{revision}.jar")


def _missing(wanted: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {jar: checksum for jar, checksum in wanted.items() if not (folder / jar_path(jar)).exists()}


def _fetch(name: str, missing: Mapping[str, str], folder: Path) -> None:
    if not missing:
        return
    work = folder / "unfinished" / name
    arrived = work / "jars"
    said = fetch(list(missing), arrived, transitive=False, work=work)
    absent = [jar for jar in missing if not (arrived / jar_path(jar)).exists()]
    if absent:
        raise HeadraceError(
            "JAR_MISSING",
            f"{absent[0]} is not in {folder} and could not be fetched. Connect to a network that reaches a Maven "
            f"repository, or copy that folder from another machine. Ivy said: {_reason(said)}",
        )
    try:
        for jar, checksum in missing.items():
            place = folder / jar_path(jar)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(_checked(arrived / jar_path(jar), checksum), place)
    finally:
        shutil.rmtree(work)


def _checked(file: Path, checksum: str) -> Path:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != checksum:
        file.unlink()
        raise HeadraceError(
            "JAR_CHECKSUM",
            f"{file} has the sha256 {found} and not {checksum}, so it is not the jar that Headrace was tested with. "
            "It was removed; try again, and if this comes back ask who runs your Maven repository.",
        )
    return file


def _reason(said: str) -> str:
    """The first of the problems that Ivy lists, without the address that it tried: that may hold a password.

    >>> _reason(":: problems summary ::\\n:::: WARNINGS\\n\\tHost maven.test not found. url=https://maven.test/a.pom")
    'Host maven.test not found.'
    """
    problems = said.partition(":: problems summary ::")[2].splitlines()[2:]
    return problems[0].partition("url=")[0].strip() if problems else "nothing"
