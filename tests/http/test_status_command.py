"""`binlane status` against a worker's real HTTP server, in a pipe and in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from configuration.shorthand import KAFKA, TABLES
from example_worker import status_at
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from worker.cli.process import _exit_code
from worker.commands.asking.status import status
from worker.http.access import Access
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.status import WorkerStatus

PROGRAM = "import sys; from worker.commands.asking.status import status; "
DEADLINE = 60.0


@pytest.fixture
def server() -> Iterator[HttpServer]:
    began = time.monotonic()

    def now() -> WorkerStatus:
        return status_at(100 + time.monotonic() - began)

    server = HttpServer(build_app(now, lambda: None, lambda: None, Metrics()), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def url(server: HttpServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_it_prints_tables_lanes_and_partitions(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(url) == 0
    out = capsys.readouterr().out
    assert out.startswith("shop-replica  running  binlane 0.1.0")
    for part in ("Tables 48", "shop_00.payments", "retry 3", "16 at work", "Partitions 12", "cdc.shop [7]"):
        assert part in out
    assert "\x1b" not in out


def test_json_is_the_workers_answer_as_it_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(url, as_json=True) == 0
    out = capsys.readouterr().out
    found = msgspec.json.decode(out, type=WorkerStatus)
    assert json.loads(out) == json.loads(msgspec.json.encode(status_at(found.uptime_seconds)))


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "http://127.0.0.1:{}/", "http://user:pw@127.0.0.1:{}"])
def test_the_url_may_be_short(server: HttpServer, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(form.format(server.port), as_json=True) == 0
    assert capsys.readouterr().err == ""


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    url: str, free_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port}")
    assert status(url, as_json=True) == 0
    assert capsys.readouterr().err == ""


def test_a_configuration_says_where_its_worker_is_and_brings_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = build_app(
        lambda: status_at(100),
        lambda: None,
        lambda: None,
        Metrics(),
        access=Access("a-token-of-the-tests", tls=False),
    )
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    config = tmp_path / "shop.yaml"
    config.write_text(f"{KAFKA}{TABLES}http: {{port: {server.port}, token: a-token-of-the-tests}}\n")
    capsys.readouterr()  # the server's own line
    try:
        assert status(str(config)) == 0
        assert capsys.readouterr().out.startswith("shop-replica  running  binlane 0.1.0")
    finally:
        server.stop()
    assert status(str(config)) == 1
    assert f"no answer from http://127.0.0.1:{server.port}: Connection refused" in capsys.readouterr().err


def test_a_configuration_that_is_not_there_is_said_to_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["status", "clinic.yaml"]) == 2
    assert "clinic.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_no_worker_is_one_clear_line_and_exit_code_1(
    free_port: int, as_json: bool, watch: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(f"http://user:secret@127.0.0.1:{free_port}", as_json, watch) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"binlane status: no answer from http://127.0.0.1:{free_port}: Connection refused; "
        "is the worker running, and is this its http.port?\n"
    )


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[::", "http://x:port"])
def test_what_is_no_url_is_said_with_an_example(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(url) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"binlane status: {url} is not a")
    assert err.endswith("an example: http://localhost:8080\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("body", ["<html>hello</html>", '{"name": "other"}', "\udcff"])
def test_another_server_is_told_from_a_worker(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw = body.encode("utf-8", "surrogateescape")
    other = Starlette(routes=[Route("/api/status", lambda _: PlainTextResponse(raw))])
    server = HttpServer(other, "127.0.0.1", 0)
    server.start()
    try:
        assert status(f"http://127.0.0.1:{server.port}") == 1
        assert "is not a binlane worker" in capsys.readouterr().err
        assert status(f"http://127.0.0.1:{server.port}/elsewhere") == 1
        assert "answered HTTP 404 to /api/status" in capsys.readouterr().err
    finally:
        server.stop()


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_into_a_pipe_is_a_line_a_poll_until_ctrl_c(url: str, as_json: bool) -> None:
    code = f"{PROGRAM}sys.exit(status({url!r}, {as_json}, True))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
    if as_json:
        first, second = (msgspec.json.decode(line, type=WorkerStatus) for line in lines)
        assert second.uptime_seconds > first.uptime_seconds
    else:
        assert " running · 1 blocked · " in lines[0]
        assert "/s · " not in lines[0]
        assert "/s · " in lines[1]


class Terminal:
    """`binlane status --watch` in a real terminal of 80 by 24."""

    def __init__(self, url: str) -> None:
        self._screen, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.settings = termios.tcgetattr(side)
        self._side = side
        # Its own session's terminal, so that Ctrl-C becomes a signal.
        owns = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        code = f"{owns}{PROGRAM}sys.exit(status({url!r}, False, True))"
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=side,
            stdout=side,
            stderr=side,
            env=environment,
            start_new_session=True,
        )
        self.seen = ""

    def until(self, found: Callable[[str], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not found(self.seen):
            left = end - time.monotonic()
            assert left > 0, self.seen[-3_000:]
            if select.select([self._screen], [], [], min(left, 0.2))[0]:
                self.seen += os.read(self._screen, 65_536).decode("utf-8", "replace")

    def press(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def restored(self) -> bool:
        return termios.tcgetattr(self._side) == self.settings

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self._screen)
        os.close(self._side)


@pytest.fixture
def terminal(url: str) -> Iterator[Terminal]:
    terminal = Terminal(url)
    yield terminal
    terminal.close()


def test_the_live_view_shows_rates_and_ends_with_q(terminal: Terminal) -> None:
    terminal.until(lambda seen: "shop-replica" in seen and "q quits" in seen)
    terminal.until(lambda seen: "/s" in seen.split("q quits", 1)[1])
    terminal.press(b"xq")
    terminal.until(lambda seen: "\x1b[?1049l" in seen)  # back to the screen from before
    assert terminal.process.wait(DEADLINE) == 0
    assert terminal.restored()


def test_the_live_view_ends_with_ctrl_c(terminal: Terminal) -> None:
    terminal.until(lambda seen: "q quits" in seen)
    terminal.press(b"\x03")
    terminal.until(lambda seen: "\x1b[?1049l" in seen)
    assert terminal.process.wait(DEADLINE) == 0
    assert terminal.restored()


def test_the_live_view_outlives_its_worker_and_says_so(terminal: Terminal, server: HttpServer) -> None:
    terminal.until(lambda seen: "q quits" in seen)
    server.stop()
    terminal.until(lambda seen: "No newer answer" in seen)
    assert terminal.process.poll() is None
    terminal.press(b"q")
    terminal.until(lambda seen: "\x1b[?1049l" in seen)
    assert terminal.process.wait(DEADLINE) == 1
