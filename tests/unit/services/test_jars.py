"""Jars come into the cache once, and no jar is used that is not the pinned one."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.services import jars as module
from headrace.services.jars import jar_path, jars

COORDINATE = "org.example:thing:1.0"
CONTENT = b"the tested jar"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and one pinned jar."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    pinned = {"things": {COORDINATE: hashlib.sha256(CONTENT).hexdigest()}}
    monkeypatch.setattr(module, "pinned", lambda: pinned)
    return tmp_path / "jars"


class Repository:
    """Stands for Ivy: brings what it holds, and counts how often it was asked."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.asked = 0

    def __call__(self, coordinates: Sequence[str], into: Path, *, transitive: bool, work: Path) -> str:
        self.asked += 1
        work.mkdir(parents=True, exist_ok=True)
        for coordinate in coordinates:
            if self.content is not None:
                file = into / jar_path(coordinate)
                file.parent.mkdir(parents=True)
                file.write_bytes(self.content)
        return ":: problems summary ::\n:::: WARNINGS\n\tHost maven.test not found. url=https://me:word@maven.test/"


def test_a_second_call_finds_the_cache_complete_and_asks_nobody(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(CONTENT)
    monkeypatch.setattr(module, "fetch", repository)
    first, second = jars("things"), jars("things")
    assert first == second == [cache / "org.example/thing/1.0/thing-1.0.jar"]
    assert first[0].read_bytes() == CONTENT
    assert repository.asked == 1
    assert not list(cache.glob("unfinished/*"))


def test_without_network_and_cache_the_error_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fetch", Repository(None))
    with pytest.raises(HeadraceError, match=r"\[JAR_MISSING\] org.example:thing:1.0 .*Host maven.test") as caught:
        jars("things")
    assert "word" not in str(caught.value)


def test_a_fetched_jar_with_a_wrong_checksum_never_reaches_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "fetch", Repository(b"something else"))
    with pytest.raises(HeadraceError, match=r"\[JAR_CHECKSUM\]"):
        jars("things")
    assert not list(cache.rglob("*.jar"))
    monkeypatch.setattr(module, "fetch", Repository(CONTENT))
    assert jars("things")[0].read_bytes() == CONTENT


def test_a_jar_that_changed_in_the_cache_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fetch", Repository(CONTENT))
    jar = jars("things")[0]
    jar.write_bytes(b"broken")
    with pytest.raises(HeadraceError, match=r"\[JAR_CHECKSUM\].*removed"):
        jars("things")
    assert not jar.exists()


def test_every_wanted_jar_is_pinned_and_no_host_is_named() -> None:
    text = Path(module.__file__).with_name("jars.toml").read_text()
    assert "//" not in text
    for part in tomllib.loads(text).values():
        assert set(part["wanted"]) <= set(part["sha256"])
        assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in part["sha256"].values())


MAVEN = """
<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <mirrors>
    <mirror><id>a</id><mirrorOf>somewhere</mirrorOf><url>https://wrong.test/</url></mirror>
    <mirror><id>b</id><mirrorOf>central</mirrorOf><url>https://mirror.test/maven</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_settings_ivy_uses_its_own(home: Path) -> None:
    assert module._settings(home) is None


def test_the_mirror_of_mavens_settings_is_used(home: Path) -> None:
    (home / ".m2").mkdir()
    (home / ".m2/settings.xml").write_text(MAVEN)
    made = module._settings(home)
    assert made is not None
    assert 'root="https://mirror.test/maven"' in made.read_text()


def test_the_users_own_ivy_settings_come_first(home: Path) -> None:
    (home / ".m2").mkdir()
    (home / ".m2/settings.xml").write_text(MAVEN)
    (home / ".ivy2").mkdir()
    (home / ".ivy2/ivysettings.xml").write_text("<ivysettings/>")
    assert module._settings(home) == home / ".ivy2/ivysettings.xml"


def test_proxies_of_the_environment_reach_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert module._proxies() == []
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    assert module._proxies() == ["-Dhttps.proxyHost=proxy.test", "-Dhttps.proxyPort=3128"]


def test_only_the_named_jars_are_asked_for_unless_all_are_wanted() -> None:
    assert 'conf="default-&gt;master"' in module._module(["a:b:1"], transitive=False)
    assert 'conf="default-&gt;default"' in module._module(["a:b:1"], transitive=True)
