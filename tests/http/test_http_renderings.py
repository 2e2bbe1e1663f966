"""Whoever asks in a loop gets the same answer again: making answers takes a bounded share of a processor."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from example_worker import status_at
from prometheus_client import Metric
from prometheus_client.registry import Collector

from worker.http.app import Renderings, build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.status import WorkerStatus


class Machine:
    """A clock, and a processor that a rendering takes for `cost` seconds."""

    def __init__(self, cost: float) -> None:
        self.now = self.used = 0.0
        self.cost = cost
        self.made = 0

    def render(self) -> bytes:
        self.made += 1
        self.used += self.cost
        self.sleep(self.cost)
        return str(self.made).encode()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def renderings(self) -> Renderings:
        return Renderings(clock=lambda: self.now, processor_time=lambda: self.used, wait=self.sleep)


@pytest.mark.parametrize("cost", [0.001, 0.3, 2.0])
@pytest.mark.parametrize("variants", [1, 2, 1000])
def test_a_loop_takes_its_share_and_no_more(cost: float, variants: int) -> None:
    machine = Machine(cost)
    renderings = machine.renderings()
    for number in range(20_000):
        renderings.answer(machine.render, number % variants)
        machine.sleep(cost / 50)
    assert machine.used <= 0.05 * machine.now + cost


def test_who_asks_now_and_then_gets_what_is_so_now() -> None:
    machine = Machine(0.01)
    renderings = machine.renderings()
    for number in range(1, 10):
        assert renderings.answer(machine.render) == str(number).encode()
        assert renderings.answer(machine.render) == str(number).encode()
        machine.sleep(0.21)


def test_an_answer_that_fails_costs_too_and_is_not_repeated() -> None:
    machine = Machine(0.01)
    renderings = machine.renderings()

    def fails() -> bytes:
        machine.render()
        raise ValueError("no status")

    for _ in range(100):
        with pytest.raises(ValueError, match="no status"):
            renderings.answer(fails)
    assert machine.used <= 0.05 * machine.now + machine.cost
    assert renderings.answer(machine.render) == b"101"


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def made() -> list[float]:
    """The processor time of each status."""
    return []


@pytest.fixture
def loaded(made: list[float]) -> HttpServer:
    def status() -> WorkerStatus:
        burn(0.02)
        made.append(0.02)
        return status_at(1)

    return HttpServer(build_app(status, lambda: None, lambda: None, Metrics()), "127.0.0.1", 0)


def in_loops(ask: Callable[[httpx.Client], httpx.Response], seconds: float) -> tuple[int, float]:
    """How many answers four clients get, and in which time."""
    answers = []
    began = time.monotonic()

    def loop() -> None:
        with httpx.Client(trust_env=False, timeout=30) as client:
            while time.monotonic() < began + seconds:
                answers.append(ask(client).raise_for_status())

    clients = [threading.Thread(target=loop) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return len(answers), time.monotonic() - began


@pytest.mark.parametrize("path", ["/api/status", "/metrics"])
def test_requests_in_a_loop_take_a_bounded_share_of_a_processor(
    loaded: HttpServer, made: list[float], path: str
) -> None:
    loaded.start()
    try:
        url = f"http://127.0.0.1:{loaded.port}"
        asked, seconds = in_loops(lambda client: client.get(url + path), 2)
        assert asked <= 50 * (seconds + 1)
        assert sum(made) <= 0.05 * seconds + 2 * 0.02
    finally:
        loaded.stop()


@pytest.mark.parametrize("flood", ["/api/tables?offset={}", "/metrics"])
def test_whoever_wants_ever_other_answers_keeps_no_scrape_waiting(flood: str) -> None:
    """Each of them waits for its turn. Of all requests, 16 run at once."""
    left = threading.Event()
    rendered: list[int] = []
    answered: list[int] = []

    class Slow(Collector):
        def collect(self) -> Iterator[Metric]:
            rendered.append(1)
            burn(0.02)
            return iter(())

    def status() -> WorkerStatus:
        burn(0.05)
        return status_at(1)

    def loop(first: int) -> None:
        with httpx.Client(trust_env=False, timeout=30) as client:
            for number in itertools.count(first, 16):
                if left.is_set():
                    return
                accept = f"application/openmetrics-text; version=1.0.{number}"
                answer = client.get(url + flood.format(number), headers={"Accept": accept})
                answered.append(answer.status_code)

    metrics = Metrics()
    metrics.registry.register(Slow())
    server = HttpServer(build_app(status, lambda: None, lambda: None, metrics), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    clients = [threading.Thread(target=loop, args=(number,)) for number in range(16)]
    for each in clients:
        each.start()
    try:
        with httpx.Client(trust_env=False, timeout=30) as client:
            time.sleep(0.5)
            answers = [client.get(f"{url}/metrics") for _ in range(5)]
    finally:
        left.set()
        for each in clients:
            each.join()
        server.stop()
    assert [answer.status_code for answer in answers] == [200] * 5
    assert (503 in answered) == ("{}" in flood), "only whoever wants an answer of one's own is sent away"
    assert len(answered) > 2 * len(rendered), "nobody had to wait for an answer of one's own"
