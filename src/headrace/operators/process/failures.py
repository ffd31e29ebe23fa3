"""What is told of a call that has failed: why, where in the author's code, and for which row or timer."""

from __future__ import annotations

import json
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from headrace.operators.process.rows import Row, as_dict
from headrace.operators.process.timers import Timer

FAILED = (Exception, SystemExit)
"""What a call may raise; ``sys.exit()`` would end the worker with all its keys. A stop from outside is not meant."""
MOST_SAID, MOST_TRACED = 2_000, 20_000
OURS = f"{Path(__file__).parents[2]}{os.sep}"


@dataclass(slots=True)
class Failures:
    """Dead letters: reason, detail, row and whether it was a timer; and how many of them were timers."""

    letters: list[tuple[str, str, str, bool]] = field(default_factory=list)
    timers: int = 0


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that has failed for good."""

    error: BaseException
    function: Callable[..., Any]
    """The author's method."""
    emitted: Any
    """What it gave, as far as it came."""

    @property
    def said(self) -> str:
        """The error, and the line of the author's code."""
        whole = _text(self.error)
        text = whole if len(whole) <= MOST_SAID else f"{whole[:MOST_SAID]}..."
        named = text if text.startswith("[") else f"{type(self.error).__name__}: {text}"
        file, line = self._line()
        return f"{_valid(named)} (at {Path(file).name}:{line})"

    @property
    def traced(self) -> str:
        """The error with all its calls."""
        text, half = self._trace(), MOST_TRACED // 2
        return _valid(text if len(text) <= MOST_TRACED else f"{text[:half]}\n...\n{text[-half:]}")

    @property
    def cause(self) -> BaseException | None:
        """The error itself, unless its text would keep a worker from reporting anything at all."""
        return self.error if self._trace() == self.traced else None

    def _trace(self) -> str:
        return "".join(traceback.format_exception(self.error))

    def _line(self) -> tuple[str, int]:
        """The innermost line of the author's; of a value that was refused where it was yielded, or who returned it."""
        code = getattr(self.function, "__code__", None)
        # A ready detector is ours and yet the author's code here.
        own = None if code is None else code.co_filename
        lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(self.error.__traceback__)]
        for file, line in reversed(lines):
            if file == own or not file.startswith(OURS):
                return file, line
        waiting = getattr(self.emitted, "gi_frame", None)
        if waiting is not None:
            return waiting.f_code.co_filename, waiting.f_lineno
        return lines[-1] if code is None else (code.co_filename, code.co_firstlineno)


def as_json(given: Row | Timer, key: Any) -> str:
    """The row or timer of a failed call; numbers that JSON does not have are text."""
    if isinstance(given, Timer):
        named = {"key": key, "timer": given.name, "time": given.time, "payload": given.payload}
    else:
        named = as_dict(given)
    return json.dumps(_plain(named), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except FAILED:
        return "an error whose text cannot be read"


def _valid(text: str) -> str:
    """Text that can be stored and sent, whatever an author put into it."""
    return text.encode(errors="backslashreplace").decode()
