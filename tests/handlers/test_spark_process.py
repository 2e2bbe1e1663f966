"""The Java process behind the Spark handler: when it must live, and when it must not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from spark_lake import QUICK

CHILD = """
import json, signal, sys
from pathlib import Path
from handlers import Batch, Change, HandlerContext, StopWorker
from handlers.spark import SparkHandler

caught = []
context = HandlerContext(
    worker="test", handler="spark", folder=Path(sys.argv[1]), spark=json.loads(sys.argv[2])
)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: caught.append(signal.Signals(number).name))
handler = SparkHandler(mode="changelog")
handler.open(context)

def append(offset):
    row = Change("insert", None, {"id": offset}, ("id",), None, 0, "cdc", 0, offset, 0, None, {"id": "int"})
    handler.handle(Batch("shop.t", [row], database="shop", name="t"))

print("open", flush=True)
for offset, line in enumerate(sys.stdin):
    try:
        append(offset)
        print("appended", *caught, flush=True)
    except StopWorker as error:
        print("stop:", error, flush=True)
        handler.close()
        handler.open(context)
        append(offset)
        print("appended again", flush=True)
"""


class Child:
    """A process with a Spark handler, and the Java process it has."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), json.dumps(QUICK)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self.read() == "open"

    def append(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("append\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return next(line.strip() for line in self.process.stdout if not line.startswith("20"))

    def java(self) -> psutil.Process:
        [java] = psutil.Process(self.process.pid).children()
        assert java.name() == "java"
        return java


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    child = Child(tmp_path)
    yield child
    child.process.kill()
    child.process.communicate()


def test_signals_reach_the_worker_alone_and_spark_ends_with_a_killed_worker(child: Child) -> None:
    java = child.java()
    os.killpg(child.process.pid, signal.SIGINT)
    os.killpg(child.process.pid, signal.SIGTERM)
    assert child.append() == "appended SIGINT SIGTERM"
    child.process.kill()
    java.wait(timeout=20)


def test_a_dead_spark_stops_the_worker_and_can_be_started_anew(child: Child) -> None:
    assert child.append() == "appended"
    child.java().kill()
    started = time.monotonic()
    assert child.append() == "stop: Spark is gone: it ended (killed by SIGKILL)"
    assert time.monotonic() - started < 10
    assert child.read() == "appended again"
