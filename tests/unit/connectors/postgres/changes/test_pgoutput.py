"""Messages of a real server, recorded: what they say."""

from __future__ import annotations

import re

import pytest

from headrace.connectors.postgres.changes.pgoutput import Begin, Commit, Relation, RowChange, Truncate, parse_message
from headrace.errors import HeadraceError

BEGIN = b"B\x00\x00\x00\x00\x01R\xa2\xf8\x00\x03\x03X\x85\x1c\xd9\xf6\x00\x00\x02\xd7"
COMMIT = b"C\x00\x00\x00\x00\x00\x01R\xa2\xf8\x00\x00\x00\x00\x01R\xa3(\x00\x03\x03X\x85\x1c\xd9\xf6"
RELATION = (
    b"R\x00\x00@\x01shop\x00orders\x00d\x00\x03\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff"
    b"\x00note\x00\x00\x00\x00\x19\xff\xff\xff\xff\x00n\x00\x00\x00\x06\xa4\x00\x05\x00\x06"
)
INSERT = b"I\x00\x00@\x01N\x00\x03t\x00\x00\x00\x011t\x00\x00\x00\x02\xc3\xa4t\x00\x00\x00\x041.50"
UPDATE = b"U\x00\x00@\x01N\x00\x03t\x00\x00\x00\x011ut\x00\x00\x00\x042.00"
MOVED = b"U\x00\x00@\x01K\x00\x03t\x00\x00\x00\x012nnN\x00\x03t\x00\x00\x00\x013nn"
WHOLE = b"U\x00\x00@\x01O\x00\x03t\x00\x00\x00\x015t\x00\x00\x00\x01xnN\x00\x03t\x00\x00\x00\x015ut\x00\x00\x00\x047.00"
DELETE = b"D\x00\x00@\x01K\x00\x03t\x00\x00\x00\x011nn"
TRUNCATE = b"T\x00\x00\x00\x02\x00\x00\x00@\x01\x00\x00@\x02"
ORDERS = 16385


def test_a_transaction_says_where_and_when_it_was_committed() -> None:
    assert parse_message(BEGIN) == Begin(lsn=0x152A2F8, committed_at=1_794_788_455_397_878, transaction=727)
    assert parse_message(COMMIT) == Commit(lsn=0x152A2F8, end=0x152A328)


COLUMNS = (("id", 23, -1), ("note", 25, -1), ("n", 1700, 327_686))


def test_a_table_says_its_name_its_key_and_its_columns_with_their_types() -> None:
    assert parse_message(RELATION) == Relation(ORDERS, "shop.orders", COLUMNS, key=("id",), whole=False)


def test_a_table_that_logs_whole_rows_says_so() -> None:
    whole = RELATION.replace(b"orders\0d", b"orders\0f").replace(b"\0note", b"\1note").replace(b"\0n\0", b"\1n\0")
    assert parse_message(whole) == Relation(ORDERS, "shop.orders", COLUMNS, key=("id", "note", "n"), whole=True)


def test_a_new_row_has_the_text_of_every_value() -> None:
    assert parse_message(INSERT) == RowChange(b"I", ORDERS, [b"1", "ä".encode(), b"1.50"])


def test_an_update_without_its_old_row_names_what_was_not_sent() -> None:
    assert parse_message(UPDATE) == RowChange(b"U", ORDERS, [b"1", None, b"2.00"], (1,), (), whole=False)


def test_an_update_of_the_key_has_the_old_key() -> None:
    assert parse_message(MOVED) == RowChange(b"U", ORDERS, [b"3", None, None], (), [b"2", None, None], whole=False)


def test_an_update_of_a_table_that_logs_whole_rows_has_the_old_row() -> None:
    assert parse_message(WHOLE) == RowChange(b"U", ORDERS, [b"5", None, b"7.00"], (1,), [b"5", b"x", None], whole=True)


def test_a_delete_has_the_key_of_the_old_row() -> None:
    assert parse_message(DELETE) == RowChange(b"D", ORDERS, [], old=[b"1", None, None])


def test_a_truncate_names_its_tables() -> None:
    assert parse_message(TRUNCATE) == Truncate((ORDERS, 16386))


@pytest.mark.parametrize("message", [BEGIN, COMMIT, RELATION, INSERT, UPDATE, MOVED, WHOLE, DELETE])
def test_a_message_that_ends_too_early_is_refused_and_not_taken_for_another(message: bytes) -> None:
    kind = re.escape(repr(message[:1]))
    for end in (1, 2, 5, 6, 7, len(message) - 1):
        with pytest.raises(
            HeadraceError, match=rf"^\[CHANGES_UNREADABLE\] the slot returned a message of kind {kind} "
        ):
            parse_message(message[:end])


def test_messages_that_concern_no_row_say_nothing() -> None:
    assert parse_message(b"Y\x00\x00@\x05shop\x00mood\x00") is None
    assert parse_message(b"O\x00\x00\x00\x00\x01R\xa2\xf8elsewhere\x00") is None
