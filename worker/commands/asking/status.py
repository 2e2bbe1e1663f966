"""`binlane status`: show a running worker's status."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import msgspec
from rich.console import Console
from rich.live import Live

from worker.commands.asking.orders import HINT, Unreachable, WorkerConnection, connected
from worker.commands.output import Output
from worker.observing.overview.figures import Rates
from worker.observing.status import WorkerStatus
from worker.terminal.view import LiveView, Snapshot, full_view, summary_line

DEFAULT_URL = "http://localhost:8080"
_POLL_SECONDS = 1.0
_PIPE_WIDTH = 160
_read_status = msgspec.json.Decoder(WorkerStatus).decode


def status(
    target: str = DEFAULT_URL,
    as_json: bool = False,
    watch: bool = False,
    *,
    token: str | None = None,
    ca: Path | None = None,
) -> int:
    """Print what the worker of `target` (CONFIG or URL) is doing; with `watch`, until `q` or Ctrl-C.

    `token`: the worker's `http.token`; `ca`: a PEM file of trusted authorities.

    Returns 0, or 1 if no worker answers (with `watch`: if none answered at the end). Raises
    ConfigurationError."""
    try:
        with connected(target, token=token, ca=ca) as worker:
            if watch:
                return _watch(worker, as_json)
            answer = _ask(worker)
            if as_json:
                _write(answer.body)
            else:
                _console().print(full_view(answer.snapshot, worker.address))
            return 0
    except Unreachable as fault:
        return Output("status").failed(fault)
    except KeyboardInterrupt:
        return 0


@dataclass(frozen=True, slots=True)
class _Answer:
    body: str
    snapshot: Snapshot


def _ask(worker: WorkerConnection) -> _Answer:
    """Fetch the worker's status. Raises Unreachable."""
    response = worker.ask("GET", "api/status")
    if response.status_code != httpx.codes.OK:
        raise Unreachable(f"{worker.address} answered HTTP {response.status_code} to /api/status; {HINT}")
    try:
        found = _read_status(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"{worker.address} is not a binlane worker ({error}); {HINT}") from error
    return _Answer(response.text, Snapshot(found, _clock(response)))


def _clock(response: httpx.Response) -> datetime:
    """Return the worker's clock, so that ages are correct even if this machine's clock is not."""
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


def _watch(worker: WorkerConnection, as_json: bool) -> int:
    console = _console()
    answer = _ask(worker)
    if as_json or not console.is_terminal:
        return _watch_lines(worker, answer, as_json)
    return _watch_screen(console, worker, answer)


def _watch_lines(worker: WorkerConnection, answer: _Answer, as_json: bool) -> int:
    """Print one line for each poll, for pipes and logs. Only Ctrl-C ends it."""
    before: WorkerStatus | None = None
    latest: _Answer | None = answer
    try:
        while True:
            if latest is not None:
                snapshot = latest.snapshot
                line = summary_line(snapshot, Rates.between(before, snapshot.status))
                _write(latest.body if as_json else line)
                before = snapshot.status
            time.sleep(_POLL_SECONDS)
            try:
                latest = _ask(worker)
            except Unreachable as fault:
                Output("status").failed(fault)
                latest = None
    except KeyboardInterrupt:
        return 1 if latest is None else 0


def _watch_screen(console: Console, worker: WorkerConnection, answer: _Answer) -> int:
    snapshot, rates, lost = answer.snapshot, Rates(), None
    try:
        with _keys() as quits, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(LiveView(snapshot, rates, worker.address, lost), refresh=True)
                if quits(_POLL_SECONDS):
                    break
                try:
                    later = _ask(worker).snapshot
                except Unreachable as fault:
                    lost = str(fault)
                    continue
                rates = Rates.between(snapshot.status, later.status)
                snapshot, lost = later, None
    except KeyboardInterrupt:
        pass  # ends the view like q
    return 0 if lost is None else 1


@dataclass
class _Quits:
    """Waits for the key that ends the view."""

    keyboard: bool

    def __call__(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.keyboard:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                # Not sys.stdin.read: select does not see what it buffers.
                keys = os.read(sys.stdin.fileno(), 64)
                if b"q" in keys.lower():
                    return True
                self.keyboard = keys != b""
        return False


@contextmanager
def _keys() -> Iterator[_Quits]:
    """Read single keys without Enter if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield _Quits(keyboard=False)
        return
    settings = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _Quits(keyboard=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def _write(line: str) -> None:
    sys.stdout.write(line.rstrip("\n") + "\n")
    sys.stdout.flush()
