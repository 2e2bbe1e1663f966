"""`binlane pause` and `resume`, and who may pause tables over HTTP: whoever may have a record set aside."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from example_worker import status_at

from worker.cli.process import _exit_code
from worker.http.access import Access
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.unblock_messages import Answer, PauseRequest

TOKEN = "a-token-of-the-tests"
JSON = {"Content-Type": "application/json"}
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ASKED = {"table": "shop.*", "action": "pause", "by": "ann@laptop", "for": "1h", "reason": "a move"}


class Worker:
    """Notes what it is asked for, and says that it is done."""

    def __init__(self, answer: Answer | None = None, **access: Any) -> None:
        self.asked: list[tuple[PauseRequest, str]] = []
        self.answer = answer or Answer(result="paused", message="done")
        self.app = build_app(
            lambda: status_at(1),
            lambda: None,
            lambda: None,
            Metrics(),
            pause=self._pause,
            access=Access(**access),
        )

    def post(self, headers: dict[str, str], body: Any = None, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=("10.0.0.9", 4711))
            base = f"http://{more.get('host', 'localhost')}:8080"
            async with httpx.AsyncClient(transport=transport, base_url=base) as http:
                content = msgspec.json.encode(ASKED if body is None else body)
                method = more.get("method", "POST")
                return await http.request(method, "/api/pause", headers=headers, content=content)

        return asyncio.run(send())

    def _pause(self, asked: PauseRequest, client: str) -> Answer:
        self.asked.append((asked, client))
        return self.answer


@pytest.fixture
def serve() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def serve(worker: Worker) -> str:
            server = HttpServer(worker.app, "127.0.0.1", 0)
            server.start()
            stack.callback(server.stop)
            return f"127.0.0.1:{server.port}"

        yield serve


@pytest.mark.parametrize("access", [{"token": TOKEN}, {"order_token": TOKEN}])
def test_a_pause_with_the_token_reaches_the_worker(access: dict[str, str]) -> None:
    worker = Worker(**access)
    answer = worker.post(JSON | BEARER)
    assert (answer.status_code, answer.json()) == (200, {"result": "paused", "message": "done"})
    expected = PauseRequest(table="shop.*", action="pause", by="ann@laptop", duration="1h", reason="a move")
    assert worker.asked == [(expected, "10.0.0.9")]


@pytest.mark.parametrize(
    ("headers", "more", "code"),
    [
        (JSON, {}, 403),
        (JSON | {"Authorization": "Bearer another"}, {}, 403),
        (JSON | BEARER | {"Origin": "http://localhost:8080"}, {}, 403),
        (JSON | BEARER | {"Sec-Fetch-Site": "same-origin"}, {}, 403),
        (BEARER | {"Content-Type": "text/plain"}, {}, 415),
        (JSON | BEARER, {"host": "evil.example.org"}, 421),
        (JSON | BEARER, {"method": "GET"}, 405),
        (JSON | BEARER, {"body": {**ASKED, "until": 5}}, 400),
        (JSON | BEARER, {"body": {**ASKED, "action": "stop"}}, 400),
        (JSON | BEARER, {"body": {**ASKED, "table": ""}}, 400),
        (JSON | BEARER, {"body": {**ASKED, "reason": "x" * 501}}, 400),
        (JSON | BEARER, {"body": {**ASKED, "reason": "x" * 20_000}}, 400),
    ],
)
def test_a_pause_is_refused_as_an_unblock_is(
    headers: dict[str, str], more: dict[str, Any], code: int
) -> None:
    worker = Worker(order_token=TOKEN)
    assert worker.post(headers, **more).status_code == code
    assert worker.asked == []


def test_what_the_worker_refuses_is_a_conflict() -> None:
    worker = Worker(Answer(result="refused", message="there is no pause of shop.*"), token=TOKEN)
    answer = worker.post(JSON | BEARER, {**ASKED, "action": "resume"})
    assert (answer.status_code, answer.json()["result"]) == (409, "refused")


def test_the_command_says_what_is_asked_and_by_whom(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker(token=TOKEN)
    target = serve(worker)
    where = ("--table", "shop.orders", "--handler", "mirror", "--token", TOKEN)
    capsys.readouterr()
    assert _exit_code(["pause", target, *where, "--for", "2h", "--reason", "a move"]) == 0
    assert _exit_code(["resume", target, *where]) == 0
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    [(paused, _), (resumed, _)] = worker.asked
    assert paused == PauseRequest(
        table="shop.orders", action="pause", by=by, handler="mirror", duration="2h", reason="a move"
    )
    assert resumed == PauseRequest(table="shop.orders", action="resume", by=by, handler="mirror")
    assert capsys.readouterr().out == "done\ndone\n"


def test_a_refusal_and_a_stopped_worker_end_the_command_with_1(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    target = serve(Worker(Answer(result="refused", message="no \x1b[2J such\n pause"), token=TOKEN))
    capsys.readouterr()
    assert _exit_code(["resume", target, "--table", "shop.*", "--token", TOKEN]) == 1
    assert capsys.readouterr().err == "binlane resume: no \\u001b[2J such pause\n"
    assert _exit_code(["pause", "http://127.0.0.1:1", "--table", "shop.*", "--token", TOKEN]) == 1
    assert capsys.readouterr().err.startswith("binlane pause: no answer from http://127.0.0.1:1: ")


def test_options_that_are_not_utf8_end_the_command_with_1(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    target = serve(Worker(token=TOKEN))
    capsys.readouterr()
    assert _exit_code(["pause", target, "--table", "shop.\udcff", "--token", TOKEN]) == 1
    assert capsys.readouterr().err == "binlane pause: the options must be UTF-8\n"


@pytest.mark.parametrize(("option", "name"), [("--reason", "reason"), ("--handler", "handler")])
def test_a_text_that_is_too_long_is_refused_in_plain_words(
    serve: Any, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    worker = Worker(token=TOKEN)
    asked = ["pause", serve(worker), "--table", "shop.orders", "--token", TOKEN, option]
    capsys.readouterr()
    for text in ("x" * 501, ""):
        assert _exit_code([*asked, text]) == 1
        message = f"binlane pause: {name}: found {len(text)} characters; allowed: 1 to 500\n"
        assert capsys.readouterr().err == message
    assert _exit_code([*asked, "x" * 500]) == 0
    assert len(worker.asked) == 1
