"""`binlane status`: what a running worker says of itself."""

from __future__ import annotations

import os
import re
import select
import ssl
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

from worker.observing.status import WorkerStatus
from worker.terminal.rates import Rates
from worker.terminal.view import LiveView, Snapshot, full_view, summary_line

__all__ = ["DEFAULT_URL", "status"]

DEFAULT_URL = "http://localhost:8080"
_POLL_SECONDS = 1.0
_TIMEOUT = httpx.Timeout(3.0, connect=2.0)
_PIPE_WIDTH = 160
_REFUSALS = {httpx.codes.FORBIDDEN, httpx.codes.MISDIRECTED_REQUEST}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class _Unreachable(Exception):
    """The text is one line for the user."""


def status(
    url: str = DEFAULT_URL,
    as_json: bool = False,
    watch: bool = False,
    *,
    token: str | None = None,
    ca: Path | None = None,
) -> int:
    """Print what the worker at `url` is doing; with `watch`, until `q` or Ctrl-C.

    `token` is what the worker may ask for (`http.token`); `ca` a PEM file of the authorities to trust.

    Returns 0, or 1 when there is no worker at that address (with `watch`: when there was none at the end).
    """
    try:
        with _Worker(url, token, ca) as worker:
            if watch:
                return _watch(worker, as_json)
            answer = worker.ask()
            if as_json:
                _write(answer.body)
            else:
                _console().print(full_view(answer.snapshot))
            return 0
    except _Unreachable as fault:
        _complain(str(fault))
        return 1
    except KeyboardInterrupt:
        return 0


@dataclass(frozen=True, slots=True)
class _Answer:
    body: str
    snapshot: Snapshot


class _Worker:
    """A worker's `/api/status`. Raises _Unreachable when `url` cannot be one."""

    def __init__(self, url: str, token: str | None, ca: Path | None) -> None:
        address = url if "://" in url else f"http://{url}"
        try:
            parsed = httpx.URL(address.rstrip("/") + "/api/status")
        except httpx.InvalidURL as error:
            raise _Unreachable(f"{url} is no URL ({error}); an example: {DEFAULT_URL}") from error
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise _Unreachable(f"{url} is no http or https URL; an example: {DEFAULT_URL}")
        self._url = parsed
        shown = parsed.copy_with(username=None, password=None)
        self.address = str(shown).removesuffix("/api/status")
        # A proxy set for the outside world does not lead to this machine.
        trust_env = parsed.host not in _LOOPBACK
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            verify = ssl.create_default_context(cafile=ca) if ca is not None else True
            self._client = httpx.Client(timeout=_TIMEOUT, trust_env=trust_env, headers=headers, verify=verify)
        except OSError as error:
            raise _Unreachable(f"--ca: {ca} holds no certificates in PEM ({error})") from error
        except UnicodeEncodeError:
            raise _Unreachable("the token has characters that no header can hold") from None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self) -> _Answer:
        """Raises _Unreachable."""
        try:
            response = self._client.get(self._url)
        except httpx.TimeoutException as error:
            raise _Unreachable(f"no answer from {self.address} in time; {_HINT}") from error
        except httpx.HTTPError as error:
            reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
            raise _Unreachable(f"no answer from {self.address}: {reason}; {_HINT}") from error
        if response.status_code == httpx.codes.UNAUTHORIZED:
            raise _Unreachable(f"{self.address} asks for another token: set BINLANE_TOKEN to its http.token")
        if response.status_code in _REFUSALS:
            raise _Unreachable(f"{self.address} refused: {response.text.strip()}")
        if response.status_code != httpx.codes.OK:
            raise _Unreachable(f"{self.address} answered HTTP {response.status_code} to /api/status; {_HINT}")
        try:
            found = msgspec.json.decode(response.content, type=WorkerStatus)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Unreachable(f"{self.address} is no binlane worker ({error}); {_HINT}") from error
        return _Answer(response.text, Snapshot(found, _clock(response)))


_HINT = "is the worker running, and is this its http.port?"


def _clock(response: httpx.Response) -> datetime:
    """The worker's clock, so that ages are right when this machine's clock is not."""
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


def _watch(worker: _Worker, as_json: bool) -> int:
    console = _console()
    answer = worker.ask()
    if as_json or not console.is_terminal:
        return _watch_lines(worker, answer, as_json)
    return _watch_screen(console, worker, answer)


def _watch_lines(worker: _Worker, answer: _Answer, as_json: bool) -> int:
    """One line for each poll, for pipes and logs. Ends with Ctrl-C only."""
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
                latest = worker.ask()
            except _Unreachable as fault:
                _complain(str(fault))
                latest = None
    except KeyboardInterrupt:
        return 1 if latest is None else 0


def _watch_screen(console: Console, worker: _Worker, answer: _Answer) -> int:
    snapshot, rates, lost = answer.snapshot, Rates(), None
    try:
        with _keys() as quits, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(LiveView(snapshot, rates, worker.address, lost), refresh=True)
                if quits(_POLL_SECONDS):
                    break
                try:
                    later = worker.ask().snapshot
                except _Unreachable as fault:
                    lost = str(fault)
                    continue
                rates = Rates.between(snapshot.status, later.status)
                snapshot, lost = later, None
    except KeyboardInterrupt:
        pass  # as good an end as q
    return 0 if lost is None else 1


class _Quits:
    """Waits for the key that ends the view."""

    def __init__(self, keyboard: bool) -> None:
        self._keyboard = keyboard

    def __call__(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._keyboard:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                # Not sys.stdin.read: what it takes in advance, select no longer sees.
                keys = os.read(sys.stdin.fileno(), 64)
                if b"q" in keys.lower():
                    return True
                self._keyboard = keys != b""
        return False


@contextmanager
def _keys() -> Iterator[_Quits]:
    """Single keys without Enter, as long as standard input is a terminal."""
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


def _complain(line: str) -> None:
    sys.stderr.write(f"binlane status: {line}\n")
