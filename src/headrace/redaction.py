"""Redaction: text that leaves a process, as an error, a log, a dead letter or a marker, has no secret in it.

A process knows the secrets that it has used. It hides them in every form in which somebody may repeat them, and hides
what an address or an assignment calls a password, known or not.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
SHORTEST = 4
"""Shorter values are not looked for: any text has them by chance."""
_ALONE = 8
"""Shorter values are hidden only where they stand alone, as a word."""
_USER = r"(?!https?://[^@/?#]*:\d+[/?#])([A-Za-z][\w+.-]{0,20}://[^\s:/?#@]*)"
"""A URL up to its user. In ``http://host:80/@a`` there is none, but any other : begins a password."""
_URL = re.compile(rf"{_USER}:(.*)@", re.DOTALL)
_URL_IN_TEXT = re.compile(rf"\b{_USER}:[^\s'\"]{{0,500}}@")
_QUERY = re.compile(r"(pass(?:word|wd|phrase)=)([^&]*)", re.IGNORECASE)
_NAMED = r"((?:pass(?:word|wd|phrase)|secret|token|jaas|authorization|cookie|api[-_]?key)[\w.-]{0,40}"
_IN_CODE = re.compile(
    rf"""{_NAMED}(?:=|["']\s*:\s*))(?!["']\*\*\*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.IGNORECASE
)
"""What an argument or an entry of a dict calls a password; a condition of SQL has spaces around its =."""
_IN_DSN = re.compile(r"""(pass(?:word|wd|phrase)=)(?!hr\.|\*\*\*)[^\s,;&'")]+""", re.IGNORECASE)
_LONGEST = 10_000
"""A secret may be cut that is longer than this."""
_BASE64 = "[A-Za-z0-9+/_-]"


@dataclass(slots=True)
class Known:
    """The secrets that this process has used, and what finds them."""

    secrets: set[str] = field(default_factory=set)
    pattern: re.Pattern[str] | None = None
    lock: Lock = field(default_factory=Lock)


_known = Known()


def learn(secret: str) -> str:
    """Hide a value from now on in all text that leaves this process; returns it.

    >>> redacted(f"401 no user {learn('hunter2')} here")
    '401 no user *** here'
    """
    if len(secret.strip()) >= SHORTEST and secret not in _known.secrets:
        _redact_logs()
        with _known.lock:
            _known.secrets.add(secret)
            forms = {form for known in _known.secrets for form in _forms(known)}
            # Of two forms at one place the longer one is hidden.
            _known.pattern = re.compile("|".join(sorted(forms, key=lambda form: (-len(form), form))))
    return secret


def learn_address(url: str) -> str:
    """Hide the password in a URL from now on; returns the URL."""
    found = _URL.match(url)
    for password in [*(() if found is None else [found[2]]), *(value for _, value in _QUERY.findall(url))]:
        learn(password)
        learn(unquote(password))
    return url


def secrets_pattern() -> str | None:
    """A regular expression for the secrets that this process knows, in Python and in Polars; None if it knows none."""
    return None if _known.pattern is None else _known.pattern.pattern


def redacted(text: str) -> str:
    """The text without secrets.

    >>> redacted("cannot connect to redis://ann:p/ss@cache:6379/0, host=db password='p ss' user=ann")
    'cannot connect to redis://ann:***@cache:6379/0, host=db password=*** user=ann'
    """
    text = _URL_IN_TEXT.sub(rf"\1:{HIDDEN}@", _without_known(text))
    return _IN_DSN.sub(rf"\1{HIDDEN}", _IN_CODE.sub(rf"\1{HIDDEN}", text))


def beginning(text: str, most: int) -> str:
    """The first characters of a text without secrets; what is cut off is not the end of one."""
    return redacted(text[: most + _LONGEST])[:most]


def without_password(url: str) -> str:
    """A URL for people, with its password hidden.

    >>> without_password("redis://:hunter2@127.0.0.1:6379/0?password=hunter2")
    'redis://:***@127.0.0.1:6379/0?password=***'
    """
    return _QUERY.sub(rf"\1{HIDDEN}", _URL.sub(rf"\1:{HIDDEN}@", url))


def is_torn(url: str, *, by: str = "/?#") -> bool:
    """Whether the password of a URL has characters unescaped that end it, so that its rest is taken for a host or path.

    >>> is_torn("redis://:pa/ss@cache:6379"), is_torn("redis://:pa%2Fss@cache:6379")
    (True, False)
    """
    found = _URL.match(url)
    # What begins as a port is one, as in postgresql://db:5432/shop?user=ann@eu.
    return found is not None and not re.match(r"\d+[/?#]", found[2]) and not set(by).isdisjoint(found[2])


@contextmanager
def redacting() -> Iterator[None]:
    """Let errors pass without the known secrets in their texts, also those of the errors that caused them."""
    try:
        yield
    except Exception as error:
        shown = redacted_error(error)
        if shown is error:
            raise
        raise shown from None


def redacted_error(error: BaseException) -> BaseException:
    """The error without the known secrets in its texts; another in its place where they cannot be changed."""
    if error.__cause__ is not None:
        error.__cause__ = redacted_error(error.__cause__)
    if error.__context__ is not None:
        error.__context__ = redacted_error(error.__context__)
    if _leaks(error):
        error.args = (_without_known(str(error)),)
    if _leaks(error):
        return RuntimeError(_without_known("".join(traceback.format_exception_only(error)).strip()))
    return error


def _leaks(error: BaseException) -> bool:
    said = "".join(traceback.format_exception_only(error))
    return _without_known(said) != said


def _without_known(text: str) -> str:
    return text if _known.pattern is None else _known.pattern.sub(HIDDEN, text)


def _forms(secret: str) -> Iterator[str]:
    """Regular expressions for a secret as it is, its lines, what follows its first word, and all of these encoded."""
    # What follows the first word: of "Bearer 7f3a" somebody may repeat the second half.
    parts = {secret, *secret.splitlines(), *(rest for rest in secret.split(" ", 1)[1:] if len(rest) >= _ALONE)}
    for text in parts:
        if len(text.strip()) < SHORTEST:
            continue
        data = text.encode(errors="surrogateescape")
        quoted = {quote(data, safe=safe) for safe in ("", "/")} | {quote_plus(data)}
        escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
        forms = {text, " ".join(text.split()), html.escape(text), repr(data)[2:-1], *escaped, *quoted}
        forms |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in quoted}
        for form in forms:
            before, after = (r"\b" if len(text) < _ALONE and _is_letter(edge) else "" for edge in (form[0], form[-1]))
            yield f"{before}{re.escape(form)}{after}"
        for core in _base64_cores(data):
            yield f"{_BASE64}?{re.escape(core)}{_BASE64}*={{0,2}}"


def _is_letter(character: str) -> bool:
    """Whether it is one of those of which Python and Polars agree that they are part of a word."""
    return character.isascii() and character.isalnum()


def _base64_cores(data: bytes) -> Iterator[str]:
    """The characters of base 64 that only these bytes decide, wherever they stand: as in ``ann:hunter2``."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        core = text[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield from {core, core.translate(str.maketrans("+/", "-_"))}


@cache
def _redact_logs() -> None:
    """Let no known secret into the messages and tracebacks of any logger of this process."""
    make = logging.getLogRecordFactory()

    def make_redacted(*given: Any, **named: Any) -> logging.LogRecord:
        record = make(*given, **named)
        try:
            said = record.getMessage()
        except Exception:  # the handler will say what is wrong with the record
            return record
        if (shown := _without_known(said)) != said:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_info[0] is not None:
            trace = logging.Formatter().formatException(record.exc_info)
            if (shown := _without_known(trace)) != trace:
                record.exc_text = shown
        return record

    logging.setLogRecordFactory(make_redacted)
