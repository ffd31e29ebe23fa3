"""The first ten minutes as README tells them, word for word, with nothing but the wheel in an empty folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## The first ten minutes\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(\w+\.py)`")
OF_JAVA = re.compile(r"java|jvm|jdk|scala|log4j|apache|WARN|log level", re.IGNORECASE)


@dataclass
class Newcomer:
    """Somebody who has installed the wheel, in an empty folder."""

    folder: Path
    programs: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the commands see of this process's environment."""
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "JAVA_HOME", "LANG", "TMPDIR")}
        return {**kept, "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        """What a command prints. It must succeed and say nothing of Java."""
        said = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, f"{command}: {said.stdout}{said.stderr}"
        self.quiet(said.stdout, said.stderr)
        return said.stdout

    @staticmethod
    def quiet(*screens: str) -> None:
        """Nothing is said of Java, and the log of Spark is named once at most."""
        lines = [line for screen in screens for line in screen.splitlines()]
        named = [line for line in lines if line.startswith("Spark's log: ")]
        assert len(named) <= 1
        # The name of a temporary file may have any letters.
        assert [line for line in lines if OF_JAVA.search(line) and line not in named] == []


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """A Python with the wheel, beside the packages that it needs."""
    home = tmp_path_factory.mktemp("newcomer")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home / "wheel")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(home / "venv", symlinks=True)
    [packages] = (home / "venv" / "lib").glob("python*/site-packages")
    [wheel] = (home / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The packages beside Headrace in the project's own environment; that a line leads to its source is not followed.
    (packages / "needed.pth").write_text(f"{Path(pyspark.__file__).parents[1]}\n")
    [points] = packages.glob("headrace-*.dist-info/entry_points.txt")
    assert "headrace = headrace.cli:app" in points.read_text()
    command = home / "venv" / "bin" / "headrace"
    command.write_text(f"#!{home}/venv/bin/python\nfrom headrace.cli import app\n\napp()\n")
    command.chmod(0o755)
    (home / "empty").mkdir()
    return Newcomer(home / "empty", command.parent)


def commands(console: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, and the lines that it prints."""
    for part in console.split("$ ")[1:]:
        command, *lines = part.splitlines()
        yield command, lines


def test_the_first_ten_minutes_go_as_the_readme_says(newcomer: Newcomer) -> None:
    where = newcomer.run("python", "-c", "import headrace, pyspark; print(headrace.__file__)")
    assert where.startswith(str(newcomer.programs.parent))
    section = SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert section is not None
    ran = []
    text = section[1]
    for block in BLOCK.finditer(text):
        kind, content = block[1], block[2]
        match kind:
            case "sh":
                newcomer.run("bash", "-e", "-c", content)
            case "python":
                *_, name = FILE.findall(text[: block.start()])
                (newcomer.folder / name).write_text(content, encoding="utf-8")
            case "console":
                for command, lines in commands(content):
                    said = newcomer.run("bash", "-e", "-c", command).splitlines()
                    assert [line for line in lines if line not in said] == []
                    ran.append(command)
            case _:
                raise AssertionError(f"README has a block of {kind}")
    assert [command.split()[:2] for command in ran] == [
        ["headrace", "run"],
        ["headrace", "show"],
        ["headrace", "dead-letters"],
        ["headrace", "run"],
        ["headrace", "show"],
        ["python", "report.py"],
    ]
    # As the last sentence says: until Ctrl-C it takes files as they arrive.
    with subprocess.Popen(
        [newcomer.programs / "python", "spend.py"],
        cwd=newcomer.folder,
        env=newcomer.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        (newcomer.folder / "landing/payments/3.json").write_text(
            '{"account": "bob", "amount": 1.0, "at": "2026-01-05T12:05:00Z"}\n'
        )
        while "11:00 to 12:00" not in newcomer.run("headrace", "show", "tables/spend"):
            assert running.poll() is None, running.communicate()
        state = newcomer.run("headrace", "status", "checkpoints/spend", "--json")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    newcomer.quiet(out, err)
    assert "Spark's log: " in err
    assert "spend: batch " in err
    assert [(flow["state"], flow["read"]) for flow in json.loads(state)] == [("running", 7)]
    state = newcomer.run("headrace", "status", "checkpoints/spend", "--json")
    assert [flow["state"] for flow in json.loads(state)] == ["stopped"]
