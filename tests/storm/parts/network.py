"""The network between the workers and one broker: passes bytes on, slowly or not at all when it is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar

from worker.local.broker_settings import HOST

__all__ = ["Relay"]

_PIECE = 1 << 16


class Relay:
    """Listens at `port` of the loopback address and passes on to the server's port, both ways.

    `cut` ends all connections and takes no new ones; `silence` keeps them and passes nothing on, as a network
    that drops packets does; `delay` holds every piece back so many seconds; `mend` ends all of that.
    All relays of a process live in one thread.
    """

    _loop: ClassVar[asyncio.AbstractEventLoop | None] = None

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._delay = 0.0
        self._is_cut = False
        self._flows: asyncio.Event | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def start(self) -> None:
        self._call(self._start())

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.mend()
            self._call(self._end_all())
        self._listener.close()

    def cut(self) -> None:
        self._is_cut = True
        self._call(self._end_all())

    def silence(self) -> None:
        self._call(self._set_flowing(False))

    def delay(self, seconds: float) -> None:
        self._delay = seconds

    def mend(self) -> None:
        self._delay = 0.0
        if self._is_cut or not (self._flows is None or self._flows.is_set()):
            self._is_cut = False
            # What was dropped is not sent again by a relay: these connections are broken for good.
            self._call(self._end_all())
            self._call(self._set_flowing(True))

    async def _start(self) -> None:
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._connected, sock=self._listener)

    async def _set_flowing(self, flows: bool) -> None:
        assert self._flows is not None
        if flows:
            self._flows.set()
        else:
            self._flows.clear()

    async def _end_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(HOST, self._target)
        except OSError:  # the broker is away: so is this address
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            for each in (writer, back):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        assert self._flows is not None
        with contextlib.suppress(OSError):
            while data := await source.read(_PIECE):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()

    @classmethod
    def _call(cls, work: Coroutine[Any, Any, None]) -> None:
        """Run it in the relays' thread, and wait for it."""
        if cls._loop is None:
            cls._loop = asyncio.new_event_loop()
            threading.Thread(target=cls._loop.run_forever, name="network", daemon=True).start()
        asyncio.run_coroutine_threadsafe(work, cls._loop).result(30)
