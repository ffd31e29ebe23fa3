"""The answers of a batch: written before anything uses them, so that whoever runs it again has the same rows.

A service may answer differently every time, and a task may be tried again, run twice at once, or run again with its
stage or its batch. So the answers for the keys of a task are files that are created if absent, one after the other: of
all who ask for these keys the first to answer decides.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import polars as pl

from headrace.checkpoint.storage import Storage
from headrace.checkpoint.sweep import FileName
from headrace.key_hash import hashes_of
from headrace.wheel.side_rows import read_rows
from headrace.wheel.task import Task

ANSWERS = "answers"
"""The folder of answers, below that of the flow."""


class BatchAnswers:
    """The answers for the keys of a task that count in its batch."""

    def __init__(self, step: str, keys: pl.DataFrame, nothing: pl.DataFrame, task: Task) -> None:
        self._storage, self._folder, self._on = task.state.storage, f"{ANSWERS}/{step}", keys.columns
        # The same keys have the same files, in whatever stage and task of Spark's.
        digest = int(np.bitwise_xor.reduce(hashes_of(keys, keys.columns)))
        self._place = (self._folder, task.state.epoch, task.record.batch, digest)
        self._number = 0
        earlier = self._of_earlier_drivers() if task.runs_again else ()
        found = pl.concat([nothing, *earlier]).unique(self._on, keep="first", maintain_order=True)
        self.known: pl.DataFrame = found.join(keys, on=self._on, how="semi", maintain_order="left")
        """What counts already."""
        while (answers := self._stored()) is not None:
            self._take(answers)

    def settle(self, answers: pl.DataFrame) -> pl.DataFrame:
        """What counts from now on: these answers, or those of others who were faster with some of the keys."""
        before = self.known.height
        while (answers := answers.join(self.known, on=self._on, how="anti", maintain_order="left")).height:
            content = io.BytesIO()
            answers.write_ipc(content, compat_level=pl.CompatLevel.oldest())
            if self._storage.create(self._file, content.getvalue()):
                self._take(answers)
                break
            self._take(read_rows(self._storage, self._file))
        return self.known.slice(before)

    @property
    def _file(self) -> str:
        return str(FileName(*self._place, str(self._number)))

    def _stored(self) -> pl.DataFrame | None:
        try:
            return read_rows(self._storage, self._file)
        except FileNotFoundError:
            return None

    def _take(self, answers: pl.DataFrame) -> None:
        self.known = pl.concat([self.known, answers])
        self._number += 1

    def _of_earlier_drivers(self) -> Iterator[pl.DataFrame]:
        """The answers in which drivers before this one ran the batch, whose tasks had other keys; the newest first."""
        _, epoch, batch, _ = self._place
        names = map(FileName.parse, self._storage.list(self._folder))
        earlier = [name for name in names if name.batch == batch and name.epoch < epoch]
        for name in sorted(earlier, key=lambda name: -name.epoch):
            yield read_rows(self._storage, str(name))


def forget_answers(storage: Storage, *, before: int) -> None:
    """Remove the answers of batches that are done: those before the one that runs."""
    for name in list(storage.list(ANSWERS)):
        if FileName.parse(name).batch < before:
            storage.delete(name)
