"""Bytes that nobody would send, made of bytes that somebody would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

MOST_BYTES = 1 << 17
_BYTES = b"\x00\x01\x7f\x80\xff\n\r\t \"'\\,:;{}[]()-+.0e9nN"
_SIZES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)


def mutated(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    """The bytes after a few changes; ``others`` and ``tokens`` may become parts of them."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        data = random.choice(_CHANGES)(data, others, tokens, random)[:MOST_BYTES]
    return data


Change = Callable[[bytes, Sequence[bytes], Sequence[bytes], Random], bytes]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    """A part of the bytes, mostly a short one."""
    start = random.randint(0, len(data))
    longest = random.choice((1, 4, 16, 64, len(data)))
    return start, min(len(data), start + random.randint(0, longest))


def _flip(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    if not data:
        return data
    at, bit = random.randrange(len(data)), 1 << random.randrange(8)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def _set(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + bytes([random.choice(_BYTES)]) + data[at + 1 :]


def _set_size(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    width, order = random.choice((1, 2, 4, 8)), random.choice(("big", "little"))
    at = random.randint(0, len(data))
    number: int = random.choice(_SIZES) & ((1 << (8 * width)) - 1)
    size = number.to_bytes(width, "big" if order == "big" else "little")
    return data[:at] + size + data[at + width :]


def _truncate(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] if random.random() < 0.7 else data[at:]


def _remove(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    times = random.choice((2, 2, 3, 10, 100, 5_000))
    return data[:start] + (data[start:end] * times)[:MOST_BYTES] + data[end:]


def _move(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    part, rest = data[start:end], data[:start] + data[end:]
    at = random.randint(0, len(rest))
    return rest[:at] + part + rest[at:]


def _insert(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.randbytes(random.choice((1, 2, 4, 8, 64))) + data[at:]


def _insert_token(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    if not tokens:
        return _set(data, others, tokens, random)
    start, end = _span(data, random)
    return data[:start] + random.choice(tokens) + data[random.choice((start, end)) :]


def _splice(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    (start, end), (first, until) = _span(data, random), _span(other, random)
    return data[:start] + other[first:until] + data[end:]


def _cross(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


_CHANGES: Sequence[Change] = (
    _flip,
    _flip,
    _set,
    _set,
    _set_size,
    _truncate,
    _remove,
    _repeat,
    _move,
    _insert,
    _insert_token,
    _insert_token,
    _splice,
    _cross,
)
