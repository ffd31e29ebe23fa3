"""Marks: what a sink remembers beside the rows, so that a batch that runs again is not written again."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.base.sink import Share
from headrace.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class Mark:
    """The last share of a writer that is in the sink."""

    epoch: int
    generation: int
    batch: int
    rows: int = 0


def check_epoch(share_epoch: int, stored_epoch: int, *, place: str, writer: str) -> None:
    """Refuse to write for a driver whose lease another has taken over."""
    if share_epoch < stored_epoch:
        raise HeadraceError(
            "FENCED",
            f"{place}: a newer driver (epoch {stored_epoch}) writes as {writer!r}; this one (epoch {share_epoch}) has "
            "lost its lease and writes nothing. Stop it.",
        )


def already_written(share: Share, stored: Mark | None, *, place: str) -> bool:
    """Whether the sink holds this share; fails when its mark cannot be the one that the batch log expects.

    >>> from headrace.connectors.base.sink import Writer
    >>> share = Share(Writer("spend-1f0c", "main", 0, epoch=1), generation=0, batch=7, last=5)
    >>> already_written(share, Mark(1, 0, 5), place="table spend"), already_written(share, Mark(1, 0, 7), place="...")
    (False, True)
    """
    name = share.writer.name
    if stored is not None:
        check_epoch(share.writer.epoch, stored.epoch, place=place, writer=name)
        if stored.generation > share.generation:
            raise HeadraceError(
                "GENERATION_OLD",
                f"{place}: writer {name!r} is at generation {stored.generation}, this flow at {share.generation}. "
                "It was restored elsewhere since; start from the newer checkpoint.",
            )
    same = stored if stored is not None and stored.generation == share.generation else None
    if same is not None and same.batch == share.batch:
        return True
    found = None if same is None else same.batch
    if found != share.last:
        raise HeadraceError(
            "MARK_LOST",
            f"{place}: the last mark of writer {name!r} should be {_shown(share.last)} or {share.batch}, found "
            f"{_shown(found)}. Whether batch {share.batch} was written cannot be told. Look which rows are there, then "
            "go on from a new checkpoint.",
        )
    return False


def _shown(batch: int | None) -> str:
    return "none" if batch is None else f"batch {batch}"
