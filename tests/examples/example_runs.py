"""Runs an example as its README says: `binlane run`, on a sample that play.py has sent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from integration.checkers import Run
from integration.process import WorkerProcess, eventually

from handlers import Change
from worker.configuration import load
from worker.formats.interface import Record, SeparateDDL, Skip
from worker.formats.registry import FormatChoice
from worker.formats.sample import read_samples

__all__ = [
    "EXAMPLES",
    "ROOT",
    "ExampleRun",
    "RunExample",
    "changes_of",
    "configurations",
    "play",
    "sample_of",
    "samples",
]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CANAL_SAMPLE = EXAMPLES / "formats" / "samples" / "canal.jsonl"


def configurations(kind: str = "*") -> list[str]:
    """Of the examples, as `formats/canal`; not what is for Kubernetes."""
    found = [path for path in EXAMPLES.glob(f"{kind}/*.yaml") if path.parent.name != "kubernetes-shop"]
    return sorted(f"{path.parent.name}/{path.stem}" for path in found)


def samples() -> list[Path]:
    return sorted(EXAMPLES.glob("formats/samples/*.jsonl"))


def sample_of(name: str) -> Path:
    """What the example reads."""
    kind, _, own = name.partition("/")
    return EXAMPLES / "formats" / "samples" / f"{own}.jsonl" if kind == "formats" else CANAL_SAMPLE


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run play.py."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "play.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


def changes_of(name: str) -> list[tuple[str, Change]]:
    """(database.table, change) of the example's sample, in the file's order."""
    configuration = load(EXAMPLES / f"{name}.yaml")
    formats = FormatChoice(configuration.format, configuration.json_layout, configuration.debezium)
    found: list[tuple[str, Change]] = []
    for record in _records(name):
        format_ = formats.of(record.topic())
        if isinstance(format_, SeparateDDL) and record.topic() in configuration.kafka.ddl_topics:
            format_.learn(record)
        route = format_.explain(record)
        if not isinstance(route, Skip):
            into: list[Change] = []
            format_.decode(record, into)
            found += [(f"{route.database}.{route.table}", change) for change in into]
    return found


class ExampleRun:
    """One example's worker. Its HTTP port and the place of its state are the test's, the rest is as it is."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.name = f"{path.parent.name}/{path.stem}"
        self.folder = folder
        shutil.copytree(
            path.parent, folder, ignore=shutil.ignore_patterns("*.yaml", "samples", "__pycache__")
        )
        config: dict[str, Any] = yaml.safe_load(path.read_text())
        config["http"] = {"host": "127.0.0.1", "port": 0}
        config["checkpoint"] = {"interval": "200ms", "directory": str(folder / "state")}
        config["logging"] = {"format": "json"}
        self.worker = WorkerProcess(folder, config, Run(folder / "no-events"))

    def start(self) -> None:
        self.worker.start(within=60)
        count = len(_records(self.name))
        eventually(lambda: self._committed() == count, within=60, what=f"{count} records finished")

    def stop(self) -> None:
        """Drain it, as SIGTERM does: files get their names."""
        assert self.worker.sigterm() == 0, self.worker.tail()

    def close(self) -> None:
        if self.worker.process is not None and self.worker.process.poll() is None:
            self.worker.kill9()
        print(self.worker.tail(25))  # pytest shows it when the test failed

    def _committed(self) -> int:
        self.worker.alive()
        return sum(each["committed"] or 0 for each in self.worker.status()["partitions"])


RunExample = Callable[..., ExampleRun]


def _records(name: str) -> list[Record]:
    return list(read_samples(sample_of(name), "none"))
