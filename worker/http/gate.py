"""Accept connections for the server, limited in number and in time, and their requests in each second.

A client that sends nothing, sends slowly, or does not read its response is disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers.logs import get_logger
from worker.http.access import TURN

_log = get_logger(__name__)

_TLS_HANDSHAKE = 22
"""The first byte of a client that starts TLS. No HTTP method starts with it."""

_PIECE = 65536
"""Bytes of a response that are written at once. The server takes more when most of them are sent."""


class Visit:
    """One connection, from its acceptance to its end."""

    def __init__(
        self,
        connection: socket.socket,
        seconds: float,
        leave: Callable[[Visit], None],
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._seconds = seconds
        self._turns = turns
        self._leave = leave
        self._transport: asyncio.Transport | None = None
        self._coming: asyncio.Task[None] | None = None
        self._open = True
        self.busy = False
        """Whether the worker computes a response. Otherwise it waits for the client to send or to read."""
        self.since = self._loop.time()
        """When it began to wait for the client."""
        self._timer = self._loop.call_later(seconds, self.end)

    def come(self, coming: asyncio.Task[None]) -> None:
        """Set the task that creates the transport."""
        self._coming = coming
        coming.add_done_callback(self._came)

    def made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def around(self, app: ASGIApp) -> ASGIApp:
        """Wrap the application so that the client has a time limit, except while a response is computed. The
        limit restarts for each piece of a response, and after the last piece for the next request."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def hand_over(message: Message) -> None:
                for piece in _pieces(message):
                    self._wait()
                    await send(piece)

            try:
                self._work()
                await app({**scope, TURN: self._has_turn}, receive, hand_over)
            except asyncio.CancelledError:
                # The server stops while the client does not read. That is no error and needs no traceback.
                self.end()
                while (await receive())["type"] != "http.disconnect":
                    pass
            finally:
                self._wait()

        return answer

    def end(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self._coming is not None:
            self._coming.cancel()
        self.left()

    def left(self) -> None:
        """Handle a closed connection."""
        self._open = False
        self._timer.cancel()
        self._leave(self)

    async def _has_turn(self) -> bool:
        """Wait until fewer requests than allowed began within the last second. False: the client left.

        Meanwhile the client's time limit runs, and the connection may be ended to make room."""
        if self._turns is None:
            return True
        self._wait()
        await self._turns.acquire()
        if not self._open:
            self._turns.release()
            return False
        self._loop.call_later(1.0, self._turns.release)
        self._work()
        return True

    def _work(self) -> None:
        self.busy = True
        self._timer.cancel()

    def _came(self, _: asyncio.Task[None]) -> None:
        # Also called for a task that was cancelled before it started.
        if self._transport is None:
            self._connection.close()
            self.left()

    def _wait(self) -> None:
        """Restart the client's time limit. `since` stays, so slow readers are disconnected before others."""
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
    """The context for clients that start TLS. Others are served without."""
    _: KW_ONLY
    most: int
    """The most connections at once."""
    seconds: float
    """The client's time limit for a request, for TLS, and for each 64 KiB of a response."""
    closed: Callable[[], bool]
    """Once it returns true, no connection is accepted."""
    requests_per_second: int = 50
    """The most requests that begin within a second, of all clients. Others wait, except
    probes and refused requests."""

    def __post_init__(self) -> None:
        self._visits: set[Visit] = set()
        self._turns = asyncio.Semaphore(self.requests_per_second)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(self.listener)
            except ConnectionError:
                continue
            except OSError as error:  # for example no free file descriptor
                _log.warning("http_accept_failed", error=str(error))
                await asyncio.sleep(1)
                continue
            if self.closed() or not self._has_room():
                connection.close()
                continue
            visit = Visit(connection, self.seconds, self._visits.discard, self._turns)
            self._visits.add(visit)
            visit.come(loop.create_task(self._connect(visit, connection)))

    def _has_room(self) -> bool:
        """At the limit, disconnect the client that made the worker wait longest. Probes ask at once."""
        if len(self._visits) >= self.most:
            waiting = [visit for visit in self._visits if not visit.busy]
            if not waiting:
                return False
            min(waiting, key=lambda visit: visit.since).end()
        return True

    async def _connect(self, visit: Visit, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the client left, or its TLS is not supported
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
    """Split a body into pieces. Yield any other message unchanged."""
    body = message.get("body", b"")
    last = max(len(body) - 1, 0) // _PIECE * _PIECE
    for start in range(0, last, _PIECE):
        yield {**message, "body": body[start : start + _PIECE], "more_body": True}
    yield {**message, "body": body[last:]} if last else message
