"""A network that holds back what was sent: a relay before a server, for tests of what arrives too late."""

from __future__ import annotations

import contextlib
import socket
from threading import Event, Thread

from worker.local.broker_settings import HOST

__all__ = ["SlowRelay"]


class SlowRelay:
    """Listens at `port` and passes everything on to the server's port.

    What connections that are there at `hold` send from then on waits for `release`, also when their client
    has left by then. Connections that come later are not held. A context manager.
    """

    def __init__(self, target_port: int) -> None:
        self._target = (HOST, target_port)
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = Event()  # what the connections that come now wait for
        self._open.set()
        self._held: list[Event] = []
        self._threads: list[tuple[Thread, Event | None]] = []
        self._sockets: list[socket.socket] = []

    def hold(self) -> None:
        self._open.clear()
        self._held.append(self._open)
        self._open = Event()
        self._open.set()

    def release(self) -> None:
        """Returns when all that was held has been passed on, or could not be."""
        for event in self._held:
            event.set()
        for thread, gate in self._threads:
            if gate in self._held:
                thread.join(10)
        self._held.clear()

    def __enter__(self) -> SlowRelay:
        Thread(target=self._accept, name="relay-accept", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += (client, server)
                self._start("relay-there", client, server, self._open)
                self._start("relay-back", server, client, None)

    def _start(self, name: str, source: socket.socket, sink: socket.socket, gate: Event | None) -> None:
        thread = Thread(target=self._pump, args=(source, sink, gate), name=name, daemon=True)
        self._threads.append((thread, gate))
        thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, gate: Event | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if gate is not None:
                    gate.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
