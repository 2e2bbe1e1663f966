"""The thread that serves HTTP: when it listens, what it says when it cannot, how it ends."""

from __future__ import annotations

import signal
import socket
import threading

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from worker.http.listening import ListenError
from worker.http.server import HttpServer


def application() -> Starlette:
    return Starlette(routes=[Route("/", lambda _: PlainTextResponse(threading.current_thread().name))])


def get(port: int, host: str = "127.0.0.1") -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=10) as client:
        return client.get(f"http://{host}:{port}/")


def test_port_0_takes_a_free_one_and_the_log_names_it() -> None:
    server = HttpServer(application(), "127.0.0.1", 0)
    with capture_logs() as logs:
        server.start()
    try:
        assert logs == [
            {"event": "http_listening", "host": "127.0.0.1", "port": server.port, "log_level": "info"}
        ]
        assert server.port > 0
        assert get(server.port).status_code == 200
    finally:
        server.stop()


def test_it_serves_in_one_daemon_thread_of_its_own_and_leaves_signals_alone() -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    server = HttpServer(application(), "127.0.0.1", 0)
    server.start()
    try:
        assert get(server.port).status_code == 200
        (thread,) = [each for each in threading.enumerate() if each.name == "http"]
        assert thread.daemon
        assert server.alive
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers
    finally:
        server.stop()


def test_a_taken_port_is_told_at_once_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError, match=rf"^http\.port: {port} on 127\.0\.0\.1 is in use .* choose"):
            HttpServer(application(), "127.0.0.1", port).start()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_told_as_such(host: str) -> None:
    with pytest.raises(ListenError, match=rf"^http\.host: {host} is not an address of this machine"):
        HttpServer(application(), host, 0).start()


def test_localhost_means_ipv4() -> None:
    server = HttpServer(application(), "localhost", 0)
    server.start()
    try:
        assert get(server.port).status_code == 200
    finally:
        server.stop()


def test_stop_ends_the_thread_and_frees_the_port() -> None:
    server = HttpServer(application(), "127.0.0.1", 0)
    server.start()
    port = server.port
    assert get(port).status_code == 200
    server.stop()
    assert not server.alive
    with pytest.raises(httpx.ConnectError):
        get(port)
    again = HttpServer(application(), "127.0.0.1", port)
    again.start()
    again.stop()


def test_stop_does_not_wait_for_a_client_that_keeps_its_connection() -> None:
    server = HttpServer(application(), "127.0.0.1", 0)
    server.start()
    with httpx.Client(trust_env=False) as client:
        assert client.get(f"http://127.0.0.1:{server.port}/").status_code == 200
        server.stop(timeout=5)
        assert not server.alive


def test_stop_without_a_start_does_nothing() -> None:
    server = HttpServer(application(), "127.0.0.1", 0)
    server.stop()
    assert not server.alive


def test_there_is_no_port_before_the_start() -> None:
    with pytest.raises(RuntimeError, match="not been started"):
        _ = HttpServer(application(), "127.0.0.1", 0).port
