"""The event loop of a process: one thread in which all calls of its lookups run, between batches too."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_SECONDS = 2.0


class EventLoop:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headrace-lookups", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin something in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self) -> None:
        """End the loop and what still runs in it, as soon as that lets go."""
        self._loop.call_soon_threadsafe(self._end)

    def wait(self) -> None:
        """Wait for the end, for a while."""
        self._thread.join(CLOSING_SECONDS)

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        # The cancelled tasks get one round of the loop to end.
        self._loop.call_soon(self._loop.stop)


_running: EventLoop | None = None


def event_loop() -> EventLoop:
    """The loop of this process, begun when it is first needed."""
    global _running
    if _running is None:
        _running = EventLoop()
    return _running


def abandon(loop: EventLoop) -> None:
    """Leave a loop that somebody's code blocks to itself; the next call begins another."""
    global _running
    if _running is loop:
        _running = None
        loop.end()


def _forget() -> None:
    global _running
    _running = None


@atexit.register
def _stop() -> None:
    if _running is not None:
        _running.end()
        _running.wait()


# A thread does not live on in a forked process.
os.register_at_fork(after_in_child=_forget)
