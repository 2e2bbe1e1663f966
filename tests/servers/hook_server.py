"""An HTTP service for tests: it keeps what it was sent, and answers as it is told."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import MappingProxyType
from typing import Any, NamedTuple

from worker.local.broker_settings import HOST

__all__ = ["Answer", "HookServer", "Received"]


class Received(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def ids(self) -> list[int]:
        """Of the rows of its changes."""
        return [(each["after"] or each["before"])["id"] for each in self.json["changes"]]


class Answer(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""
    cut: bool = False
    """Close the connection without any answer."""


class HookServer:
    """Serves while the block runs. `received` has what was answered 2xx, `refused` the rest.

    `answer` decides; it is called in the requests' threads.
    """

    def __init__(self, trust: ssl.SSLContext | None = None) -> None:
        self.answer: Callable[[Received], Answer] = lambda request: Answer()
        self.received: list[Received] = []
        self.refused: list[Received] = []
        self._lock = Lock()  # guards the two lists
        hook = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                hook._serve(self, Received(self.command, self.path, headers, self.rfile.read(length)))

            do_POST = do_PUT = do_PATCH = do_OPTIONS = do_GET = _serve  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Clients that go, and failed handshakes, are part of the tests."""

        self._server = Server((HOST, 0), Requests)
        self.port: int = self._server.server_address[1]
        self._scheme = "http" if trust is None else "https"
        if trust is not None:
            self._server.socket = trust.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), name="hook", daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{HOST}:{self.port}"

    def __enter__(self) -> HookServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler, request: Received) -> None:
        answer = self.answer(request)
        with self._lock:
            (self.received if 200 <= answer.status < 300 and not answer.cut else self.refused).append(request)
        if answer.cut:
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)
