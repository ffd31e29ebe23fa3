"""When a window's result is emitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Emission:
    """An emission rule."""

    kind: Literal["on_close"]

    def __repr__(self) -> str:
        return f"hr.{self.kind}()"


ON_CLOSE = Emission("on_close")


def on_close() -> Emission:
    """Emit a window once, when it closes.

    >>> on_close()
    hr.on_close()
    """
    return ON_CLOSE
