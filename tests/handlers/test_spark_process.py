"""The Java process behind the Spark handler: when it must live, and when it must not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import plain_http
import psutil
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from spark_sessions import LIGHT, QUICK, SparkKeeper

from handlers.spark.options import SparkSection
from handlers.spark.runtime import session

NEVER = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=127.0.0.1:0"

FUNCTION = """
import threading

def count(frame, batch):
    if batch.table == "shop.waits":
        # As a job does that comes while Spark stops: nobody ever answers.
        print("waits", flush=True)
        frame.sparkSession._jvm.java.lang.Thread.sleep(600_000)
    if batch.table == "shop.stops":
        threading.Timer(1, frame.sparkSession._jsparkSession.sparkContext().stop).start()
        return
    print("counted", frame.count(), flush=True)
"""

# What is logged, by other threads too, goes where it comes into no line of ours.
CHILD = """
import json, signal, sys
from pathlib import Path
import structlog
from handlers import HandlerContext, StopWorker
from handlers.spark import SparkHandler
from handlers.testing import make_batch

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
caught = []

def stop_worker(error):
    assert isinstance(error, StopWorker)
    print("stop from behind:", error, flush=True)

context = HandlerContext(
    worker="test",
    handler="spark",
    folder=Path(sys.argv[1]),
    spark=json.loads(sys.argv[2]),
    stop_worker=stop_worker,
)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: caught.append(signal.Signals(number).name))
handler = SparkHandler(mode="function", function="counting:count")
handler.open(context)
print("open", handler.status()["spark"]["ui"], flush=True)
for line in sys.stdin:
    try:
        handler.handle(make_batch(line.strip(), [{"id": 1}], key="id"))
        print("done", *caught, flush=True)
    except StopWorker as error:
        print("stop:", error, flush=True)
        handler.close()
        handler.open(context)
        print("open again", handler.status()["spark"]["ui"], flush=True)
"""


LARGE = """
import json, sys, time
from pathlib import Path
import structlog
from handlers import HandlerContext
from handlers.spark import SparkHandler
from handlers.testing import make_batch
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

context = HandlerContext(
    worker="test",
    handler="spark",
    folder=Path(sys.argv[1]),
    spark=json.loads(sys.argv[2]),
    stop_worker=lambda error: print("stop from behind:", error, flush=True),
    partitions=lambda: [("test", 0)],
)
handler = SparkHandler(mode="replica", merge={"engine": "spark", "max_age": "0s", "at_close": "0s"})
handler.open(context)
if len(sys.argv) > 3:
    rows = [{"id": 1, "text": "x" * int(sys.argv[3])}, {"id": 2, "text": "small"}]
    handler.handle(make_batch("shop.t", rows, key="id", types={"id": "int", "text": "longtext"}))
    print("durable", flush=True)
    sys.stdin.read()
while not any(table["merged_source_time_ms"] is not None for table in handler.status()["tables"]):
    time.sleep(0.1)
handler.close()
print("merged", flush=True)
"""


class Child:
    """A process with a Spark handler, and the Java process it has."""

    def __init__(self, folder: Path) -> None:
        (folder / "counting.py").write_text(FUNCTION)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), json.dumps({**LIGHT, "ui": True})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        opened, self.ui = self.read().split()
        assert opened == "open"

    def handle(self, table: str = "shop.t") -> None:
        """Give it a batch."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{table}\n")
        self.process.stdin.flush()

    def read(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return next(iter(self.process.stdout)).strip()

    def open_again(self) -> None:
        said, self.ui = self.read().rsplit(maxsplit=1)
        assert said == "open again"

    def java(self) -> psutil.Process:
        [java] = psutil.Process(self.process.pid).children()
        assert java.name() == "java"
        return java


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """Each test leaves it with a Spark that runs; the last ends both."""
    child = Child(tmp_path_factory.mktemp("child"))
    yield child
    child.process.kill()
    child.process.communicate()


def test_a_dead_spark_stops_the_worker_with_a_batch_or_without_and_can_be_started_anew(child: Child) -> None:
    child.java().kill()
    started = time.monotonic()
    gone = "Spark is gone: it ended (killed by SIGKILL)"
    assert child.read() == f"stop from behind: {gone}"
    assert time.monotonic() - started < 10
    child.handle()
    assert child.read() == f"stop: {gone}"
    child.open_again()
    child.handle()
    assert [child.read(), child.read()] == ["counted 1", "done"]

    # A Spark that stops by itself, as when its master ends the application, while a call waits in it.
    java = child.java()
    child.handle("shop.stops")
    child.handle("shop.waits")
    assert [child.read(), child.read()] == ["done", "waits"]
    started = time.monotonic()
    gone = "Spark is gone: it stopped inside its Java process"
    assert child.read().startswith(f"stop from behind: {gone}")
    assert child.read().startswith(f"stop: {gone}"), "the call that waited"
    assert time.monotonic() - started < 20
    java.wait(timeout=10)
    child.open_again()


def test_signals_reach_the_worker_alone_and_spark_ends_with_a_killed_worker(child: Child) -> None:
    java = child.java()
    os.killpg(child.process.pid, signal.SIGINT)
    os.killpg(child.process.pid, signal.SIGTERM)
    child.handle()
    assert [child.read(), child.read()] == ["counted 1", "done SIGINT SIGTERM"]

    # The web pages answer, on this machine alone; so does everything else of a local Spark.
    assert plain_http.get(f"{child.ui}/jobs/", timeout=30, follow_redirects=True).is_success
    listening = [each.laddr.ip for each in java.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}

    child.process.kill()
    java.wait(timeout=20)


FROZEN = """
import json, os, signal, sys, time
from pathlib import Path
from handlers.spark.runtime import start
from handlers.spark.runtime import driver
from handlers.spark.runtime import java_process
from handlers.spark.runtime.session import acquire, release
from handlers.spark.options import SparkSection

for module in (driver, java_process):
    for name in set(vars(module)) & set(close_times.__all__):
        setattr(module, name, 1.0)
spark = acquire(SparkSection.model_validate(json.loads(sys.argv[2])), Path(sys.argv[1]), "test", print)
pid = spark._place._process.pid
print("up", spark.status()["up"], flush=True)
driver._SILENT_SECONDS = 4.0
os.kill(pid, signal.SIGSTOP)
while spark.status()["up"]:
    time.sleep(0.1)
release()
try:
    os.kill(pid, 0)
except ProcessLookupError:
    print("gone", flush=True)
"""


@pytest.mark.soak
def test_a_spark_that_does_not_answer_any_more_is_killed_by_its_close(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FROZEN, str(tmp_path), json.dumps(QUICK)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "spark_does_not_stop" in said.stdout
    assert "up True" in said.stdout
    assert said.stdout.splitlines()[-1] == "gone"


@pytest.mark.parametrize(
    ("more", "place", "within"),
    [
        # Java waits for a debugger before it begins; Spark waits a minute for a master that is not there.
        ({"conf": {"spark.driver.extraJavaOptions": NEVER}}, "launch_gateway", 3),
        pytest.param({"master": "spark://127.0.0.1:1"}, "send_command", 25, marks=pytest.mark.soak),
    ],
)
def test_a_spark_that_never_starts_is_given_up_and_leaves_no_process(
    tmp_path: Path, spark_keeper: SparkKeeper, more: dict[str, Any], place: str, within: int
) -> None:
    spark_keeper.stop()
    section = SparkSection.model_validate({**QUICK, **more})
    before = set(psutil.Process().children(recursive=True))
    told = rf"Spark \({section.master[:5]}.*not done within {within} s.*{place}"
    with pytest.raises(RuntimeError, match=told):
        session.acquire(section, tmp_path, "test", within=within)
    assert session._shared is None
    assert SparkContext._gateway is SparkContext._active_spark_context is None
    left = set(psutil.Process().children(recursive=True)) - before
    assert not psutil.wait_procs(left, timeout=10)[1]


def test_a_worker_that_is_stopped_while_spark_starts_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    temporary, config = tmp_path / "temporary", tmp_path / "binlane.yaml"
    temporary.mkdir()
    settings = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "topics": ["t"]},
        "format": "canal",
        "http": None,
        "spark": {**QUICK, "start": "eager", "conf": {"spark.driver.extraJavaOptions": NEVER}},
        "tables": [{"match": "*", "handlers": [{"type": "spark", "mode": "replica"}]}],
    }
    config.write_text(json.dumps(settings))
    worker = subprocess.Popen(
        [sys.executable, "-m", "binlane", "run", str(config)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    java: list[psutil.Process] = []
    while worker.poll() is None and not java:
        with suppress(psutil.NoSuchProcess):  # one that looks which Java it is
            java = [each for each in psutil.Process(worker.pid).children() if NEVER in each.cmdline()]
        time.sleep(0.05)
    worker.terminate()
    log = worker.communicate(timeout=60)[1]
    assert worker.returncode == 0, log
    assert "spark_started" not in log
    assert list(temporary.iterdir()) == []
    assert not psutil.wait_procs(java, timeout=10)[1]


# An executor out of memory: spark_runtime/test_spark_standalone.py.
@pytest.mark.soak
def test_out_of_memory_is_told_and_with_more_memory_no_row_is_missing(tmp_path: Path) -> None:
    with _large(tmp_path, "512m", "120000000") as said:
        assert next(said) == "durable"
        gone = "stop from behind: Spark is gone: it ended (exit code 52: out of memory; raise "
        assert next(said).startswith(f"{gone}spark.driver_memory)")
    with _large(tmp_path, "3g") as said:
        assert next(said) == "merged"
    rows = [
        row
        for file in (tmp_path / "lake/shop/t").glob("*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    assert sorted((row["id"], len(row["text"])) for row in rows) == [(1, 120_000_000), (2, 5)]


@contextmanager
def _large(folder: Path, memory: str, *size: str) -> Iterator[Iterator[str]]:
    """What a process says that merges a large row."""
    section = json.dumps({**QUICK, "driver_memory": memory})
    process = subprocess.Popen(
        [sys.executable, "-c", LARGE, str(folder), section, *size],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield (line.strip() for line in process.stdout)
    finally:
        process.kill()
        process.communicate()
