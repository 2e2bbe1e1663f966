"""Run an ASGI application on uvicorn, in one thread of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from handlers.logs import get_logger
from worker.certificate import Certificate
from worker.http.gate import Gate, Visit
from worker.http.listening import listen

_log = get_logger(__name__)

_MOST_CONNECTIONS = 100
_CLIENT_SECONDS = 10.0


class HttpServer:
    """Serves `app` on `host:port` (port 0: any free port) from `start` to `stop`, in the thread `http`.

    The thread is a daemon and installs no signal handlers, because the worker decides when it ends."""

    def __init__(
        self,
        app: ASGIApp,
        host: str = "0.0.0.0",
        port: int = 8080,
        *,
        certificate: Certificate | None = None,
        most_connections: int = _MOST_CONNECTIONS,
        client_seconds: float = _CLIENT_SECONDS,
    ) -> None:
        """With a `certificate`, clients may use TLS. `app` decides by the scheme whether they must.
        `client_seconds`: the time limit for sending a request, and for reading each 64 KiB of a response."""
        self._host = host
        self._port = port
        self._certificate = certificate
        self._most_connections = most_connections
        self._client_seconds = client_seconds
        self._socket: socket.socket | None = None
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # invalid HTTP from a client is not worth a log line
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on. Raises RuntimeError before `start`."""
        if self._socket is None:
            raise RuntimeError("the HTTP server has not been started")
        return self._port

    @property
    def public(self) -> bool:
        """Whether other machines can connect. Raises RuntimeError before `start`."""
        if self._socket is None:
            raise RuntimeError("the HTTP server has not been started")
        return not ipaddress.ip_address(self._socket.getsockname()[0].partition("%")[0]).is_loopback

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Listen and serve. When it returns, clients can connect. Call it once.

        Raises ListenError: the address cannot be used."""
        self._socket = listen(self._host, self._port)
        self._port = int(self._socket.getsockname()[1])
        _log.info("http_listening", host=self._host, port=self._port)
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """End open requests within a second, close the socket and end the thread. No effect before
        `start`."""
        if self._socket is None:
            return
        self._server.should_exit = True
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(timeout)
        self._socket.close()

    def _serve(self) -> None:
        if self._socket is not None:
            asyncio.run(self._main(self._socket))

    async def _main(self, listener: socket.socket) -> None:
        server = self._server
        gate = Gate(
            listener,
            lambda visit: _Protocol(server, visit),
            None if self._certificate is None else self._certificate.context,
            most=self._most_connections,
            seconds=self._client_seconds,
            closed=lambda: server.should_exit,
        )
        accepting = asyncio.create_task(gate.run())
        try:
            await server.serve(sockets=[])
        finally:
            accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await accepting


class _Protocol(H11Protocol):
    """Uvicorn's protocol, which also reports its connection to the gate."""

    def __init__(self, server: uvicorn.Server, visit: Visit) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self._visit = visit
        self.app = visit.around(self.app)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._visit.made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._visit.left()
