"""What the page is told without asking again, to how many, and what it asks for itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import plain_http
import pytest
from example_worker import ERROR, pulse_of, status_at
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message
from structlog.testing import capture_logs

from worker.configuration.shown import Setting
from worker.http.access import Access
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.http.stream import MOST_STREAMS, Feed
from worker.http.watch import Sources
from worker.observing.metrics import Metrics
from worker.observing.overview.timeline import History, Timeline
from worker.observing.status import WorkerStatus

PATIENCE = 20.0


class Worker:
    """What the application is told, to be changed by a test."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.shards = 2
        self.partitions = 12
        self.looks = 0
        self.fault: Exception | None = None
        self.timeline = Timeline(str, clock=lambda: self.seconds)
        self.history = History(
            lambda: pulse_of(self.status()),
            lambda: (0, 0),
            self.timeline,
            clock=lambda: self.seconds,
            wall_clock=lambda: self.seconds,
        )
        self.sources = Sources(
            self.status,
            self.history,
            self.timeline,
            settings=lambda: [Setting("lanes.count", "16", given=False)],
            config=lambda: "/etc/binlane/shop.yaml",
        )

    def status(self) -> WorkerStatus:
        self.looks += 1
        if self.fault is not None:
            raise self.fault
        self.seconds += 1
        return status_at(self.seconds, shards=self.shards, partitions=self.partitions, waiting=200)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@contextlib.contextmanager
def serving(worker: Worker, access: Access | None = None, **options: Any) -> Iterator[str]:
    app = build_app(
        worker.status, lambda: None, lambda: None, Metrics(), access=access, sources=worker.sources
    )
    server = HttpServer(app, "127.0.0.1", 0, **options)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


@pytest.fixture
def url(worker: Worker) -> Iterator[str]:
    with serving(worker) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        yield client


def messages(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_messages_come_without_being_asked_for(client: httpx.Client) -> None:
    with client.stream("GET", "/api/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        told = messages(answer)
        first, second = next(told), next(told)
    assert second["status"]["uptime_seconds"] > first["status"]["uptime_seconds"]
    assert first["rate"] is None
    assert second["rate"] > 0
    assert first["level"] == "bad"
    assert "blocked" in first["headline"]
    assert first["states"]["blocked"] == 1


def test_a_message_is_bounded_whatever_the_worker_has(worker: Worker, client: httpx.Client) -> None:
    worker.shards, worker.partitions = 625, 2_000
    answer = client.get("/api/live")
    told = answer.json()
    assert told["tables"] == 5_000
    assert told["partitions_in_all"] == 2_000
    assert len(told["partitions"]) == len(told["waiting"]) == 100
    assert "tables" not in told["status"]
    assert len(answer.content) < 200_000


def test_all_who_watch_get_the_same_message_for_one_look(worker: Worker, client: httpx.Client) -> None:
    with contextlib.ExitStack() as stack:
        told = [messages(stack.enter_context(client.stream("GET", "/api/events"))) for _ in range(10)]
        for each in told:
            next(each)
        before = worker.looks
        times = {next(each)["time"] for each in told}
        assert len(times) <= 2
        assert worker.looks - before <= 2


def test_nobody_looks_when_nobody_watches(worker: Worker, client: httpx.Client) -> None:
    with client.stream("GET", "/api/events") as answer:
        next(messages(answer))
    assert client.get("/healthz").status_code == 200
    before = worker.looks
    # A second stream begins anew: what was made for those who left is forgotten.
    with client.stream("GET", "/api/events") as answer:
        assert next(messages(answer))["status"]["uptime_seconds"] >= before


def test_streams_are_bounded_and_the_next_is_told_where_to_look(worker: Worker) -> None:
    with (
        serving(worker) as url,
        httpx.Client(
            base_url=url, trust_env=False, timeout=PATIENCE, limits=httpx.Limits(max_connections=None)
        ) as client,
        contextlib.ExitStack() as stack,
    ):
        told = [
            messages(stack.enter_context(client.stream("GET", "/api/events"))) for _ in range(MOST_STREAMS)
        ]
        for each in told:
            next(each)
        with client.stream("GET", "/api/events") as refused:
            assert (refused.status_code, refused.headers.get("retry-after")) == (503, "30")
            assert b"api/live" in refused.read()
        assert client.get("/api/live").status_code == 200
        assert client.get("/healthz").status_code == 200
        for each in told:
            next(each)


async def _ask_at_once(url: str, streams: int) -> Counter[int]:
    """Ask for so many streams with one another, hold all of them, and count the codes of the answers."""
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE, limits=limits) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        asked = [stack.enter_async_context(client.stream("GET", "/api/events")) for _ in range(streams)]
        return Counter(answer.status_code for answer in await asyncio.gather(*asked))


def test_streams_are_bounded_however_many_ask_at_once(worker: Worker) -> None:
    with serving(worker) as url:
        found = asyncio.run(_ask_at_once(url, 3 * MOST_STREAMS))
    assert found == {200: MOST_STREAMS, 503: 2 * MOST_STREAMS}


def test_a_stream_gives_its_place_back_however_it_ends() -> None:
    async def gone(_message: Message) -> None:
        raise OSError("the client left")

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def looks() -> list[int]:
        feed = Feed(lambda: b"{}", lambda: 1.0, most=1)
        request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
        found = []
        stream = feed.answer(request)
        found.append(feed.answer(request).status_code)
        with contextlib.suppress(OSError):
            await stream(request.scope, never, gone)
        found.append(feed.listeners)
        running = asyncio.ensure_future(feed.answer(request)(request.scope, never, sent))
        await asyncio.sleep(0.05)
        found.append(feed.listeners)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        found.append(feed.listeners)
        feed.answer(request)  # that nobody calls
        found.append(feed.listeners)
        return found

    async def sent(_message: Message) -> None:
        pass

    assert asyncio.run(looks()) == [503, 0, 1, 0, 0]


def test_a_stream_keeps_no_place_of_those_that_are_worked_on(client: httpx.Client) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(17):  # one more than are worked on at once
            next(messages(stack.enter_context(client.stream("GET", "/api/events"))))
        assert client.get("/api/status").status_code == 200


def test_who_does_not_read_is_let_go_of_and_the_others_go_on() -> None:
    feed = Feed(lambda: b"x" * 2_000_000, lambda: 0.05)

    async def events(request: Request) -> Response:
        return feed.answer(request)

    server = HttpServer(Starlette(routes=[Route("/api/events", events)]), "127.0.0.1", 0, client_seconds=0.7)
    server.start()
    ask = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(ask)
            deaf.recv(1)
            url = f"http://127.0.0.1:{server.port}/api/events"
            with (
                httpx.Client(trust_env=False, timeout=PATIENCE) as client,
                client.stream("GET", url) as answer,
            ):
                most, after = 0, 0
                for _ in answer.iter_bytes(1_000_000):
                    most = max(most, feed.listeners)
                    # It goes on for several messages after the other is gone.
                    after = after + 1 if most == 2 and feed.listeners == 1 else 0
                    if after == 6:
                        break
    finally:
        server.stop()


def test_a_message_that_takes_long_ends_no_stream(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    monkeypatch.setattr("worker.http.stream._STILL_SECONDS", 0.1)
    goes_on = threading.Event()
    look = worker.status

    def slow() -> WorkerStatus:
        if worker.looks:
            goes_on.wait(PATIENCE)
        return look()

    worker.sources = Sources(slow)
    with (
        serving(worker, client_seconds=0.6) as url,
        httpx.Client(trust_env=False, timeout=PATIENCE) as client,
        client.stream("GET", f"{url}/api/events") as answer,
    ):
        silent = 0
        for line in answer.iter_lines():
            silent += line == ":"
            if silent == 20:  # two seconds, of which the gate gives 0.6 to who stands still
                goes_on.set()
            if silent >= 20 and line.startswith("data: "):
                break


def test_a_stop_does_not_wait_for_those_who_watch(worker: Worker) -> None:
    app = build_app(worker.status, lambda: None, lambda: None, Metrics(), sources=worker.sources)
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    with (
        httpx.Client(trust_env=False, timeout=PATIENCE) as client,
        client.stream("GET", f"http://127.0.0.1:{server.port}/api/events") as answer,
    ):
        next(messages(answer))
        with capture_logs() as logs:
            server.stop()
        assert not server.alive
        assert logs == []


def test_a_look_that_fails_ends_no_stream(worker: Worker, client: httpx.Client) -> None:
    with client.stream("GET", "/api/events") as answer, capture_logs() as logs:
        told = messages(answer)
        next(told)
        worker.fault = RuntimeError("no status")
        while next(told) != {}:
            pass
        worker.fault = None
        while not next(told):
            pass
        assert {each["event"] for each in logs} == {"http_message_failed"}


@pytest.mark.parametrize("path", ["events", "live", "tables", "history", "configuration"])
def test_each_address_asks_for_the_token_and_a_name_of_the_worker_s_own(worker: Worker, path: str) -> None:
    with (
        serving(worker, Access("a-token-of-twenty-chars")) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        assert client.get(f"/api/{path}").status_code == 401
        own = {"Authorization": "Bearer a-token-of-twenty-chars"}
        assert client.get(f"/api/{path}", headers={**own, "Host": "evil.example"}).status_code == 421
        with client.stream("GET", f"/api/{path}", headers=own) as answer:
            assert answer.status_code == 200
        assert client.post(f"/api/{path}", headers=own).status_code == 405


def test_tables_come_in_pages_with_those_in_trouble_first(worker: Worker, client: httpx.Client) -> None:
    worker.shards = 625
    first = client.get("/api/tables").json()
    assert (first["found"], first["in_all"], len(first["tables"])) == (5_000, 5_000, 50)
    assert [each["state"] for each in first["tables"][:3]] == [
        "blocked",
        "retrying",
        first["tables"][2]["state"],
    ]
    assert first["tables"][0]["error"] == ERROR
    last = client.get("/api/tables", params={"offset": 4_990}).json()
    assert len(last["tables"]) == 10
    seen = {each["table"] for each in first["tables"]} & {each["table"] for each in last["tables"]}
    assert seen == set()
    many = client.get("/api/tables", params={"limit": 5_000}).json()
    assert len(many["tables"]) == 200


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"filter": "PAYMENTS"}, 2),
        ({"filter": "payments", "state": "blocked"}, 1),
        ({"state": "trouble"}, 2),
        ({"filter": "shop_01.", "sort": "table"}, 8),
        ({"filter": "nothing"}, 0),
    ],
)
def test_tables_are_found_by_name_and_state(client: httpx.Client, query: dict[str, str], found: int) -> None:
    told = client.get("/api/tables", params=query).json()
    assert told["found"] == len(told["tables"]) == found


@pytest.mark.parametrize(
    "sort", ["table", "state", "lane", "queued", "finished", "failures", "delay", "rate"]
)
def test_tables_are_sorted_either_way(client: httpx.Client, sort: str) -> None:
    key = {"queued": "queued_records", "finished": "finished_records", "failures": "failed_batches"}.get(
        sort, sort
    )
    key = {"delay": "delay_seconds"}.get(key, key)
    for descending in ("true", "false"):
        told = client.get("/api/tables", params={"sort": sort, "descending": descending}).json()["tables"]
        values = [-1 if each[key] is None else each[key] for each in told]
        assert values == sorted(values, reverse=descending == "true")


def test_a_query_that_makes_no_sense_is_refused_with_its_reason(client: httpx.Client) -> None:
    answer = client.get("/api/tables", params={"offset": "many"})
    assert answer.status_code == 400
    assert "offset" in answer.text


def test_the_hour_before_and_what_happened_in_it(worker: Worker, client: httpx.Client) -> None:
    for _ in range(3):
        worker.history.look()
        worker.seconds += 10
    worker.timeline.note("warning", {"event": "ddl_refused", "table": "shop.a", "sql": "DROP TABLE a"})
    told = client.get("/api/history").json()
    assert told["seconds"] == 5
    assert told["fields"][:4] == ["time", "rate", "lag", "delay"]
    assert len(told["points"]) == 3
    assert told["entries"][-1]["event"] == "ddl refused"
    assert client.get("/api/live").json()["entries"][-1] == told["entries"][-1]
    assert client.get("/api/live").json()["points"] == told["points"]


def test_the_configuration_is_told_with_its_file(client: httpx.Client) -> None:
    assert client.get("/api/configuration").json() == {
        "file": "/etc/binlane/shop.yaml",
        "settings": [{"key": "lanes.count", "value": "16", "given": False}],
    }


def test_a_text_that_is_no_unicode_hides_nothing(worker: Worker, client: httpx.Client) -> None:
    status = msgspec.structs.replace(status_at(5), name="caf\udce9")
    worker.sources = Sources(lambda: status)
    with serving(worker) as url:
        assert plain_http.get(f"{url}/api/live").json()["status"]["name"] == "caf?"


def test_threads_do_not_grow_with_those_who_watch(client: httpx.Client) -> None:
    with contextlib.ExitStack() as stack:
        next(messages(stack.enter_context(client.stream("GET", "/api/events"))))
        before = threading.active_count()
        for _ in range(15):
            next(messages(stack.enter_context(client.stream("GET", "/api/events"))))
        assert threading.active_count() <= before + 1


def test_one_table_is_told_with_why_it_is_late_and_its_last_hour(client: httpx.Client) -> None:
    name = "shop_00.payments"
    told = client.get("/api/table", params={"table": name}).json()
    assert told["found"]["error"] == ERROR
    assert told["why"][0].startswith(
        "it waits for its target, because handler spark: [DELTA_CONCURRENT_APPEND]"
    )
    assert told["fields"][0] == "time"
    assert told["points"] == []
    assert client.get("/api/table", params={"table": "shop.none"}).json()["found"] is None
    assert client.get("/api/table").json()["why"] == []
