"""Bounds the rows of a flow's batches, as its mode says: a fixed number, or what keeps batches to their length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.connectors.base.caps import cap_of, remove_cap, set_cap
from headrace.errors import HeadraceError
from headrace.runtime.modes import Mode
from headrace.runtime.pace import FIRST_CAP, Pace


class Throttle:
    """Tells the sources of a flow how many rows a batch may take; they read it before each batch, without a restart."""

    def __init__(self, mode: Mode, flow: str, sources: Mapping[str, Path | None]) -> None:
        self._flow = flow
        self._folders = [folder for folder in sources.values() if folder is not None]
        self._pace: Pace | None = None
        self.cap = mode.max_rows
        """The most rows of a source that the next batch takes."""
        uncounted = [name for name, folder in sources.items() if folder is None]
        if uncounted and (mode.keep_up or mode.max_rows is not None):
            raise HeadraceError(
                "MAX_ROWS_UNSUPPORTED",
                f"flow {flow!r}: {mode!r} bounds the rows of a batch, but source {uncounted[0]!r} cannot count rows "
                "ahead. Use files_per_batch=... of hr.read_files, or leave max_rows and keep_up out.",
            )
        if mode.keep_up:
            earlier = [cap for folder in self._folders if (cap := cap_of(folder, flow)) is not None]
            self._pace = Pace(mode.interval / 1_000_000, min(earlier, default=FIRST_CAP), mode.max_rows)
            self.cap = self._pace.cap
        self._tell()

    def learn(self, *, rows: int, seconds: float) -> None:
        """Take in how long a batch took."""
        if self._pace is not None:
            self._pace.learn(rows=rows, seconds=seconds)
            if self._pace.cap != self.cap:
                self.cap = self._pace.cap
                self._tell()

    def _tell(self) -> None:
        for folder in self._folders:
            if self.cap is None:
                remove_cap(folder, self._flow)
            else:
                set_cap(folder, self._flow, self.cap)
