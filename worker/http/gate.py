"""Takes connections for the server: so many, and each for so long.

Whoever opens one and says nothing, says it slowly, or does not read its answers, holds nothing for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers.logs import get_logger

_log = get_logger(__name__)

_TLS_HANDSHAKE = 22
"""The first byte of a client that begins TLS; no method of HTTP begins with it."""

_PIECE = 65536
"""Bytes of an answer that are handed over at once. The server takes the next when most of it has gone out."""


class Visit:
    """One connection, from its acceptance to its end."""

    def __init__(self, connection: socket.socket, seconds: float, leave: Callable[[Visit], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._seconds = seconds
        self._leave = leave
        self._transport: asyncio.Transport | None = None
        self._coming: asyncio.Task[None] | None = None
        self._open = True
        self.busy = False
        """Whether the worker works out an answer: else it waits for the client, to ask or to read."""
        self.since = self._loop.time()
        """When it began to wait for the client."""
        self._timer = self._loop.call_later(seconds, self.end)

    def come(self, coming: asyncio.Task[None]) -> None:
        """`coming` makes the transport."""
        self._coming = coming
        coming.add_done_callback(self._came)

    def made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, watched: but while it works out an answer, the client is waited for. For each
        piece of an answer it has its seconds anew, and once more for the last piece and the next request."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def hand_over(message: Message) -> None:
                for piece in _pieces(message):
                    self._wait()
                    await send(piece)

            self.busy = True
            self._timer.cancel()
            try:
                await app(scope, receive, hand_over)
            except asyncio.CancelledError:
                # The server stops while the client does not read: no fault, and no traceback.
                self.end()
                while (await receive())["type"] != "http.disconnect":
                    pass
            finally:
                self._wait()

        return answer

    def end(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self._coming is not None:
            self._coming.cancel()
        self.left()

    def left(self) -> None:
        """It is closed."""
        self._open = False
        self._timer.cancel()
        self._leave(self)

    def _came(self, _: asyncio.Task[None]) -> None:
        # Also of a task that was cancelled before it began.
        if self._transport is None:
            self._connection.close()
            self.left()

    def _wait(self) -> None:
        """For the client, once more so long. `since` stays: who reads slowly makes room before others do."""
        if self.busy:
            self.busy = False
            self.since = self._loop.time()
        self._timer.cancel()
        if self._open:
            self._timer = self._loop.call_later(self._seconds, self.end)


@dataclass(eq=False)
class Gate:
    """Accepts connections of a listening socket until it is cancelled."""

    listener: socket.socket
    protocol: Callable[[Visit], asyncio.Protocol]
    tls: Callable[[], ssl.SSLContext] | None
    """The context for clients that begin TLS; others go without."""
    _: KW_ONLY
    most: int
    """So many connections at once."""
    seconds: float
    """So long a client may take for a request, for TLS, and for each 64 KiB of an answer."""
    closed: Callable[[], bool]
    """Once it is so, nobody is let in."""

    def __post_init__(self) -> None:
        self._visits: set[Visit] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(self.listener)
            except ConnectionError:
                continue
            except OSError as error:  # no file left, say
                _log.warning("http_accept_failed", error=str(error))
                await asyncio.sleep(1)
                continue
            if self.closed() or not self._has_room():
                connection.close()
                continue
            visit = Visit(connection, self.seconds, self._visits.discard)
            self._visits.add(visit)
            visit.come(loop.create_task(self._connect(visit, connection)))

    def _has_room(self) -> bool:
        """Whoever has kept the worker waiting the longest makes room: a probe asks at once."""
        if len(self._visits) >= self.most:
            waiting = [visit for visit in self._visits if not visit.busy]
            if not waiting:
                return False
            min(waiting, key=lambda visit: visit.since).end()
        return True

    async def _connect(self, visit: Visit, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # it went away, or speaks no TLS of ours
            context = self.tls() if self.tls is not None and await _begins_tls(connection) else None
            await loop.connect_accepted_socket(
                lambda: self.protocol(visit),
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self.seconds,
            )


async def _begins_tls(connection: socket.socket) -> bool:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK) == bytes([_TLS_HANDSHAKE])


def _pieces(message: Message) -> Iterator[Message]:
    """A body in pieces; anything else as it is."""
    body = message.get("body", b"")
    last = max(len(body) - 1, 0) // _PIECE * _PIECE
    for start in range(0, last, _PIECE):
        yield {**message, "body": body[start : start + _PIECE], "more_body": True}
    yield {**message, "body": body[last:]} if last else message
