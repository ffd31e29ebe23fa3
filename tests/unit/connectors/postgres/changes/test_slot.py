"""What a server says of itself, and what that means for reading its changes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.postgres.changes.slot import ReplicationSlot
from headrace.connectors.postgres.connection import PostgresServer
from headrace.errors import HeadraceError

SLOT = ReplicationSlot(PostgresServer("host=db"), "s", "s")


class Answering:
    """A connection to a server that answers every question alike."""

    def __init__(self, *answer: Any) -> None:
        self._answer = answer

    def execute(self, query: str) -> Answering:
        """The question does not matter."""
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The answer."""
        return [self._answer]


@pytest.mark.parametrize(
    ("answer", "id", "words"),
    [
        (("replica", False, True, "ann"), "WAL_LEVEL", "wal_level=replica"),
        (("logical", True, True, "ann"), "SOURCE_REFUSED", "is a standby"),
        (("logical", False, False, "ann"), "SOURCE_REFUSED", 'ALTER ROLE "ann" REPLICATION'),
    ],
)
def test_a_server_that_cannot_be_followed_says_what_to_do(answer: tuple[Any, ...], id: str, words: str) -> None:
    with pytest.raises(HeadraceError, match=words) as raised:
        SLOT.check_server(Answering(*answer))  # type: ignore[arg-type]
    assert raised.value.id == id


def test_a_server_that_logs_changes_for_a_user_who_may_read_them_passes() -> None:
    SLOT.check_server(Answering("logical", False, True, "ann"))  # type: ignore[arg-type]
