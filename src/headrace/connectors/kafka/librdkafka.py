"""A consumer that calls librdkafka itself, because confluent-kafka makes an object of each message.

Here messages come as columns: their fields are read from librdkafka's structures by index arithmetic on whole arrays,
and payloads are copied in the stretches in which the broker sent them.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections import deque
from collections.abc import Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, cimpl

from headrace.connectors.base.lines import Integers, Lines
from headrace.connectors.base.messages import Payloads
from headrace.connectors.kafka.consumer import Polled, Wanted

Addresses = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_CONSUMER = 1
_KNOWN_VERSIONS = (1, 2)
_WORD = 8
_TEXT_BYTES = 512
_FILLED = 256
"""Payloads with at most this many bytes between them are copied together; a memory page is longer."""
_NEWLINE, _SPACE = b"\n "


class _Message(ctypes.Structure):
    """``rd_kafka_message_t``, which is part of librdkafka's public interface."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
    )


_OFFSETS: dict[str, int] = {name: vars(_Message)[name].offset for name, _ in _Message._fields_}

# Found through the module that is linked with it. Calls through CDLL release the interpreter lock.
_library, _waiting = ctypes.PyDLL(cimpl.__file__), ctypes.CDLL(cimpl.__file__)


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = library[f"rd_kafka_{name}"]
    function.restype, function.argtypes = result, arguments
    return function


_version = _function(_library, "version", c_int)
_conf_new = _function(_library, "conf_new", c_void_p)
_conf_set = _function(_library, "conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = _function(_library, "conf_destroy", None, c_void_p)
_new = _function(_waiting, "new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_poll_set_consumer = _function(_library, "poll_set_consumer", c_int, c_void_p)
_queue_get_consumer = _function(_library, "queue_get_consumer", c_void_p, c_void_p)
_queue_destroy = _function(_library, "queue_destroy", None, c_void_p)
_consumer_close = _function(_waiting, "consumer_close", c_int, c_void_p)
_destroy = _function(_waiting, "destroy", None, c_void_p)
_list_new = _function(_library, "topic_partition_list_new", c_void_p, c_int)
_list_add = _function(_library, "topic_partition_list_add", c_void_p, c_void_p, c_char_p, c_int32)
_list_set_offset = _function(_library, "topic_partition_list_set_offset", c_int, c_void_p, c_char_p, c_int32, c_int64)
_list_destroy = _function(_library, "topic_partition_list_destroy", None, c_void_p)
_assign = _function(_waiting, "assign", c_int, c_void_p, c_void_p)
_query_watermark_offsets = _function(
    _waiting, "query_watermark_offsets", c_int, c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int
)
_consume_batch_queue = _function(_waiting, "consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
_message_timestamp = _function(_library, "message_timestamp", c_int64, c_void_p, c_void_p)
_message_destroy = _function(_library, "message_destroy", None, c_void_p)


def check_layout() -> None:
    """ImportError unless messages of this librdkafka can be read straight from memory."""
    major, words = _version() >> 24, ctypes.sizeof(c_void_p) == _WORD and sys.byteorder == "little"
    if major not in _KNOWN_VERSIONS or not words or ctypes.sizeof(_Message) != 8 * _WORD:
        raise ImportError(f"the layout of messages in librdkafka {major}.x on {platform.machine()} is not known")


class LibrdkafkaConsumer:
    """A consumer through librdkafka's batch calls."""

    def __init__(self, options: Mapping[str, object], *, most: int) -> None:
        settings, said = _conf_new(), ctypes.create_string_buffer(_TEXT_BYTES)
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        taken = (_conf_set(settings, name.encode(), texts[name].encode(), said, _TEXT_BYTES) == 0 for name in texts)
        self._client = _new(_CONSUMER, settings, said, _TEXT_BYTES) if all(taken) else None
        if self._client is None:
            _conf_destroy(settings)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, said.value.decode(errors="replace")))
        _poll_set_consumer(self._client)
        self._queue = _queue_get_consumer(self._client)
        self._found = np.empty(most, np.int64)

    def bounds(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        low, high = c_int64(), c_int64()
        asked = topic.encode(), partition, ctypes.byref(low), ctypes.byref(high)
        _check(_query_watermark_offsets(self._client, *asked, int(seconds * 1000)))
        return low.value, high.value

    def assign(self, topic: str, partition: int, offset: int) -> None:
        wanted = _list_new(1)
        try:
            _list_add(wanted, topic.encode(), partition)
            _list_set_offset(wanted, topic.encode(), partition, offset)
            _check(_assign(self._client, wanted))
        finally:
            _list_destroy(wanted)

    def unassign(self) -> None:
        _check(_assign(self._client, None))

    def poll(self, most: int, seconds: float, span: tuple[int, int], wanted: Wanted) -> Polled:
        found = self._found[: self._wait(min(most, len(self._found)), seconds)]
        try:
            good = _field(found, "err") == 0
            messages, offsets = found[good], _field(found[good], "offset")
            inside = messages[(offsets >= span[0]) & (offsets < span[1])]
            reached = int(offsets[-1]) + 1 if len(offsets) else 0
            return Polled.of(_payloads(inside, wanted), reached, _errors(found[~good]))
        finally:
            deque(map(_message_destroy, found.tolist()), 0)

    def _wait(self, most: int, seconds: float) -> int:
        # With a time-out, librdkafka would wait until it has as many as wanted, and they may never come.
        count = self._ready(0, most, 0)
        if count == 0:
            count = self._ready(0, 1, seconds)
            count += self._ready(count, most - count, 0)
        return count

    def _ready(self, behind: int, most: int, seconds: float) -> int:
        if most == 0:
            return 0
        place = self._found.ctypes.data + behind * _WORD
        count: int = _consume_batch_queue(self._queue, int(seconds * 1000), place, most)
        return max(0, count)

    def close(self) -> None:
        _queue_destroy(self._queue)
        _consumer_close(self._client)
        _destroy(self._client)


def _check(code: int) -> None:
    if code != 0:
        raise KafkaException(KafkaError(code))


# All memory of this process as words; only those inside librdkafka's structures are ever read.
_MEMORY = np.ctypeslib.as_array((c_int64 * (2**48 // _WORD - 1)).from_address(_WORD))


def _field(messages: Addresses, name: str) -> Integers:
    words: Integers = _MEMORY[(messages + (_OFFSETS[name] - _WORD)) // _WORD]
    # An error code fills only half a word.
    return words.astype(np.int32).astype(np.int64) if name == "err" else words


def _errors(found: Addresses) -> list[tuple[KafkaError, int]]:
    codes, offsets = _field(found, "err").tolist(), _field(found, "offset").tolist()
    texts = ((text or b"").decode(errors="replace") for text in _copied(_field(found, "payload"), _field(found, "len")))
    return [(KafkaError(code, text), offset) for code, text, offset in zip(codes, texts, offsets, strict=True)]


def _payloads(found: Addresses, wanted: Wanted) -> Payloads:
    offsets, addresses = _field(found, "offset"), _field(found, "payload")
    present = addresses != 0
    text, starts, ends = _gathered(addresses[present], _field(found, "len")[present])
    keys = _copied(_field(found, "key"), _field(found, "key_len")) if wanted.keys else None
    times = None
    if wanted.times:
        times = 1000 * np.fromiter(map(_message_timestamp, found.tolist(), repeat(None)), np.int64, len(found))
    lines = Lines(text.tobytes(), starts, ends, offsets[present], together=True)
    return Payloads(lines, offsets[~present], keys, times)


def _copied(addresses: Addresses, lengths: Integers) -> list[bytes | None]:
    return [
        ctypes.string_at(address, length) if address else None
        for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True)
    ]


def _gathered(addresses: Addresses, lengths: Integers) -> tuple[Bytes, Integers, Integers]:
    """Values as one text, a line each, and where they lie in it; what was between them becomes spaces."""
    if not len(addresses):
        return np.empty(0, np.uint8), lengths, lengths
    between = addresses[1:] - (addresses + lengths)[:-1]
    breaks = np.flatnonzero((between < 1) | (between > _FILLED)) + 1
    firsts, afters = np.append(0, breaks), np.append(breaks, len(addresses))
    stretches = addresses[firsts]
    sizes = (addresses + lengths)[afters - 1] - stretches
    places = np.append(0, np.cumsum(sizes + 1))
    text = np.empty(places[-1], np.uint8)
    target = text.ctypes.data
    for place, stretch, size in zip(places.tolist(), stretches.tolist(), sizes.tolist(), strict=False):
        ctypes.memmove(target + place, stretch, size)
    starts = addresses - np.repeat(stretches - places[:-1], afters - firsts)
    ends = starts + lengths
    line_ends = np.append(starts[1:], len(text)) - 1
    for further in range(int((line_ends - ends).max())):
        filled = ends + further
        text[filled[filled < line_ends]] = _SPACE
    text[line_ends] = _NEWLINE
    return text, starts, ends
