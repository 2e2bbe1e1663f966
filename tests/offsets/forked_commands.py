"""Runs of the command `binlane`, each in a process of its own that is forked from one.

That one has loaded what the commands need, which takes ten times as long as most of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ForkedCommands"]


class ForkedCommands:
    """The process that forks; one run at a time. It ends with this one, or when its input is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """`binlane ARGUMENTS`, from its entry point to the end of its process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/stdout", f"{folder}/stderr"]
            print(json.dumps([list(arguments), files]), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            stdout, stderr = (Path(file).read_text("utf-8") for file in files)
        return subprocess.CompletedProcess(["binlane", *arguments], code, stdout, stderr)

    def close(self) -> None:
        self._process.communicate()


def _serve() -> None:
    sys.path.remove(str(Path(__file__).parent))
    from binlane.__main__ import main
    from worker.commands import checkpoint  # noqa: F401 - else each run loads it

    answers = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.close(answers)
            arguments, files = json.loads(line)
            opened = [os.open(file, os.O_WRONLY | os.O_CREAT) for file in files]
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *opened)):
                os.dup2(file, number)
            sys.argv = ["binlane", *arguments]
            main()
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    _serve()
