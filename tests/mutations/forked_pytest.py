"""Runs of pytest on copies of the code, each in a process of its own that is forked from one.

That one has loaded what the project depends on, which takes longer than most tests do, and nothing of the
project itself: that is imported from the copy, after the fork.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

__all__ = ["ForkedPytest"]

_LOADED = """
    confluent_kafka.admin hypothesis.stateful httpx jsonschema msgspec numpy.random psycopg pydantic pymysql
    pyspark.sql pytest redis rich.console sortedcontainers sqlalchemy starlette.applications structlog typer
    uvicorn yaml
"""


class _Job(TypedDict):
    folder: str
    arguments: list[str]
    environment: dict[str, str]
    output: str
    seconds: float


class ForkedPytest:
    """The process that forks; one run at a time."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: Path,
        seconds: float,
    ) -> int:
        """pytest's exit code with these arguments in this folder; -9 if it took longer than so many seconds.

        `output`: the file that what it prints is written to."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = _Job(
            folder=str(folder),
            arguments=list(arguments),
            environment=dict(environment),
            output=str(output),
            seconds=seconds,
        )
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


def _serve() -> None:
    for name in _LOADED.split():
        importlib.import_module(name)
    sys.path.remove(str(Path(__file__).parent))
    answers = os.dup(1)
    for line in sys.stdin:
        job: _Job = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            _run(job)
        os.write(answers, f"{_ended(child, job['seconds'])}\n".encode())


def _ended(child: int, seconds: float) -> int:
    """Its exit code. What it has started and left behind is ended with it."""
    end = time.monotonic() + seconds
    found, status = os.waitpid(child, os.WNOHANG)
    while not found:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            found, status = os.waitpid(child, 0)
            break
        time.sleep(0.005)
        found, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _run(job: _Job) -> None:
    os.setsid()
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, opened in ((0, nothing), (1, output), (2, output)):
        os.dup2(opened, number)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    code = 70
    try:
        import pytest

        code = int(pytest.main(job["arguments"]))
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
