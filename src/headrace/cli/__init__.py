"""The command ``headrace``."""

from headrace.cli.application import app

__all__ = ["app"]
