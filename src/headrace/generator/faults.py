"""Twelve ways in which a payment's line arrives broken, each with the reason it must be given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from headrace.connectors.base.decoding import (
    BAD_TIMESTAMP,
    EVENT_TIME_IN_FUTURE,
    NO_EVENT_TIME,
    NOT_AN_OBJECT,
    NOT_JSON,
    NOT_UTF8,
    WRONG_TYPE,
)

ID_IN_RAW = r"p[0-9]{9,}"
_AMOUNT = re.compile(r'"amount": [0-9.]+')
_TIME = re.compile(r'"at": "[^"]*"')


@dataclass(frozen=True, slots=True)
class Fault:
    """A way of breaking a good line that keeps the payment's id readable in it."""

    name: str
    reason: str
    broken: Callable[[str], bytes]


def _amount(value: str) -> Callable[[str], bytes]:
    return lambda line: _AMOUNT.sub(f'"amount": {value}', line).encode()


def _time(value: str) -> Callable[[str], bytes]:
    return lambda line: _TIME.sub(f'"at": {value}', line).encode()


def _as_log_line(line: str) -> bytes:
    payment = json.loads(line)
    return f"payment {payment['id']} of {payment['account']} declined by {payment['gateway']}".encode()


FAULTS: tuple[Fault, ...] = (
    Fault("truncated", NOT_JSON, lambda line: line[: len(line) * 2 // 3].encode()),
    Fault("trailing garbage", NOT_JSON, lambda line: f"{line}}}, null".encode()),
    Fault("unquoted text", NOT_JSON, _as_log_line),
    Fault("array", NOT_AN_OBJECT, lambda line: f"[{line}]".encode()),
    Fault("encoded twice", NOT_AN_OBJECT, lambda line: json.dumps(line).encode()),
    Fault("amount as text", WRONG_TYPE, _amount('"12,50"')),
    Fault("amount as truth value", WRONG_TYPE, _amount("true")),
    Fault("amount as object", WRONG_TYPE, _amount('{"value": 1250, "currency": "EUR"}')),
    Fault("time in words", BAD_TIMESTAMP, _time('"yesterday"')),
    Fault("no time", NO_EVENT_TIME, lambda line: line[: line.index(', "at"')].encode() + b"}"),
    Fault("not UTF-8", NOT_UTF8, lambda line: line.encode().replace(b'"shop": "', b'"shop": "Caf\xe9 ')),
    Fault("time far ahead", EVENT_TIME_IN_FUTURE, _time('"2099-12-31T23:59:59.000000Z"')),
)
