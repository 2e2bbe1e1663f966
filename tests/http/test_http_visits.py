"""How long a connection waits for its client, by a clock that stands unless it is moved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Message

from worker.http.access import Access, Guard
from worker.http.gate import Visit

SECONDS = 10.0
PIECE = 65536


class Client:
    """Takes what is sent to it, each message after so many seconds."""

    def __init__(self, seconds: float, left: Callable[[], bool]) -> None:
        self.now = 0.0
        self.got: list[Message] = []
        self._seconds = seconds
        self._left = left

    async def take(self, message: Message) -> None:
        self.now += self._seconds
        await asyncio.sleep(0)  # the loop looks at its timers
        await asyncio.sleep(0)
        if not self._left():
            self.got.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


def run(body: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner() as runner:
        runner.run(body(runner.get_loop()))


async def no_request() -> Message:
    raise AssertionError("the answer asks for nothing")


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 20 * PIECE + 7])
@pytest.mark.parametrize("seconds", [SECONDS * 0.9, SECONDS * 1.1])
def test_each_piece_of_an_answer_has_its_time(size: int, seconds: float) -> None:
    async def answer(loop: asyncio.AbstractEventLoop) -> None:
        left: list[Visit] = []
        client = Client(seconds, lambda: bool(left))
        loop.time = lambda: client.now  # type: ignore[method-assign]
        with socket.socket() as connection:
            visit = Visit(connection, SECONDS, left.append)
            whole = bytes(index % 251 for index in range(size))
            await visit.around(Response(whole))({"type": "http"}, no_request, client.take)
            if seconds > SECONDS:
                assert left
                assert client.got == []
                return
            assert not left
            assert client.body == whole
            assert [message.get("more_body", False) for message in client.got[1:-1]] == [True] * (
                len(client.got) - 2
            )
            assert not client.got[-1].get("more_body", False)
            assert max(len(message.get("body", b"")) for message in client.got) <= PIECE
            assert visit.since == 0.0
            client.now += SECONDS * 1.1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert left

    run(answer)


def test_an_answer_that_is_worked_out_has_all_the_time() -> None:
    async def answer(loop: asyncio.AbstractEventLoop) -> None:
        left: list[Visit] = []
        client = Client(SECONDS * 0.9, lambda: bool(left))
        loop.time = lambda: client.now  # type: ignore[method-assign]
        with socket.socket() as connection:
            visit = Visit(connection, SECONDS, left.append)

            async def app(scope: Any, receive: Any, send: Any) -> None:
                client.now += SECONDS * 100
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert visit.busy
                await Response(b"ok")(scope, receive, send)

            await visit.around(app)({"type": "http"}, no_request, client.take)
            assert not left
            assert not visit.busy
            assert visit.since == SECONDS * 100
            visit.end()

    run(answer)


def test_a_client_that_leaves_while_it_waits_takes_no_turn() -> None:
    async def asked(loop: asyncio.AbstractEventLoop) -> None:
        turns = asyncio.Semaphore(1)
        served: list[str] = []
        now = loop.time()
        loop.time = lambda: now  # type: ignore[method-assign]

        async def passes(seconds: float) -> None:
            nonlocal now
            now += seconds
            for _ in range(20):  # what each step wakes
                await asyncio.sleep(0)

        with socket.socket() as connection:

            async def ask(name: str) -> None:
                async def app(*_: object) -> None:
                    served.append(name)

                guarded = Guard(app, Access())
                await visits[name].around(guarded)(asked_for("/metrics"), no_request, no_answer)

            names = ("first", "leaves", "last")
            visits = {name: Visit(connection, SECONDS, lambda _: None, turns) for name in names}
            asking = [loop.create_task(ask(name)) for name in names]
            await passes(0)
            assert served == ["first"]
            visits["leaves"].end()
            await passes(0.9)
            assert served == ["first"]
            await passes(0.2)
            assert served == ["first", "last"], "a second after the first, not after the second"
            await asyncio.gather(*asking)
            for visit in visits.values():
                visit.end()

    run(asked)


def test_a_server_that_stops_ends_those_who_wait_without_an_error() -> None:
    async def asked(loop: asyncio.AbstractEventLoop) -> None:
        left: list[Visit] = []

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        with socket.socket() as connection:
            visit = Visit(connection, SECONDS, left.append, asyncio.Semaphore(0))
            guarded = Guard(Response(b"ok"), Access())
            waiting = loop.create_task(visit.around(guarded)(asked_for("/metrics"), gone, no_answer))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait_for(waiting, SECONDS)
        assert left == [visit]

    run(asked)


def test_a_probe_waits_for_no_turn() -> None:
    async def asked(_: asyncio.AbstractEventLoop) -> None:
        served: list[str] = []

        async def app(scope: Any, *_: object) -> None:
            served.append(scope["path"])

        with socket.socket() as connection:
            visit = Visit(connection, SECONDS, lambda _: None, asyncio.Semaphore(0))
            for probe in ("/healthz", "/readyz", "/startupz"):
                guarded = visit.around(Guard(app, Access()))
                answered = guarded(asked_for(probe), no_request, no_answer)
                await asyncio.wait_for(answered, SECONDS)
            visit.end()
        assert served == ["/healthz", "/readyz", "/startupz"]

    run(asked)


def test_who_is_refused_takes_no_turn() -> None:
    async def asked(_: asyncio.AbstractEventLoop) -> None:
        told: list[Message] = []

        async def take(message: Message) -> None:
            told.append(message)

        with socket.socket() as connection:
            visit = Visit(connection, SECONDS, lambda _: None, asyncio.Semaphore(0))
            guarded = visit.around(Guard(Response(b"ok"), Access(token="of another")))
            await asyncio.wait_for(guarded(asked_for("/metrics"), no_request, take), SECONDS)
            visit.end()
        assert told[0]["status"] == 401

    run(asked)


def asked_for(path: str) -> dict[str, Any]:
    return {"type": "http", "path": path, "scheme": "http", "headers": []}


async def no_answer(_: Message) -> None:
    raise AssertionError("nothing is answered")
