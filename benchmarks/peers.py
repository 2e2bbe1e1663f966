"""The JVM peers. They are compiled once. Each run is a process that prints its figures as JSON lines.

Confluent Parallel Consumer is downloaded from a Maven registry. BINLANE_BENCH_DECATON_CLASSPATH is Decaton's
class path, with its dependencies. Without it, Decaton's rows are left out. BINLANE_BENCH_FASTSTREAM_PYTHON is
the Python of an environment with `faststream[confluent]`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.processes import BenchmarkError, child
from handlers.spark.runtime.jars import cache_folder, resolve
from handlers.spark.runtime.versions import find_java

__all__ = [
    "DECATON",
    "FASTSTREAM",
    "PARALLEL_CONSUMER",
    "POLL_LOOP",
    "REACTOR",
    "Peer",
    "PeerFigures",
    "PeerRun",
    "Peers",
    "compiled",
]

_SOURCES = Path(__file__).with_name("peers")
_DECATON_VARIABLE = "BINLANE_BENCH_DECATON_CLASSPATH"
_FASTSTREAM_VARIABLE = "BINLANE_BENCH_FASTSTREAM_PYTHON"
_REACTOR = (
    "io.confluent.parallelconsumer:parallel-consumer-reactor:0.5.3.3",
    "org.slf4j:slf4j-simple:2.0.13",
)
_PARALLEL_CONSUMER = (
    "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3",
    "org.slf4j:slf4j-simple:2.0.13",
)
_JACKSON = ("com.fasterxml.jackson.core:jackson-databind:2.18.2",)


@dataclass(frozen=True)
class Peer:
    name: str
    java_class: str


PARALLEL_CONSUMER = Peer("Parallel Consumer", "ParallelConsumerPeer")
DECATON = Peer("Decaton", "DecatonPeer")
POLL_LOOP = Peer("Java poll loop", "PollLoopPeer")
REACTOR = Peer("Parallel Consumer's reactor", "ReactorPeer")
FASTSTREAM = Peer("FastStream", "faststream_peer")


class PeerFigures(msgspec.Struct, frozen=True):
    """One line of Bench.java. Times from the first record handled to the last; CPU of the whole process."""

    progress: bool
    records: int
    seconds: float
    cpu_seconds: float
    cpu_at_first: float
    rss_kib: int
    slept_seconds: float
    out_of_order: int
    overlaps: int
    peak_parallel: int
    ok: bool = False
    """Every requested record was handled."""

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds else 0.0


class PeerRun:
    """A running peer."""

    def __init__(self, process: subprocess.Popen[bytes], lines: Path, errors: Path) -> None:
        self.process = process
        self._lines = lines
        self._errors = errors

    def latest(self) -> PeerFigures | None:
        """The last printed line."""
        return next(reversed(self.history()), None)

    def history(self) -> list[PeerFigures]:
        """All printed lines."""
        return [
            msgspec.json.decode(line, type=PeerFigures) for line in self._lines.read_bytes().split(b"\n")[:-1]
        ]

    def result(self, limit: float) -> PeerFigures:
        """Wait until the peer ends. Raises BenchmarkError after `limit` seconds or if the peer failed."""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"a peer did not end within {limit:.0f} s") from None
        figures = self.latest()
        if figures is None or figures.progress:
            tail = self._errors.read_text(errors="replace")[-2000:]
            raise BenchmarkError(f"a peer ended with {self.process.returncode} and no result:\n{tail}")
        return figures


class Peers:
    """The peers that can run here. `missing`: name -> why it cannot."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.missing: dict[str, str] = {}
        self._class_paths: dict[Peer, str] = {}
        if not wanted:
            self.missing = {"Parallel Consumer, Decaton": "left out as asked"}
            self._python, self._jackson = None, ""
            return
        kafka = ":".join(str(jar) for jar in resolve(_PARALLEL_CONSUMER, kind="parallel-consumer"))
        jackson = ":".join(str(jar) for jar in resolve(_JACKSON, kind="jackson"))
        for peer in (PARALLEL_CONSUMER, POLL_LOOP):
            self._class_paths[peer] = _with_classes(peer, f"{kafka}:{jackson}")
        if decaton := os.environ.get(_DECATON_VARIABLE):
            self._class_paths[DECATON] = _with_classes(DECATON, f"{decaton}:{jackson}")
        else:
            self.missing[DECATON.name] = f"{_DECATON_VARIABLE} is not set"
        self._jackson = jackson
        self._python = os.environ.get(_FASTSTREAM_VARIABLE)

    def prepare_waiting(self) -> list[Peer]:
        """Return the peers that wait without a thread for each record, where they can run here."""
        found = []
        if self._class_paths:
            reactor = ":".join(str(jar) for jar in resolve(_REACTOR, kind="parallel-consumer-reactor"))
            self._class_paths[REACTOR] = _with_classes(REACTOR, f"{reactor}:{self._jackson}")
            found.append(REACTOR)
        if self._python:
            found.append(FASTSTREAM)
        else:
            self.missing[FASTSTREAM.name] = f"{_FASTSTREAM_VARIABLE} is not set"
        return found

    @property
    def available(self) -> list[Peer]:
        """The peers that handle records in parallel: all but the poll loop."""
        return [peer for peer in (PARALLEL_CONSUMER, DECATON) if peer in self._class_paths]

    def has(self, peer: Peer) -> bool:
        return peer in self._class_paths

    def notes(self) -> list[str]:
        """Return a sentence about each missing peer."""
        return [f"{name} not measured: {why}." for name, why in self.missing.items()]

    def run(
        self, peer: Peer, *, bootstrap: str, topic: str, limit: float, heap: str = "2g", **options: object
    ) -> PeerFigures:
        """Run a peer until it ends, for at most `limit` seconds (and ten for the JVM)."""
        with self.start(
            peer, bootstrap=bootstrap, topic=topic, heap=heap, limit=int(limit), **options
        ) as running:
            return running.result(limit + 10)

    @contextmanager
    def start(
        self, peer: Peer, *, bootstrap: str, topic: str, heap: str = "2g", **options: object
    ) -> Iterator[PeerRun]:
        """Start a peer with options of Bench.java, and kill it at the end."""
        group = options.pop("group", None) or f"{peer.java_class}-{time.time_ns()}"
        given = dict(bootstrap=bootstrap, topic=topic, group=group, **options)
        if peer == FASTSTREAM:
            program = [str(self._python), str(_SOURCES / f"{peer.java_class}.py")]
        else:
            logs = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
            program = [str(find_java().executable), f"-Xmx{heap}", logs]
            program += ["-cp", self._class_paths[peer], peer.java_class]
        command = [*program, *(f"{name}={value}" for name, value in given.items())]
        with tempfile.TemporaryDirectory(prefix="binlane-peer-") as temporary:
            lines, errors = Path(temporary, "lines"), Path(temporary, "errors")
            with (
                lines.open("wb") as out,
                errors.open("wb") as err,
                child(command, stdout=out, stderr=err) as process,
            ):
                yield PeerRun(process, lines, errors)


def _with_classes(peer: Peer, class_path: str) -> str:
    """Return the class path with the peer's own classes."""
    return f"{compiled(('Bench', peer.java_class), class_path)}:{class_path}"


def compiled(names: Sequence[str], class_path: str) -> Path:
    """Return the folder of these classes of benchmarks/peers. Compile them unless they are compiled.

    Raises BenchmarkError if there is no compiler, or if it refuses them.
    """
    sources = [_SOURCES / f"{name}.java" for name in names]
    digest = hashlib.sha256(b"\0".join([class_path.encode(), *(s.read_bytes() for s in sources)]))
    folder = cache_folder() / "benchmark-peers" / f"{names[-1]}-{digest.hexdigest()[:12]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        whole = Path(temporary, "whole")
        command = [_javac(), "--release", "17", "-cp", class_path, "-d", str(whole), *map(str, sources)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if run.returncode:
            raise BenchmarkError(f"{names[-1]}.java does not compile:\n{run.stderr}")
        whole.rename(folder)
    return folder


def _javac() -> str:
    java = find_java()
    beside = java.home / "bin" / "javac"
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise BenchmarkError(
            f"{java.executable} comes without javac, and the peers' runners have to be compiled: "
            "install a JDK (Debian: apt-get install openjdk-17-jdk-headless) or use --no-peers"
        )
    return compiler
