"""Chunks of numbered lines."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.base.lines import read_lines


def numbered(data: bytes, *, chunk_bytes: int = 1 << 20, max_row_bytes: int = 1000) -> list[tuple[int, bytes]]:
    chunks = read_lines(BytesIO(data), max_row_bytes=max_row_bytes, chunk_bytes=chunk_bytes)
    return [pair for chunk in chunks for pair in zip(chunk.positions.tolist(), chunk.raw(), strict=True)]


def test_blank_lines_are_skipped_but_counted() -> None:
    assert numbered(b"a\n\n \t\r\n b \r\n\nc") == [(1, b"a"), (4, b" b "), (6, b"c")]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert numbered(b"\xef\xbb\xbfa\nb\n") == [(1, b"a"), (2, b"b")]


def test_an_empty_file_has_no_lines() -> None:
    assert numbered(b"") == []
    assert numbered(b"\n\n\n") == []


def test_a_line_over_the_limit_is_cut_while_it_is_read() -> None:
    found = numbered(b"x" * 5_000 + b"\nb\n" + b"y" * 5_000, chunk_bytes=64, max_row_bytes=100)
    assert [(position, line[:1]) for position, line in found] == [(1, b"x"), (2, b"b"), (3, b"y")]
    assert 100 < len(found[0][1]) < 300
    assert 100 < len(found[2][1]) < 300


def test_text_of_some_lines_leaves_the_others_out() -> None:
    lines = next(read_lines(BytesIO(b"a\nb\n5"), max_row_bytes=10))
    assert lines.take(np.array([0, 1])).text() == b"a\nb"
    assert lines.take(np.array([0, 2])).text() == b"a\n5"
    assert lines.take(np.array([], dtype=np.int64)).text() == b""


@given(st.lists(st.sampled_from([b"", b" ", b"a", b"bcd", b"\r", b"e" * 30])), st.integers(1, 40), st.booleans())
def test_chunks_of_any_size_hold_the_same_lines(lines: list[bytes], chunk_bytes: int, ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    expected = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert numbered(data, chunk_bytes=chunk_bytes) == expected
