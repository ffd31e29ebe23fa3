"""How much processor time a process and all it has started have used, at any moment of its life."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from types import TracebackType

import psutil

SAMPLE_SECONDS = 0.25


class Processors:
    """Looks four times a second, as Flink's runs do."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._looks: list[tuple[float, dict[str, float]]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Processors:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def at(self, moment: float) -> dict[str, float]:
        """Seconds used by Java and by Python before a moment."""
        place = bisect_right(self._looks, moment, key=lambda look: look[0])
        return self._looks[max(0, place - 1)][1]

    def _sample(self) -> None:
        spent: dict[psutil.Process, tuple[str, float]] = {}
        while not self._stopped.wait(SAMPLE_SECONDS):
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            for process in processes:
                try:
                    times = process.cpu_times()
                    # What a process used that has ended meanwhile stays in the sum.
                    spent[process] = ("java" if process.name() == "java" else "python", times.user + times.system)
                except psutil.Error:
                    continue
            sums = {"java": 0.0, "python": 0.0}
            for language, seconds in spent.values():
                sums[language] += seconds
            self._looks.append((time.time(), sums))
