"""Jars by pinned coordinates: fetched once from a Maven repository with Ivy, checked by sha256 on every use."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from headrace.errors import HeadraceError
from headrace.services.server import java

LAYOUT = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
MODULE = """\
<ivy-module version="2.0"><info organisation="headrace" module="jars"/>
<configurations><conf name="default"/></configurations><dependencies>{}</dependencies></ivy-module>"""
SETTINGS = """\
<ivysettings><settings defaultResolver="mirror"/>
<resolvers><ibiblio name="mirror" m2compatible="true" root={}/></resolvers></ivysettings>"""
PATIENCE_SECONDS = 900
JAVA_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def fetch(coordinates: Sequence[str], into: Path, *, transitive: bool, work: Path) -> str:
    """Fetch jars into a folder by LAYOUT; ``work`` keeps for a retry what has come. Returns Ivy's output."""
    work.mkdir(parents=True, exist_ok=True)
    wanted = work / "wanted.xml"
    wanted.write_text(_module(coordinates, transitive=transitive))
    command = [java(), *_proxies(), "-jar", str(_ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(wanted)]
    settings = _settings(work)
    if settings is not None:
        command += ["-settings", str(settings)]
    command += ["-types", "jar", "bundle", "-confs", "default", "-retrieve", f"{into}/{LAYOUT}"]
    try:
        outcome = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise HeadraceError(
            "JAR_MISSING", f"fetching {coordinates[0]} took more than {PATIENCE_SECONDS} seconds. Try again later."
        ) from error
    return outcome.stdout + outcome.stderr


def _ivy_jar() -> Path:
    import pyspark

    folder = Path(pyspark.__path__[0]) / "jars"
    found = sorted(folder.glob("ivy-*.jar"))
    if not found:
        raise HeadraceError("IVY_MISSING", f"PySpark's jar ivy-*.jar was not found in {folder}. Reinstall pyspark.")
    return found[-1]


def _module(coordinates: Sequence[str], *, transitive: bool) -> str:
    # In Ivy's reading of Maven, "master" is a module's own jar and "default" adds what it needs at run time.
    part = "default-&gt;default" if transitive else "default-&gt;master"
    jar = '<dependency org="{}" name="{}" rev="{}" conf="{}"/>'
    return MODULE.format("".join(jar.format(*coordinate.split(":"), part) for coordinate in coordinates))


def _settings(work: Path) -> Path | None:
    """The user's own Ivy settings, or settings made from the mirror in the user's Maven settings."""
    own = Path.home() / ".ivy2" / "ivysettings.xml"
    maven = Path.home() / ".m2" / "settings.xml"
    if own.exists() or not maven.exists():
        return own if own.exists() else None
    for mirror in ElementTree.parse(maven).iterfind(".//{*}mirror"):  # noqa: S314 - the user's own settings of Maven
        url, stands_for = (mirror.findtext(f"{{*}}{name}", "").strip() for name in ("url", "mirrorOf"))
        if url and not {"central", "*", "external:*"}.isdisjoint(stands_for.split(",")):
            made = work / "ivysettings.xml"
            made.write_text(SETTINGS.format(quoteattr(url)))
            return made
    return None


def _proxies() -> list[str]:
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(getproxies().get(scheme, ""))
        if proxy.hostname is not None:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options


@cache
def pinned() -> Mapping[str, Mapping[str, str]]:
    """The checksum of every coordinate, for each set of jars in ``jars.toml``.

    >>> sorted(pinned())
    ['connect', 'connector-delta', 'connector-kafka', 'jdbc-postgres', 'kafka-broker', 'opensearch']
    """
    read = tomllib.loads(files("headrace.services").joinpath("jars.toml").read_text())
    return {name: part["sha256"] for name, part in read.items()}


def cache_folder() -> Path:
    """Where jars are cached: below ``~/.cache/headrace``, or below HEADRACE_CACHE."""
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
            # Another process may have fetched them meanwhile.
            missing = _missing(wanted, folder)
            if missing:
                _fetch(name, missing, folder)
    return [_checked(folder / jar_path(coordinate), checksum) for coordinate, checksum in wanted.items()]


def java_command(jar_set: str, *options: str) -> tuple[str, ...]:
    """Java with a set of jars, quick to start and small: it is for development and tests, not for load."""
    return (java(), *JAVA_OPTIONS, *options, "-cp", os.pathsep.join(map(str, jars(jar_set))))


def jar_path(coordinate: str) -> Path:
    """A jar's path below the cache folder.

    >>> jar_path("org.postgresql:postgresql:42.7.7").as_posix()
    'org.postgresql/postgresql/42.7.7/postgresql-42.7.7.jar'
    """
    organisation, name, revision = coordinate.split(":")
    return Path(organisation, name, revision, f"{name}-{revision}.jar")


def _missing(wanted: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {jar: checksum for jar, checksum in wanted.items() if not (folder / jar_path(jar)).exists()}


def _fetch(name: str, missing: Mapping[str, str], folder: Path) -> None:
    work = folder / "unfinished" / name
    arrived = work / "jars"
    said = fetch(list(missing), arrived, transitive=False, work=work)
    absent = [jar for jar in missing if not (arrived / jar_path(jar)).exists()]
    if absent:
        raise HeadraceError(
            "JAR_MISSING",
            f"{absent[0]} is not in {folder} and could not be fetched. Connect to a Maven repository, or copy that "
            f"folder from another machine. Ivy said: {_reason(said)}",
        )
    try:
        for jar, checksum in missing.items():
            place = folder / jar_path(jar)
            place.parent.mkdir(parents=True, exist_ok=True)
            _checked(arrived / jar_path(jar), checksum).replace(place)
    finally:
        shutil.rmtree(work)


def _checked(file: Path, checksum: str) -> Path:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != checksum:
        file.unlink()
        raise HeadraceError(
            "JAR_CHECKSUM",
            f"{file} has the sha256 {found} and not {checksum}: it is not the jar that Headrace was tested with, and "
            "was removed. Try again, or ask whoever runs your Maven repository.",
        )
    return file


def _reason(said: str) -> str:
    r"""The first problem that Ivy lists, without the URL that it tried, which may hold a password.

    >>> _reason(":: problems summary ::\n:::: WARNINGS\n\tHost maven.test not found. url=https://maven.test/a.pom")
    'Host maven.test not found.'
    """
    problems = said.partition(":: problems summary ::")[2].splitlines()[2:]
    return problems[0].partition("url=")[0].strip() if problems else "nothing"
