"""Ivy is told what the user's machine already knows about the way to Maven's repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.services import ivy

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
    assert ivy._settings(home) is None


def test_the_mirror_of_mavens_settings_is_used(home: Path) -> None:
    (home / ".m2").mkdir()
    (home / ".m2/settings.xml").write_text(MAVEN)
    made = ivy._settings(home)
    assert made is not None
    assert 'root="https://mirror.test/maven"' in made.read_text()


def test_the_users_own_ivy_settings_come_first(home: Path) -> None:
    (home / ".m2").mkdir()
    (home / ".m2/settings.xml").write_text(MAVEN)
    (home / ".ivy2").mkdir()
    (home / ".ivy2/ivysettings.xml").write_text("<ivysettings/>")
    assert ivy._settings(home) == home / ".ivy2/ivysettings.xml"


def test_proxies_of_the_environment_reach_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert ivy._proxies() == []
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    assert ivy._proxies() == ["-Dhttps.proxyHost=proxy.test", "-Dhttps.proxyPort=3128"]


def test_only_the_named_jars_are_asked_for_unless_all_are_wanted() -> None:
    assert 'conf="default-&gt;master"' in ivy._module(["a:b:1"], transitive=False)
    assert 'conf="default-&gt;default"' in ivy._module(["a:b:1"], transitive=True)
