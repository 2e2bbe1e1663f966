"""A shell as somebody who follows a page has it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import IO

from spark_sessions import LIGHT_JAVA

__all__ = ["Terminal"]


class Terminal:
    """A shell in the reader's folder, and what runs in it. Only ports are others: these may be taken here."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder = folder
        self._ports = ports
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def text(self, text: str) -> str:
        for port, free in self._ports.items():
            text = text.replace(port, str(free))
        return text

    def type(self, *lines: str) -> str:
        """What the commands print. AssertionError for one that fails."""
        done = subprocess.run(
            self._shell(*lines),
            cwd=self.folder,
            env=self._environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{lines}: {done.stdout}{done.stderr}"
        return done.stdout

    def leave_running(self, *lines: str) -> Path:
        """The file with what they print."""
        said = self.folder / f"said-{len(self._running)}"
        file = said.open("wb")
        process = subprocess.Popen(
            self._shell(*lines),
            cwd=self.folder,
            env=self._environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running.append((process, file))
        return said

    def control_c(self) -> int:
        """Of what was begun last and still runs: its exit code. A terminal sends it to the whole group."""
        process, _ = self._running[-1]
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(60)
        self._running.pop()[1].close()
        return code

    def close(self) -> None:
        for process, file in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            file.close()

    def _shell(self, *lines: str) -> list[str]:
        # exec: the last command gets the signal itself, as in a terminal's foreground.
        *before, last = map(self.text, lines)
        return ["bash", "-ec", "\n".join([*before, f"exec {last}"])]

    def _environment(self) -> dict[str, str]:
        """As after a login: nothing of this process's own environment leads to binlane."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {
            **kept,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONUNBUFFERED": "1",  # a terminal shows each line at once
            "JAVA_TOOL_OPTIONS": LIGHT_JAVA,
            "KAFKA_BOOTSTRAP_SERVERS": self.text("localhost:9092"),  # play.py's default
        }
