"""`make stack` as whoever sits before it uses it: a terminal, SQL, the view, the page, one key."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plain_http
import psutil
import pymysql
import pytest
from spark_sessions import SparkKeeper

from handlers.spark.read.current import current
from handlers.spark.read.view import NothingToSee

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SEEN_SECONDS = 10.0


def alive(one: psutil.Process) -> bool:
    """Not ended, and no zombie that nobody has asked for yet."""
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Terminal:
    """`python -m stack` in a terminal of its own."""

    def __init__(self) -> None:
        self._side, other = pty.openpty()
        path = os.pathsep.join(str(ROOT / each) for each in ("tools", "tests"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stack"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "TERM": "dumb", "COLUMNS": "300"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.screen = ""

    def read(self) -> str:
        """All that came until now; a terminal that is gone gives nothing."""
        os.set_blocking(self._side, False)
        try:
            while piece := os.read(self._side, 65536):
                self.screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece.decode(errors="replace"))
        except (BlockingIOError, OSError):
            pass
        return self.screen

    def wait_for(self, text: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.read():
            assert time.monotonic() < deadline, self.screen
            assert self.process.poll() is None or text in self.read(), self.screen
            time.sleep(0.1)

    def press(self, key: bytes) -> None:
        os.write(self._side, key)

    def ended(self, seconds: float) -> int:
        """Its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, self.screen
            time.sleep(0.05)
        self.read()
        return self.process.returncode

    def processes(self) -> list[psutil.Process]:
        """All that it started, and what these started."""
        return [one for one in psutil.Process(self.process.pid).children(recursive=True) if alive(one)]

    def value(self, name: str) -> str:
        """What the screen says of this."""
        found = re.search(rf"^{name} +(\S.*?)\s*$", self.screen, re.MULTILINE)
        assert found, self.screen
        return found[1]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    if one.process.poll() is None:
        one.process.send_signal(signal.SIGTERM)
        one.ended(120)


def connection(command: str) -> pymysql.Connection[Any]:
    found = dict(re.findall(r"--(\w+)=(\S+)", command))
    return pymysql.connect(
        host=found["host"],
        port=int(found["port"]),
        user=found["user"],
        password=found["password"],
        database="shop",
        autocommit=True,
    )


def counted(url: str) -> int:
    tables = plain_http.get(f"{url}/api/status", timeout=5).json()["tables"]
    return sum(each["finished_records"] for each in tables if each["table"] == "shop.customers")


def test_a_changed_row_is_in_the_view_and_on_the_page_in_seconds_and_one_key_ends_all(
    terminal: Terminal, spark_keeper: SparkKeeper
) -> None:
    session = spark_keeper.get().session
    began = time.monotonic()
    terminal.wait_for("stop  ", 300)
    up = time.monotonic() - began
    page, lake = terminal.value("page"), terminal.value("look at it").split()[-1].rsplit("/", 1)[0]
    replica = f"{lake}/customers"
    started = terminal.processes()
    names = " ".join(" ".join(each.cmdline()) for each in started)
    for part in ("mariadbd", "kafka.Kafka", "ConnectStandalone", "traffic.py", "binlane run", "prometheus"):
        assert part in names

    def emails(key: int) -> list[str]:
        try:
            return [row["email"] for row in current(session, replica).where(f"id = {key}").collect()]
        except NothingToSee:
            return []

    with connection(terminal.value("change a row")) as source, source.cursor() as cursor:
        cursor.execute("INSERT INTO customers (name, email) VALUES ('Test', 'before@example.com')")
        key = cursor.lastrowid
        while not emails(key):  # the first query takes seconds in a Spark that has just started
            assert time.monotonic() - began < 400, terminal.read()
        taken = []
        for number in range(5):
            before, changed = counted(page), time.monotonic()
            cursor.execute("UPDATE customers SET email = %s WHERE id = %s", (f"{number}@example.com", key))
            while emails(key) != [f"{number}@example.com"]:
                assert time.monotonic() - changed < SEEN_SECONDS, terminal.read()
            while counted(page) <= before:
                assert time.monotonic() - changed < SEEN_SECONDS
            taken.append(time.monotonic() - changed)
    prometheus = terminal.value("Prometheus").removesuffix("/alerts")
    rules = plain_http.get(f"{prometheus}/api/v1/rules", timeout=5).json()["data"]["groups"]
    assert {rule["name"] for group in rules for rule in group["rules"]} >= {"BinlaneNoWorker"}

    stopping = time.monotonic()
    terminal.press(b"q")
    assert terminal.ended(120) == 0, terminal.screen
    assert "Everything has stopped." in terminal.screen
    print(f"up after {up:.0f} s; seen after {[round(each, 1) for each in taken]} s; "
          f"stopped in {time.monotonic() - stopping:.0f} s")  # fmt: skip
    assert [each for each in started if alive(each)] == []
    assert not Path(lake).exists()


def test_a_part_that_dies_ends_all_and_is_named(terminal: Terminal) -> None:
    terminal.wait_for("in Kafka Connect at", 300)
    [connect] = [
        each for each in terminal.processes() if each.name() == "java" and "Connect" in each.cmdline()[-3]
    ]
    started = terminal.processes()
    connect.kill()

    assert terminal.ended(240) == 1
    assert "make stack: " in terminal.screen
    assert "Kafka Connect has ended by itself" in terminal.screen
    assert [each for each in started if alive(each)] == []
