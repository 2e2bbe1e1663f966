"""`binlane demo`: a complete demo on this machine."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException

from handlers.spark.runtime.jars import JarsError
from handlers.spark.runtime.versions import JavaError
from worker.demo.run import run_demo
from worker.demo.screen import Screen
from worker.demo.worker_process import WorkerFailed
from worker.local.broker import BrokerError
from worker.observing import logs


def demo(directory: Path | None, changes: int, seed: int, keep: bool) -> int:
    """Play a small shop through Kafka and the worker into Spark, and compare the replica with the source.

    All files are written to `directory` (new or empty), which stays. Without it, they go to a temporary
    folder. That is removed at the end, unless `keep` is set or something failed.

    Returns 0 if replica and source are equal and each table's order was kept, else 1; 2 for an unusable
    directory, 130 at a signal."""
    logs.configure("warning")
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        print(f"binlane demo: {directory} is not an empty folder: name a new one", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="binlane-demo-")) if directory is None else directory.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    screen = Screen()
    screen.title("binlane demo", "a shop's binlog → Kafka → lanes, in order per table → Delta tables → Spark")
    code = 1
    try:
        code = 0 if run_demo(screen, folder, changes=changes, seed=seed) else 1
    except KeyboardInterrupt:
        code = 130
        print("binlane demo: stopped", file=sys.stderr)
    except (BrokerError, JarsError, JavaError, WorkerFailed, RuntimeError) as error:
        print(f"binlane demo: {error}", file=sys.stderr)
    except KafkaException as error:
        print(f"binlane demo: {error.args[0].str()}", file=sys.stderr)
    if directory is None and not keep and code in (0, 130):
        shutil.rmtree(folder, ignore_errors=True)
        screen.console.print(
            "Its tables, configuration and log were in a temporary folder, now removed: --keep keeps it."
        )
    else:
        screen.console.print(f"Tables, configuration and the worker's log: {folder}", soft_wrap=True)
    return code
