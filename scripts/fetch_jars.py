"""Brings every jar of jars.toml into the cache; those that are there already are only checked."""

from __future__ import annotations

import sys

from headrace.errors import HeadraceError
from headrace.services.jars import jars, pinned

try:
    for name in pinned():
        jars(name)
except HeadraceError as error:
    sys.exit(f"setup: {error}")
