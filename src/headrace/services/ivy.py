"""Fetching jars from Maven repositories with Ivy, which PySpark brings along."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.etree import ElementTree

from headrace.errors import HeadraceError
from headrace.services.programs import java

LAYOUT = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
MAVEN_NAMES = "{http://maven.apache.org/SETTINGS/1.0.0}"
PATIENCE_SECONDS = 900


def fetch(coordinates: Sequence[str], into: Path, *, transitive: bool, work: Path) -> str:
    """Bring jars, with all that they depend on if wanted, into a folder by LAYOUT; returns what Ivy said.

    ``work`` keeps what was fetched already, for the next try after a failure.
    """
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
    spark = find_spec("pyspark")
    folder = None if spark is None or spark.origin is None else Path(spark.origin).parent / "jars"
    found = [] if folder is None else sorted(folder.glob("ivy-*.jar"))
    if not found:
        raise HeadraceError("IVY_MISSING", f"PySpark's jar ivy-*.jar was not found in {folder}. Reinstall pyspark.")
    return found[-1]


def _module(coordinates: Sequence[str], *, transitive: bool) -> str:
    root = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(root, "info", organisation="headrace", module="jars")
    configurations = ElementTree.SubElement(root, "configurations")
    ElementTree.SubElement(configurations, "conf", name="default")
    dependencies = ElementTree.SubElement(root, "dependencies")
    # In Ivy's reading of Maven, "master" is a module's own jar and "default" adds what it needs at run time.
    part = "default->default" if transitive else "default->master"
    for coordinate in coordinates:
        organisation, name, revision = coordinate.split(":")
        ElementTree.SubElement(dependencies, "dependency", org=organisation, name=name, rev=revision, conf=part)
    return ElementTree.tostring(root, encoding="unicode")


def _settings(work: Path) -> Path | None:
    """The user's own settings of Ivy, or some made from the mirror that the user's Maven is told to use."""
    own = Path.home() / ".ivy2" / "ivysettings.xml"
    if own.exists():
        return own
    mirror = _maven_mirror(Path.home() / ".m2" / "settings.xml")
    if mirror is None:
        return None
    root = ElementTree.Element("ivysettings")
    ElementTree.SubElement(root, "settings", defaultResolver="mirror")
    resolvers = ElementTree.SubElement(root, "resolvers")
    ElementTree.SubElement(resolvers, "ibiblio", name="mirror", m2compatible="true", root=mirror)
    made = work / "ivysettings.xml"
    made.write_text(ElementTree.tostring(root, encoding="unicode"))
    return made


def _maven_mirror(settings: Path) -> str | None:
    if not settings.exists():
        return None
    for mirror in ElementTree.parse(settings).iter():
        if mirror.tag.removeprefix(MAVEN_NAMES) == "mirror":
            fields = {field.tag.removeprefix(MAVEN_NAMES): (field.text or "").strip() for field in mirror}
            if {"central", "*", "external:*"} & set(fields.get("mirrorOf", "").split(",")):
                return fields.get("url")
    return None


def _proxies() -> list[str]:
    """What the environment says about proxies, as Java wants to hear it."""
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(getproxies().get(scheme, ""))
        if proxy.hostname is not None:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    return options
