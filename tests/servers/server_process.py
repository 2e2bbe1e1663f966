"""A server of the tests: a process of an unprivileged user, with a folder and a port of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from worker.local import broker_guard
from worker.local.broker_settings import HOST, free_port

__all__ = ["HOST", "PASSWORD", "USER", "ProgramMissing", "ServerError", "ServerProcess"]

USER = "binlane"
PASSWORD = "never-in-an-error"  # tests look for it in what is told and logged

_ACCOUNT = "nobody"  # whose the processes are when the tests run as root, which these servers refuse
_STOP_SECONDS = 20
_POLL_SECONDS = 0.02
_LOG_LINES = 5


class ServerError(RuntimeError):
    """The server cannot start, or does not do as asked; the message says why."""


class ProgramMissing(ServerError):
    """The server's program is not installed; the message says what to install."""


class ServerProcess(ABC):
    """One server on 127.0.0.1. Its port and its data stay the same over `stop`, `kill` and `start`.

    It ends with this process, however this one ends (see `worker.local.broker_guard`), and its folder goes
    with it.
    """

    package: ClassVar[str]
    """Debian's package."""
    quick_stop: ClassVar[signal.Signals] = signal.SIGTERM
    """What ends the server cleanly without waiting for its clients."""
    unprivileged: ClassVar[bool] = True
    """Run by another account than root's, which most servers refuse; False: by that of this process."""
    start_seconds: ClassVar[float] = 60

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"binlane-{self.package}-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._prepared = False
        if os.geteuid() == 0 and self.unprivileged:
            account = pwd.getpwnam(_ACCOUNT)
            os.chown(self.directory, account.pw_uid, account.pw_gid)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client reaches it, with user, password and a database that is always there."""

    @property
    def running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> None:
        """Returns when the server answers. Raises ServerError, ProgramMissing."""
        if self.running:
            return
        try:
            if not self._prepared:
                self.prepare()
                self._prepared = True
            self._spawn(self.command())
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends it cleanly; its clients lose their connections. Nothing happens when it does not run."""
        self._end(self.quick_stop)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends it, and removes its folder."""
        self.stop()
        self._remove()

    def prepare(self) -> None:  # noqa: B027 - not every server has something to do
        """Make the data folder, before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The server in the foreground."""

    @abstractmethod
    def ping(self) -> bool:
        """Whether it serves a client who logs in with PASSWORD. May raise the client's errors."""

    def environment(self) -> dict[str, str]:
        """What `command` gets beside this process's variables."""
        return {}

    def program(self, name: str, *folders: str) -> str:
        """The path of a program, also from folders (globs) outside PATH. Raises ProgramMissing."""
        places = [found for folder in folders for found in _newest_first(folder)]
        found = shutil.which(name, path=os.pathsep.join([*places, *os.get_exec_path(), "/usr/sbin"]))
        if found:
            return found
        raise ProgramMissing(f"{name} is missing: apt-get install {self.package} (tools/setup.sh servers)")

    def run(self, command: list[str]) -> None:
        """Run a program as the server's account, to its end. Raises ServerError."""
        done = subprocess.run(
            self._as_account(command),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            output = (done.stderr + done.stdout).decode(errors="replace")
            raise ServerError(f"{command[0]} failed: {_last_lines(output)}")

    def write(self, name: str, text: str) -> Path:
        """A file of the server's folder, readable for its account alone."""
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        if os.geteuid() == 0:
            owner = self.directory.stat()
            os.chown(path, owner.st_uid, owner.st_gid)
        return path

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def _as_account(self, command: list[str]) -> list[str]:
        return _as_account(command) if self.unprivileged else command

    def _spawn(self, command: list[str]) -> None:
        with self.log_path.open("ab") as log:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", broker_guard.__file__),
                    *(str(_STOP_SECONDS), str(self.directory), *self._as_account(command)),
                ],
                bufsize=0,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
            )
        assert self._guard.stdout is not None
        answer = self._guard.stdout.readline()
        self._guard.stdout.close()
        self._pid = int(answer) if answer else 0

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        last: Exception | None = None
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerError(f"{self.package} ended while it started: {self.last_log_lines()}")
            try:
                if self.ping():
                    return
            except Exception as error:
                last = error
            time.sleep(_POLL_SECONDS)
        told = f"{last or 'no answer'}; {self.last_log_lines()}"
        raise ServerError(f"{self.package} does not answer after {self.start_seconds:g} s: {told}")

    def last_log_lines(self) -> str:
        return _last_lines(self.log_path.read_text(errors="replace")) if self.log_path.exists() else ""

    def _end(self, number: signal.Signals) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        if guard.poll() is None and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
        assert guard.stdin is not None
        try:
            guard.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(BrokenPipeError):
                guard.stdin.write(broker_guard.KEEP)
            guard.wait()
        finally:
            guard.stdin.close()


def _newest_first(folder: str) -> list[str]:
    """The folders that a glob from the root finds, the highest version first."""
    found = map(str, Path("/").glob(folder.lstrip("/")))
    return sorted(
        found, key=lambda path: [int(digits) for digits in re.findall("[0-9]+", path)], reverse=True
    )


def _as_account(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    account = pwd.getpwnam(_ACCOUNT)
    # A change of user makes the kernel forget what the guard asked for: SIGKILL when the guard dies.
    options = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
    return ["setpriv", *options, "--", *command]


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines[:-_LOG_LINES] if "error" in line.lower()]
    return " | ".join(errors[:_LOG_LINES] + lines[-_LOG_LINES:]) or "it says nothing"
