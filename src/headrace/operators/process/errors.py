"""Failed calls: how often they are retried, and the dead letter that is left."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import FunctionType, GeneratorType, MethodType
from typing import Any, Literal

from headrace.errors import DefinitionError
from headrace.operators.process.context import Timer
from headrace.operators.process.rows import InputRow, as_dict
from headrace.redaction import redacted
from headrace.rendering import finite
from headrace.stability import stable

Then = Literal["stop", "dead_letter"]
FAILED = (Exception, SystemExit)
"""What a call may raise. ``sys.exit()`` would end the worker with all its keys; a stop from outside is not caught."""
MOST_ERROR_TEXT, MOST_TRACEBACK = 2_000, 20_000
HEADRACE = f"{Path(__file__).parents[2]}{os.sep}"


@dataclass(frozen=True, slots=True)
class OnError:
    """How often a failed call is retried, and what happens after the last failure."""

    retries: int
    then: Then

    def __repr__(self) -> str:
        return repr(self.then) if self.retries == 0 else f"hr.retry({self.retries}, then={self.then!r})"


@stable
def retry(times: int, *, then: Then) -> OnError:
    """Retry a failed call at most ``times`` times, from the state before the call; then stop or write a dead letter.

    >>> retry(3, then="dead_letter")
    hr.retry(3, then='dead_letter')
    """
    if type(times) is not int or times < 1 or then not in ("stop", "dead_letter"):
        raise DefinitionError(
            "ON_ERROR_UNKNOWN",
            f"hr.retry({times!r}, then={then!r}) is not valid. times must be at least 1, and then is 'stop' or "
            "'dead_letter'.",
        )
    return OnError(times, then)


def described(error: BaseException, method: Callable[..., Any], emitted: Any) -> tuple[str, str, BaseException | None]:
    """The error with the line of the user's code, its traceback, and the cause: None if the traceback was changed."""
    try:
        whole = redacted(str(error))
    except FAILED:
        whole = "an error whose text cannot be read"
    text = whole if len(whole) <= MOST_ERROR_TEXT else f"{whole[:MOST_ERROR_TEXT]}..."
    named = text if text.startswith("[") else f"{type(error).__name__}: {text}"
    file, line = _line(error, method, emitted)
    trace, half = redacted("".join(traceback.format_exception(error))), MOST_TRACEBACK // 2
    shown = _valid(trace if len(trace) <= MOST_TRACEBACK else f"{trace[:half]}\n...\n{trace[-half:]}")
    # The whole text of such an error would keep a worker from reporting anything at all.
    return f"{_valid(named)} (at {Path(file).name}:{line})", shown, error if shown == trace else None


def _line(error: BaseException, method: Callable[..., Any], emitted: Any) -> tuple[str, int]:
    """The innermost line of the user's code; for an emitted value that was refused, where it was yielded."""
    function = method.__func__ if isinstance(method, MethodType) else method
    code = function.__code__ if isinstance(function, FunctionType) else None
    # A built-in detector lies in Headrace and yet is the user's code here.
    own = None if code is None else code.co_filename
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if file == own or not file.startswith(HEADRACE):
            return file, line
    if isinstance(emitted, GeneratorType) and emitted.gi_frame is not None:
        return emitted.gi_frame.f_code.co_filename, emitted.gi_frame.f_lineno
    return lines[-1] if code is None else (code.co_filename, code.co_firstlineno)


def as_json(given: InputRow | Timer, key: Any) -> str:
    """The row or timer of a failed call; numbers that JSON does not have are strings."""
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
    if value is None or isinstance(value, str | int | float):
        return finite(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def _valid(text: str) -> str:
    """Text that can be stored and sent, whatever characters an error holds."""
    return text.encode(errors="backslashreplace").decode()
