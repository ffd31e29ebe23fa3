"""Errors: what is wrong, why, and what to do."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import get_args

from headrace.redaction import redacted
from headrace.stability import stable

_NOT_USER_CODE = (str(Path(__file__).resolve().parent), str(Path(sysconfig.get_path("stdlib")).resolve()))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:.*\n)*?\S[^\n]*(?=\n\s*\n|\Z)")
_REPORTED = re.compile(r"headrace\.[\w.]+: \[([A-Z_]+)\] ([^\n]+)")


@stable
class HeadraceError(Exception):
    """Any failure that Headrace itself reports; ``id`` is stable and can be searched for.

    >>> error = HeadraceError("SOURCE_MISSING", "folder 'in' does not exist. Create it first.")
    >>> str(error)
    "[SOURCE_MISSING] folder 'in' does not exist. Create it first."
    """

    def __init__(self, id: str, message: str) -> None:
        super().__init__(f"[{id}] {redacted(message)}")
        self.id = id


def reported(error: BaseException) -> HeadraceError | None:
    r"""The Headrace error inside an error that Spark raised for another process; not the one that caused it.

    >>> reported(RuntimeError("Traceback ...\nheadrace.errors.HeadraceError: [FENCED] a newer driver writes.\n"))
    HeadraceError('[FENCED] a newer driver writes.')
    """
    found = _REPORTED.findall(str(error))
    return HeadraceError(*found[-1]) if found else None


def author_traceback(error: BaseException) -> str | None:
    r"""The Python traceback inside an error that Spark raised for a task, without the frames of Spark's worker.

    >>> author_traceback(RuntimeError("Traceback (most recent call last):\n  a\nValueError: no\n\n\tat org"))
    'Traceback (most recent call last):\n  a\nValueError: no'
    """
    found = _TRACEBACK.findall(str(error))
    return found[-1].rstrip() if found else None


def job_failure(flow: str, batch: int, error: BaseException) -> HeadraceError:
    """What the user must know of a job that Spark could not finish, and that reported no error of ours."""
    said = str(error).partition("\n\tat ")[0]
    what, then = "a task failed", "Correct what the error says and start again"
    if "[SPARK_JOB_CANCELLED]" in said:
        what, then = "its job was cancelled, in Spark's UI or by a call", "Start again"
    return HeadraceError(
        "BATCH_FAILED",
        f"flow {flow!r}, batch {batch}: {what}, and the batch is not done. {then}: the same batch runs.\n"
        f"{author_traceback(error) or said}",
    )


@stable
class DefinitionError(HeadraceError):
    """A mistake in a pipeline's definition, raised before any data is read.

    The message ends with the line of the user's code that caused it.

    >>> import headrace as hr
    >>> try:
    ...     hr.tumbling("hourly", size="an hour", key="account")
    ... except hr.DefinitionError as error:
    ...     print(error.id)
    DURATION_UNREADABLE
    """

    def __init__(self, id: str, message: str) -> None:
        where = _DECLARED_AT.get() or user_line()
        super().__init__(id, message if where is None else f"{message} (at {where})")


_DECLARED_AT: ContextVar[str | None] = ContextVar("headrace_declared_at", default=None)


@contextmanager
def declared_at(line: str | None) -> Iterator[None]:
    """Let the errors of what is checked later than it was declared show the line of its declaration."""
    token = _DECLARED_AT.set(line)
    try:
        yield
    finally:
        _DECLARED_AT.reset(token)


def check_choice(choices: object, *, step: str | None = None, **option: object) -> None:
    """Refuse an option, of a step or not, whose value is not one of a ``Literal``; its name is part of the error's id.

    >>> from typing import Literal
    >>> check_choice(Literal["json", "csv"], format="xml")
    Traceback (most recent call last):
    headrace.errors.DefinitionError: [FORMAT_UNKNOWN] format='xml' is not known. Use 'json' or 'csv'.
    """
    for name, given in option.items():
        if given not in get_args(choices):
            *others, last = map(repr, get_args(choices))
            known = f"{', '.join(others)} or {last}"
            where = "" if step is None else f"step {step!r}: "
            raise DefinitionError(f"{name.upper()}_UNKNOWN", f"{where}{name}={given!r} is not known. Use {known}.")


def check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be part of file and state names."""
    if _NAME.fullmatch(name) is None:
        raise DefinitionError(
            "NAME_INVALID",
            f"{what} name {name!r} is used in file and state names. Use at most 100 letters, digits and _, a letter "
            "first.",
        )


def user_line() -> str | None:
    """The innermost line of the call stack that is the user's code, as ``file:line: code``."""
    for frame in reversed(traceback.extract_stack()):
        path = str(Path(frame.filename).resolve())
        ours = path.startswith(_NOT_USER_CODE) or "site-packages" in path
        if not ours and not frame.filename.startswith("<"):
            return f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
    return None
