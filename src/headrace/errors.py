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

_HEADRACE, _LIBRARY = (str(Path(place).resolve()) for place in (Path(__file__).parent, sysconfig.get_path("stdlib")))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:.*\n)*?\S[^\n]*(?=\n\s*\n|\Z)")
_FRAME = re.compile(r'^ +File "([^"\n]+)", line \d+.*\n(?:(?! +File ") .*\n)*', re.MULTILINE)
_SPARK = re.compile(r"(?:site-packages|dist-packages|python)/pyspark/|pyspark\.zip/")
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

    Where the author's code failed, its traceback follows.

    >>> reported(RuntimeError("Traceback ...\nheadrace.errors.HeadraceError: [FENCED] a newer driver writes.\n"))
    HeadraceError('[FENCED] a newer driver writes.')
    """
    found = _REPORTED.findall(str(error))
    if not found:
        return None
    id, said = found[-1]
    trace = author_traceback(error)
    return HeadraceError(id, said if trace is None else f"{said}\n{trace}")


def author_traceback(error: BaseException) -> str | None:
    r"""The author's part of the tracebacks inside an error that Spark raised for a task; None if it has no frame.

    >>> trace = 'Traceback (most recent call last):\n  File "/jobs/spend.py", line 7, in half\nValueError: no'
    >>> author_traceback(RuntimeError(f"Lost task: {trace}\n\n\tat org.apache.spark")) == trace
    True
    """
    told = _without_java(error)
    found = [trace for trace in _TRACEBACK.finditer(told) if any(map(_is_users, _FRAME.findall(trace[0])))]
    if not found:
        return None
    # What lies between the first and the last: how one error led to the other.
    whole = told[found[0].start() : found[-1].end()]
    return _FRAME.sub(lambda frame: frame[0] if _is_authors(frame[1]) else "", whole)


def _is_users(file: str) -> bool:
    """Whether a file holds code of the user, and not of a package or of Python itself."""
    return not file.startswith((_HEADRACE, _LIBRARY, "<")) and "site-packages" not in file and _is_authors(file)


def _is_authors(file: str) -> bool:
    """Whether a frame tells the author something: it is not one of those that lead to the author's function."""
    return not file.startswith((_HEADRACE, "<frozen ")) and _SPARK.search(file) is None


def _without_java(error: BaseException) -> str:
    """What an error of Spark says, up to its first frame of Java; what follows repeats it."""
    return str(error).partition("\n\tat ")[0].rstrip()


def job_failure(flow: str, batch: int, error: BaseException) -> HeadraceError:
    """What the user must know of a job that Spark could not finish, and that reported no error of ours."""
    said = _without_java(error)
    shown = author_traceback(error) or [said, *_TRACEBACK.findall(said)][-1]
    what, then = "a task failed", "Correct what the error says and start again"
    if "[SPARK_JOB_CANCELLED]" in said:
        what, then = "its job was cancelled, in Spark's UI or by a call", "Start again"
    return HeadraceError(
        "BATCH_FAILED",
        f"flow {flow!r}, batch {batch}: {what}, and the batch is not done. {then}: the same batch runs.\n{shown}",
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
        if _is_users(path) and not frame.filename.startswith("<"):
            return f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
    return None
