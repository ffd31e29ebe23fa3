"""The reasons of dead letters that the documentation explains."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs/concepts.md"
_, _, _TABLE = _PAGE.read_text().partition("## Reasons of dead letters")
REASONS = frozenset(re.findall("^[|] `([A-Z0-9_]+)`", _TABLE, re.MULTILINE))
