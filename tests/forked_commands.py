"""Runs of the command `binlane`, each in a process of its own that is forked from one.

That one has loaded what the commands need, which takes ten times as long as most of them. That they start
without it, too, as users start them: test_cli.py, examples/.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

__all__ = ["forked_binlane"]

_LOADED = ("checkpoint", "check", "dead_letters", "reload")
"""Of worker.commands: else each run of one loads it."""


def forked_binlane(
    arguments: Sequence[object], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`binlane ARGUMENTS` in `folder`, from its entry point to the end of its process; one run at a time.
    `environment`: what is set beside the environment of the tests. Its PYTHONPATH does not replace a module
    that is loaded."""
    return _forks().run([str(each) for each in arguments], folder, environment or {})


@cache
def _forks() -> _Forks:
    """One for all tests of this process."""
    forks = _Forks()
    atexit.register(forks.close)
    return forks


class _Forks:
    """The process that forks. It ends with this one, or when its input is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, arguments: list[str], folder: Path | None, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        where = str(folder or Path.cwd())
        with tempfile.TemporaryDirectory() as temporary:
            files = [f"{temporary}/stdout", f"{temporary}/stderr"]
            request = [arguments, where, {**os.environ, **environment}, files]
            print(json.dumps(request), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            stdout, stderr = (Path(file).read_text("utf-8") for file in files)
        return subprocess.CompletedProcess(["binlane", *arguments], code, stdout, stderr)

    def close(self) -> None:
        self._process.communicate()


def _serve() -> None:
    sys.path[0] = str(Path(__file__).parents[1])
    import importlib

    from binlane.__main__ import main

    for name in _LOADED:
        importlib.import_module(f"worker.commands.{name}")

    answers = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.close(answers)
            arguments, folder, environment, files = json.loads(line)
            opened = [os.open(file, os.O_WRONLY | os.O_CREAT) for file in files]
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *opened)):
                os.dup2(file, number)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            # As with `python -m`: the folder first, then PYTHONPATH.
            sys.path[0:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
            sys.argv = ["binlane", *arguments]
            main()
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    _serve()
