"""An HTTP service that behaves as badly as a test wants."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class BadService:
    """An HTTP server; ``answer`` takes a path and returns status and body, or None to say nothing and hang up."""

    port: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    most: int = 0
    """How many requests were being answered at the same time."""
    head: bytes = b""
    """The line and the headers of the newest request, for a service that repeats them."""
    answer: Callable[[str], Awaitable[tuple[int, bytes] | None]] | None = None
    _now: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                path = request.split(b" ", 2)[1].decode()
                self.head = request
                if (length := re.search(rb"(?i)content-length: (\d+)", request)) is not None:
                    await reader.readexactly(int(length[1]))
                self.asked[path] += 1
                self._now += 1
                self.most = max(self.most, self._now)
                try:
                    assert self.answer is not None
                    answer = await self.answer(path)
                finally:
                    self._now -= 1
                if answer is None:
                    return
                status, body = answer
                writer.write(b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
                writer.write(b"" if request.startswith(b"HEAD") else body)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def bad_service() -> Iterator[BadService]:
    """A service on a free port, and nothing there afterwards."""
    bad = BadService()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(bad.serve, "127.0.0.1", 0))
    bad.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def end() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield bad
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
