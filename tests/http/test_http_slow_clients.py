"""Clients that ask for nothing, slowly, or too often, or do not read: let go of; probes are answered."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from example_worker import status_at
from servers.own_authority import OwnAuthority
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from worker.certificate import Certificate
from worker.http.access import Access, Guard
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.status import WorkerStatus

LONG = 600.0
PATIENCE = 20.0
"""Seconds after which a test takes it that something never happens."""

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

Serve = Callable[..., HttpServer]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Until it is set, no status is ready."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def serve(gate: threading.Event) -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def status() -> WorkerStatus:
            gate.wait(PATIENCE)
            return status_at(1)

        def serve(**options: object) -> HttpServer:
            app = build_app(status, lambda: None, lambda: None, Metrics())
            server = HttpServer(app, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
            server.start()
            stack.callback(server.stop)
            return server

        yield serve


@pytest.fixture
def serve_large() -> Iterator[Serve]:
    """A server whose answer fits no buffer of the system."""
    with contextlib.ExitStack() as stack:

        async def large(_: Request) -> Response:
            return PlainTextResponse(b"x" * 50_000_000)

        async def healthz(_: Request) -> Response:
            return PlainTextResponse("ok\n")

        def serve(**options: object) -> HttpServer:
            app = Starlette(
                routes=[Route("/", large), Route("/healthz", healthz)],
                middleware=[Middleware(Guard, access=Access())],
            )
            server = HttpServer(app, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
            server.start()
            stack.callback(server.stop)
            return server

        yield serve


def connect(server: HttpServer, *, say: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    connection.sendall(say)
    return connection


def ask_and_do_not_read(server: HttpServer, requests: int) -> socket.socket:
    """So many requests at once. On return the first answer has begun to come."""
    connection = connect(server)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(ASK * requests)
    connection.recv(1)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits for it; what was answered before is passed over."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def is_closed_while_saying(connection: socket.socket, said: bytes, *, read: bool = True) -> bool:
    """Whether it ends although something is said now and then. Who does not read learns of it by saying."""
    connection.settimeout(0.05)
    for _ in range(200):
        with contextlib.suppress(TimeoutError):
            try:
                connection.sendall(said)
                if read and connection.recv(1) == b"":
                    return True
            except (ConnectionError, ssl.SSLEOFError):
                return True
        if not read:
            time.sleep(0.05)
    return False


def healthy(server: HttpServer) -> bool:
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        return client.get(f"http://127.0.0.1:{server.port}/healthz").status_code == 200


HALF = [
    b"",
    b"GET / HT",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
]


def test_a_request_that_does_not_come_to_its_end_is_ended(serve: Serve) -> None:
    server = serve(client_seconds=0.3)
    connections = [connect(server, say=half) for half in HALF]
    for connection in connections:
        with connection:
            assert is_closed(connection)


def test_a_client_that_says_something_again_and_again_gains_no_time(serve: Serve) -> None:
    server = serve(client_seconds=0.5)
    with connect(server, say=b"GET / HTTP/1.1\r\n") as connection:
        assert is_closed_while_saying(connection, b"X: a\r\n")


def test_tls_that_does_not_come_to_its_end_is_ended(serve: Serve, tmp_path: Path) -> None:
    authority = OwnAuthority(tmp_path)
    server = serve(client_seconds=1.0, certificate=Certificate(*authority.server()))
    trust = ssl.create_default_context(cafile=authority.certificate)
    begun = [connect(server, say=said) for said in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01")]
    plain = connect(server)
    try:
        begun.append(trust.wrap_socket(plain, server_hostname="127.0.0.1"))
    except OSError:  # on a busy machine it may come too late
        plain.close()
    for connection in begun:
        with connection:
            assert is_closed(connection)


def test_half_open_requests_are_bounded_and_keep_nobody_out(serve: Serve) -> None:
    server = serve(most_connections=10, client_seconds=LONG)
    with contextlib.ExitStack() as stack:
        half_open = [stack.enter_context(connect(server, say=b"GET / HTTP/1.1\r\n")) for _ in range(40)]
        assert healthy(server)
        assert all(is_closed(connection) for connection in half_open[:30])


@pytest.mark.parametrize("asked", [1, 2, 30])
def test_answers_that_nobody_reads_are_given_up(serve_large: Serve, asked: int) -> None:
    server = serve_large(client_seconds=0.3)
    with ask_and_do_not_read(server, asked) as connection:
        assert is_closed_while_saying(connection, b"GET /", read=False)


def test_answers_that_nobody_reads_are_given_up_over_tls(serve_large: Serve, tmp_path: Path) -> None:
    authority = OwnAuthority(tmp_path)
    server = serve_large(client_seconds=0.3, certificate=Certificate(*authority.server()))
    trust = ssl.create_default_context(cafile=authority.certificate)
    with connect(server) as plain, trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
        connection.sendall(ASK * 3)
        connection.recv(1)
        assert is_closed_while_saying(connection, b"GET /", read=False)


def test_answers_that_nobody_reads_keep_nobody_from_an_answer(serve_large: Serve) -> None:
    server = serve_large(client_seconds=LONG)
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(ask_and_do_not_read(server, 2))
        with connect(server, say=ASK) as one_more:
            assert one_more.recv(100).startswith(b"HTTP/1.1 200 ")


def test_whoever_does_not_read_makes_room(serve_large: Serve) -> None:
    server = serve_large(client_seconds=LONG, most_connections=4)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(ask_and_do_not_read(server, 2))
        for _ in range(4):
            assert healthy(server)


def test_requests_that_take_long_are_bounded_and_probes_are_answered(
    serve: Serve, gate: threading.Event
) -> None:
    server = serve(client_seconds=LONG)
    ask = b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(connect(server, say=ask)) for _ in range(16)]
        with connect(server, say=ask) as one_more:
            assert one_more.recv(100).startswith(b"HTTP/1.1 503 ")
        assert healthy(server)
        gate.set()
        assert all(each.recv(100).startswith(b"HTTP/1.1 200 ") for each in asked)


def test_a_client_that_goes_on_asking_stays(serve: Serve, gate: threading.Event) -> None:
    gate.set()
    server = serve(client_seconds=PATIENCE, most_connections=1)
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        for _ in range(3):
            assert client.get(f"http://127.0.0.1:{server.port}/api/status").status_code == 200


def test_what_is_no_http_is_refused_and_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    with connect(server, say=b"\x16\x03\x01 no HTTP\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert caplog.text == ""


def test_a_stop_that_ends_answers_which_nobody_reads_is_no_fault(
    serve_large: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve_large(client_seconds=LONG)
    with ask_and_do_not_read(server, 2):
        server.stop()
        assert not server.alive
    assert [line.getMessage() for line in caplog.records if line.exc_info] == []
