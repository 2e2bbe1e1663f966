"""The time of a first run of `make demo`: its set-up, compared with plain pip, and the demo."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_most
from benchmarks.worker_run import binlane_command

__all__ = ["run"]

_ROOT = Path(__file__).resolve().parent.parent
_JARS = "from handlers.spark.runtime.jars import delta_jars, kafka_jars; kafka_jars(); delta_jars()"


def run(context: Context) -> Report:
    """Run each set-up in a fresh clone with empty caches. Java is already installed."""
    report = Report(
        "first_run",
        "A first run of make demo",
        {"step": "Step", "seconds": "s", "cpu": "CPU s"},
    )
    with tempfile.TemporaryDirectory(prefix="binlane-first-run-") as temporary:
        folder = Path(temporary)
        figures = {}
        for step, set_up in (("plain", _plain), ("make", _make)):
            context.say(f"set-up: {step}")
            clone = folder / step
            _call(["git", "clone", "--quiet", str(_ROOT), str(clone)], _ROOT, folder)
            figures[step] = _timed(set_up, clone, folder / f"{step}-home")
    context.say("the demo")
    with tempfile.TemporaryDirectory(prefix="binlane-demo-") as temporary:
        demo = _timed(_demo, Path(temporary), Path.home())
    plain, make = figures["plain"], figures["make"]
    report.row(step="all packages by pip, jars one by one", seconds=plain[0], cpu=plain[1])
    report.row(step="tools/setup.sh run", seconds=make[0], cpu=make[1])
    report.row(step="binlane demo", seconds=demo[0], cpu=demo[1])
    report.goals += [
        at_most(0.5, make[0] / plain[0], "times", "set-up for the demo", "all packages by pip"),
        at_most(60.0, demo[0], "s", "the demo"),
    ]
    report.notes.append("The caches are empty. Java is installed. The times include downloads.")
    return report


def _plain(clone: Path, home: Path) -> None:
    python = str(clone / ".venv/bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _call([sys.executable, "-m", "venv", ".venv"], clone, home)
    _call([*pip, "--require-hashes", "--requirement", "constraints-hashed.txt"], clone, home)
    _call([*pip, "--no-build-isolation", "--editable", "."], clone, home)
    _call([python, "-c", _JARS], clone, home)


def _make(clone: Path, home: Path) -> None:
    _call(["tools/setup.sh", "run"], clone, home)


def _demo(folder: Path, home: Path) -> None:
    _call([binlane_command(), "demo"], folder, home)


def _timed(step: Callable[[Path, Path], None], folder: Path, home: Path) -> tuple[float, float]:
    """Return (seconds, CPU seconds)."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    step(folder, home)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _call(command: list[str | Path], folder: Path, home: Path) -> None:
    """Raises BenchmarkError."""
    home.mkdir(exist_ok=True)
    caches = {name: str(home / name) for name in ("XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR")}
    environment = {**os.environ, **({} if home == Path.home() else {"HOME": str(home), **caches})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
