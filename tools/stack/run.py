"""Start the stack, and stop it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from servers.server_process import ServerError, ServerProcess

from handlers.spark.runtime.jars import KAFKA_VERSION, JarsError, delta_jars, kafka_jars
from handlers.spark.runtime.versions import JavaError
from stack.jars import DEBEZIUM_VERSION, connect_jars, debezium_plugin
from stack.parts import ROOT, Connect, Source, Traffic, near, prometheus
from worker.demo.screen import Screen
from worker.demo.worker_process import WorkerFailed, WorkerProcess
from worker.local.broker import Broker, BrokerError
from worker.local.broker_settings import HOST

__all__ = ["Stack", "StackError", "started"]

_TABLES = ("customers", "orders", "stock")
_ROWS_SECONDS = 120.0


class StackError(RuntimeError):
    """A part does not start, or has ended by itself. The message names it and its last output."""


class Stack:
    """The running parts. Created by `started`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        """The worker's page."""
        self.prometheus_url = ""
        self.source: Source
        self.pids: dict[str, int] = {}
        """{part: its process id}"""
        self._checks: dict[str, Callable[[], str | None]] = {}

    @property
    def lake(self) -> Path:
        """The folder of the replicas: `lake/shop/<table>`."""
        return self.folder / "lake"

    def runs(self, name: str, pid: int, check: Callable[[], str | None]) -> None:
        """Register a part. `check` returns None while it runs, else its last output."""
        self.pids[name] = pid
        self._checks[name] = check

    def check(self) -> None:
        """Raise StackError if a part has ended."""
        for name, check in self._checks.items():
            said = check()
            if said is not None:
                raise StackError(f"{name} has ended by itself: {said}")


@contextmanager
def started(screen: Screen) -> Iterator[Stack]:
    """Start everything, and wait for each table of the shop. At the end, stop every process that was started,
    in reverse order. Raises StackError."""
    with ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="binlane-stack-"))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        stack = Stack(folder)
        with _part(screen, "the libraries") as tell:
            count = len([*kafka_jars(), *connect_jars(), *delta_jars(), *debezium_plugin().glob("*.jar")])
            tell(f"{count} libraries: Kafka, Kafka Connect, Debezium, Delta Lake")
        stack.source = Source(near(3306))
        with _part(screen, "MariaDB") as tell:
            _start(stack, "MariaDB", stack.source, ending)
            tell(f"MariaDB at {HOST}:{stack.source.port}, database shop, its binlog on")
        broker = Broker(port=near(9092))
        ending.callback(broker.close)
        with _part(screen, "Kafka") as tell:
            broker.start()
            stack.runs("Kafka", broker.pid, lambda: None if broker.running else broker.telling_log_lines())
            tell(f"Kafka {KAFKA_VERSION} at {broker.bootstrap_servers}")
        connect = Connect(near(8083), broker.bootstrap_servers, stack.source.port)
        with _part(screen, "Kafka Connect") as tell:
            _start(stack, "Kafka Connect", connect, ending)
            tell(f"Debezium {DEBEZIUM_VERSION} in Kafka Connect at {connect.url}")
        with _part(screen, "the traffic") as tell:
            _start(stack, "the traffic", Traffic(stack.source.shop_url), ending)
            tell("the shop is at work: a few changes a second")
        with _part(screen, "the worker") as tell:
            _start_worker(stack, broker.bootstrap_servers, ending)
            tell(f"binlane with Spark, its page: {stack.url}")
        node = prometheus(near(9090))
        with _part(screen, "Prometheus") as tell:
            node.scrape({"stack": stack.url.removeprefix("http://")})
            _start(stack, "Prometheus", node, ending)
            stack.prometheus_url = node.url
            tell(f"Prometheus with the rules of deploy/alerts.yml: {node.url}")
        yield stack


def _start(stack: Stack, name: str, server: ServerProcess, ending: ExitStack) -> None:
    ending.callback(server.close)
    server.start()
    stack.runs(name, server.pid, lambda: None if server.running else server.last_log_lines())


def _start_worker(stack: Stack, bootstrap_servers: str, ending: ExitStack) -> None:
    """Start the worker, and return when the replica of each table exists. Raises WorkerFailed."""
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "BINLANE_DATA": str(stack.folder),
        "BINLANE_HOST": HOST,
        "BINLANE_PORT": str(near(8080)),
    }
    with _environment(environment):
        worker = WorkerProcess(ROOT / "deploy" / "binlane.yaml", stack.folder / "worker.log")
    ending.enter_context(worker)

    def check() -> str | None:
        try:
            worker.check()
        except WorkerFailed as fault:
            return str(fault)
        return None

    stack.runs("the worker", worker.pid, check)
    worker.wait_until_it_serves()
    stack.url = worker.url
    deadline = time.monotonic() + _ROWS_SECONDS
    while not all((stack.lake / "shop" / table / "_delta_log").is_dir() for table in _TABLES):
        stack.check()
        if time.monotonic() > deadline:
            raise StackError(f"the worker has no tables after {_ROWS_SECONDS:g} s")
        time.sleep(0.1)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _part(screen: Screen, name: str) -> Iterator[Callable[[str], None]]:
    """Show one line for a part. Errors of its start become StackErrors that name it."""
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(screen.step(f"starting {name}"))

        def tell(text: str) -> None:
            step.text = text

        try:
            yield tell
        except (ServerError, BrokerError, WorkerFailed, JarsError, JavaError, OSError) as fault:
            raise StackError(f"{name} does not start: {fault}") from fault
