"""The command ``headrace`` itself."""

from __future__ import annotations

from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app


def test_the_command_prints_its_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"headrace {hr.__version__}\n"
