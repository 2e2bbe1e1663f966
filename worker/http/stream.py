"""Server-sent events: one message for all listeners, whose number is limited."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from handlers.logs import get_logger

MOST_STREAMS = 20
_LIFE_SECONDS = 300.0
"""Then the browser reconnects. This limits how long an unnoticed or no longer allowed client is served."""
_RETRY_MS = 2000
_STILL_SECONDS = 3.0
"""After so much silence a comment is sent. The gate closes connections that are silent for ten seconds."""

_log = get_logger(__name__)


@dataclass(eq=False)
class Feed:
    """Makes messages while somebody listens. All methods except `make` run on the server's thread.

    Only the latest message is kept, so a slow reader misses some. The gate disconnects a client that does not
    read at all, as with any other response."""

    make: Callable[[], bytes]
    """Called on its own thread; may block."""
    every: Callable[[], float]
    """Seconds between two messages."""
    _: KW_ONLY
    most: int = MOST_STREAMS
    life_seconds: float = _LIFE_SECONDS

    def __post_init__(self) -> None:
        self._message = b""
        self._turn: asyncio.Future[None] | None = None
        self._making: asyncio.Task[None] | None = None
        self.listeners = 0
        """Streams that were admitted and have not ended."""

    def answer(self, _: Request) -> Response:
        """Return a stream, or 503 if the limit is reached."""
        if self.listeners >= self.most:
            return PlainTextResponse(
                f"{self.most} pages are open on this worker: api/live returns the same data once\n",
                status_code=503,
                headers={"Cache-Control": "no-store", "Retry-After": "30"},
            )
        self.listeners += 1  # before sending, because many may ask at once
        return _Stream(self)

    def leave(self) -> None:
        """Handle the end of an admitted stream. After the last one, no more messages are made."""
        self.listeners -= 1
        if not self.listeners and self._making is not None:
            self._making.cancel()
            self._making = None
            self._message = b""

    async def send(self, send: Send) -> None:
        """Send every message from now on, until the stream's time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.life_seconds
        if self._making is None or self._making.done():
            self._turn = loop.create_future()
            self._making = loop.create_task(self._produce())
        elif self._message:
            await self._say(send)
        while (turn := self._turn) is not None and loop.time() < end:
            await asyncio.wait((turn,), timeout=_STILL_SECONDS)
            if turn.done():
                await self._say(send)
            else:
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})

    async def _say(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._message, "more_body": True})

    async def _produce(self) -> None:
        while True:
            try:
                made = await run_in_threadpool(self.make)
            except Exception:
                _log.exception("http_message_failed")
                made = b"{}"
            self._message = b"data: " + made + b"\n\n"
            turn, self._turn = self._turn, asyncio.get_running_loop().create_future()
            if turn is not None:
                turn.set_result(None)
            await asyncio.sleep(self.every())


class _Stream(Response):
    media_type = "text/event-stream"

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        # Called once: when the stream has ended, or is dropped before it started.
        self._leave = weakref.finalize(self, feed.leave)
        self._leave.atexit = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream(receive, send)
        finally:
            self._leave()

    async def _stream(self, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-accel-buffering", b"no"),  # otherwise nginx holds messages back
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # Sent at once, so that the client knows that it was admitted.
        first = f"retry: {_RETRY_MS}\n\n".encode()
        await send({"type": "http.response.body", "body": first, "more_body": True})
        sending = asyncio.ensure_future(self._feed.send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
