"""A mistake is one clear line on standard error and exit code 1."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from headrace.errors import HeadraceError


class Verbs(TyperGroup):
    """The verbs of the command; what Headrace reports as an error is shown without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            print(f"headrace: {error}", file=sys.stderr)
            raise typer.Exit(1) from error
