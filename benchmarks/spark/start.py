"""The start of a worker (first record durable, ready, Spark up, first merge): without Spark, and with it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError, child, ended
from benchmarks.results import Report, at_most
from benchmarks.spark.feed import TopicTarget, write_backlog
from benchmarks.spark.load import Load
from benchmarks.worker_run import binlane_command
from handlers.spark.runtime.class_archive import OPTIONS

__all__ = ["run"]

_LIMIT_SECONDS = 180
_LOOK_SECONDS = 0.02
_IMPORT = "import time; import worker.commands.run; print(time.process_time())"


@dataclass(frozen=True)
class _Start:
    """Seconds from `binlane run`."""

    durable: float
    ready: float
    merged: float
    spark: float | None = None
    """None: no table needs it."""
    java_cpu: float | None = None
    """CPU seconds of Spark's Java process until Spark is up."""


def run(context: Context) -> Report:
    """Start in turns without Spark, and with and without the archive, on a topic of 100 records."""
    rounds = context.pick(3, 1)
    report = Report(
        "spark_start",
        "The start of a worker with Spark",
        {
            "kind": "Commits by",
            "durable": "first record durable, s",
            "ready": "ready, s",
            "spark": "Spark up, s",
            "merged": "first merge, s",
            "java_cpu": "Java's CPU until Spark is up, s",
        },
    )
    # A worker writes the archive a minute after Spark's first start. Here it is written at once.
    subprocess.run([sys.executable, "-m", "handlers.spark.training"], check=True)
    kinds: Mapping[str, dict[str, str] | None] = {
        "binlane": None,
        "Spark": {},
        "Spark, without the archive of classes": {OPTIONS: "-Xshare:auto"},
    }
    found: dict[str, list[_Start]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, conf in kinds.items():
            found[kind].append(_start(context, conf))
    middle = {kind: _middle(starts) for kind, starts in found.items()}
    for kind, start in middle.items():
        report.row(kind=kind, **vars(start))
    imported = min(_import_seconds() for _ in range(3))
    default, used, plain = middle.values()
    assert used.java_cpu is not None
    assert plain.java_cpu is not None
    report.goals += [
        at_most(5.0, default.merged, "s", "the first row in a Delta table"),
        at_most(3.0, used.durable, "s", "the first record durable"),
        at_most(5.0, used.ready, "s", "ready"),
        at_most(
            0.55, used.java_cpu / plain.java_cpu, "times", "Java's CPU until Spark is up", "without archive"
        ),
        at_most(0.4, imported, "s", "CPU of importing the worker, without Spark"),
    ]
    report.notes.append(
        f"Median of {rounds} starts of each kind, in turns. Seconds count from `binlane run`. The topic "
        "contains 100 records."
    )
    return report


def _start(context: Context, conf: Mapping[str, str] | None) -> _Start:
    """`conf`: of Spark, None to let binlane make the commits. Raises BenchmarkError if the worker ends early
    or takes too long."""
    topic = TopicTarget(context.bootstrap, f"spark-start-{time.time_ns()}")
    write_backlog(Load(2), [topic], 100)
    with tempfile.TemporaryDirectory(prefix="binlane-start-") as temporary:
        folder = Path(temporary)
        path, log = folder / "binlane.yaml", folder / "worker.log"
        path.write_text(yaml.safe_dump(_configuration(context.bootstrap, topic.topic, conf)))
        with log.open("wb") as output:
            began = time.monotonic()
            with child([binlane_command(), "run", str(path)], stdout=output, stderr=output) as process:
                start = _watch(process, folder, log, began, with_spark=conf is not None)
                if not ended(process, _LIMIT_SECONDS):
                    raise BenchmarkError(f"the worker did not stop:\n{log.read_text()[-3000:]}")
    return start


def _watch(
    process: subprocess.Popen[bytes], folder: Path, log: Path, began: float, *, with_spark: bool
) -> _Start:
    seen: dict[str, float] = {}
    client = httpx.Client(timeout=5, trust_env=False)
    while len(seen) < (len(_Start.__dataclass_fields__) if with_spark else 3):
        said = log.read_text()
        now = time.monotonic() - began
        if process.poll() is not None or now > _LIMIT_SECONDS:
            raise BenchmarkError(f"the worker did not come to its first merge:\n{said[-3000:]}")
        lines = {line["event"]: line for line in map(json.loads, said.rpartition("\n")[0].splitlines())}
        if "ready" not in seen and (http := lines.get("http_listening")) and _is_ready(client, http["port"]):
            seen["ready"] = now
        if "durable" not in seen and any((folder / "lake/_binlane").glob("**/pending/*.parquet")):
            seen["durable"] = now
        if "spark" not in seen and (spark := lines.get("spark_started")):
            seen["spark"] = now
            times = psutil.Process(spark["pid"]).cpu_times()
            seen["java_cpu"] = times.user + times.system
        if "merged" not in seen and any((folder / "lake").glob("*/*/_delta_log/*.json")):
            seen["merged"] = now
        time.sleep(_LOOK_SECONDS)
    return _Start(**seen)


def _is_ready(client: httpx.Client, port: int) -> bool:
    try:
        return client.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _configuration(bootstrap: str, topic: str, conf: Mapping[str, str] | None) -> dict[str, Any]:
    merge = {} if conf is None else {"engine": "spark", "max_age": "1s"}
    return {
        "kafka": {"bootstrap_servers": bootstrap, "group_id": topic, "topics": [topic]},
        "format": "canal",
        "checkpoint": {"directory": "state", "initial": "earliest"},
        "http": {"host": "127.0.0.1", "port": 0},
        "logging": {"level": "info", "format": "json"},
        "tables": [{"match": "*", "handlers": [{"type": "spark", "mode": "replica", "merge": merge}]}],
        "spark": {"warehouse": "lake", "ui": False, "conf": dict(conf or {})},
    }


def _middle(starts: list[_Start]) -> _Start:
    told = {name: [getattr(each, name) for each in starts] for name in vars(starts[0])}
    return _Start(**{name: statistics.median(each) for name, each in told.items() if None not in each})


def _import_seconds() -> float:
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)
