"""Messages between the worker and its child processes: their form, and the errors and events in them."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec

from handlers import PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.failures import AskAgain
from handlers.logs import get_logger
from handlers.metrics import HandlerMetrics
from worker.attempts.backoff import text_of
from worker.attempts.steps import ProcessAway
from worker.column_rules.expectations import Unmet
from worker.column_rules.plan import ShownBehind
from worker.formats.interface import UndecodableRecord

EVENTS, REQUESTS = b"e", b"r"
"""Kinds of connections. `EVENTS`: the child sends log lines, metrics and errors, and gets no answer."""

_LENGTH = 8
_USUAL = 32 << 10
"""Most messages have fewer bytes, and are received at once."""
_PICKLED = 1 << 63
"""Added to the length of a message that MessagePack cannot represent."""
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode = msgspec.msgpack.Decoder().decode


class Frames:
    """One end of a connection, with each message's length before it. Only one thread may send, and one may
    receive."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.settimeout(None)  # whatever limit a handler has set for all sockets of its process
        self.last = False
        """The message in progress is the last one."""
        self._rest = b""
        """Bytes that have been received behind the last message."""

    def send(self, message: Any) -> None:
        """Raises OSError if the other process has ended, and another error if the message cannot be sent."""
        try:
            data, mark = _encode(message), 0
        except Exception:  # a surrogate in a text, or a number of more than 64 bits
            # Plain values only: the other process may be unable to make an object of a handler's class.
            plain = msgspec.to_builtins(message, enc_hook=str, builtin_types=(bytes,))
            data, mark = pickle.dumps(plain), _PICKLED
        head = (len(data) | mark).to_bytes(_LENGTH)
        # Large data is not copied once more.
        for part in (head + data,) if len(data) <= _USUAL else (head, data):
            self._socket.sendall(part)

    def receive(self) -> Any:
        """Raises EOFError or OSError if the other process has ended."""
        data = self._rest
        while len(data) < _LENGTH:
            data += self._some(_USUAL)
        length = int.from_bytes(data[:_LENGTH])
        end = _LENGTH + (length & ~_PICKLED)
        while len(data) < end:
            data += self._some(end - len(data), socket.MSG_WAITALL)
        self._rest = data[end:]
        body = memoryview(data)[_LENGTH:end]
        return pickle.loads(body) if length & _PICKLED else _decode(body)

    def shut(self) -> None:
        """Let both ends find that it has ended, after what is on its way."""
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def end_requests(self) -> None:
        """Send no more, but receive. The other end finds that by `is_over`. Any thread."""
        self.last = True
        with contextlib.suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def is_over(self) -> bool:
        """Whether the other end sends no more."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _some(self, most: int, flags: int = 0) -> bytes:
        if not (data := self._socket.recv(most, flags)):
            raise EOFError("the other process has ended")
        return data


# ---- errors

_KINDS: dict[str, type[Exception]] = {
    "stop": StopWorker,
    "partial": PartialFailure,
    "rejected": Rejected,
    "away": ProcessAway,
    "unavailable": TargetUnavailable,
    "again": AskAgain,
    "other": Exception,
}
_FIELDS: dict[str, tuple[str, ...]] = {
    "rejected": ("at",),
    "away": ("retry_after",),
    "unavailable": ("retry_after", "others_go_on"),
    "again": ("seconds",),
}
"""Their attributes beside the text."""


class _Traceback(Exception):
    """The cause of an error from a child process. Its text is the traceback there."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed_error(error: BaseException) -> dict[str, Any]:
    """Describe an error for the other process."""
    kind = next((name for name, one in _KINDS.items() if isinstance(error, one)), "other")
    found: dict[str, Any] = {
        "kind": kind,
        "module": type(error).__module__,
        "name": type(error).__name__,
        "text": text_of(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, PartialFailure):
        cause = None if error.cause is None else packed_error(error.cause)
        return found | {"done": error.done, "cause": cause}
    return found | {name: getattr(error, name, None) for name in _FIELDS.get(kind, ())}


def unpacked_error(found: dict[str, Any]) -> Exception:
    """Make an error of the same kind, name and text. Its cause shows the traceback of the other process."""
    made = cast(Any, _class(found["kind"], found["module"], found["name"]))
    text = found["text"]
    match found["kind"]:
        case "partial":
            return PartialFailure(
                found["done"], None if found["cause"] is None else unpacked_error(found["cause"])
            )
        case "away":
            return ProcessAway(text, found["retry_after"])
        case "again":
            return AskAgain(found["seconds"])
    error: Exception = made(text, **{name: found[name] for name in _FIELDS.get(found["kind"], ())})
    error.__cause__ = _Traceback(found["traceback"])
    return error


def packed_fault(fault: UndecodableRecord) -> tuple[Any, ...]:
    """Describe a record's fault for the other process."""
    if isinstance(fault, Unmet):
        return "unmet", *fault.parts()
    return "shown" if isinstance(fault, ShownBehind) else "other", str(fault)


def unpacked_fault(kind: str, *parts: Any) -> UndecodableRecord:
    if kind == "unmet":
        return Unmet(*parts)
    return ShownBehind(parts[0], ()) if kind == "shown" else UndecodableRecord(*parts)


@lru_cache(256)
def _class(kind: str, module: str, name: str) -> type[Exception]:
    # With the constructor of its kind: that of the handler's own class may want anything.
    return type(name, (_KINDS[kind],), {"__module__": module})


# ---- what a child process tells the worker at any time

_METHODS = frozenset({"debug", "info", "warning", "error", "critical"})


class Events:
    """Sends the worker what happens in this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # for one message at a time
        self._frames: Frames | None = None
        self._pid = os.getpid()

    def attach(self, frames: Frames) -> None:
        self._frames = frames

    def send(self, *event: Any) -> None:
        if self._frames is None or self.is_copy:  # a copy's line would end up within one of this process
            return
        # Without the worker, this process ends. A line that cannot be sent must not fail its handler.
        with self._lock, contextlib.suppress(Exception):
            self._frames.send(event)

    @property
    def is_copy(self) -> bool:
        """Whether a handler has forked this process. Its connections belong to the other one."""
        return os.getpid() != self._pid

    # -- HandlerMetrics

    def count(self, metric: str, amount: float = 1, **labels: str) -> None:
        self.send("count", metric, amount, labels)

    def observe(self, metric: str, value: float, **labels: str) -> None:
        self.send("observe", metric, value, labels)

    # -- HandlerContext.stop_worker

    def stop_worker(self, error: BaseException) -> None:
        self.send("stop", packed_error(error))


@dataclass(frozen=True)
class Listener:
    """The worker's end."""

    metrics: HandlerMetrics
    fail: Callable[[BaseException], None]
    """Called with an error that must stop the worker."""
    rebuilt: Callable[[], object]
    """Called when a schema is compiled again."""

    def listen(self, frames: Frames) -> None:
        """Return when the child has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, *rest = frames.receive()
                try:
                    self._take(kind, *rest)
                except Exception as error:  # a child must not stop the worker's listening
                    get_logger("processes").error("event_not_taken", kind=kind, error=str(error))

    def _take(self, kind: str, *rest: Any) -> None:
        match kind:
            case "log":
                name, method, event = rest
                logger = get_logger(name)
                getattr(logger, method if method in _METHODS else "error")(**event)
            case "count":
                metric, amount, labels = rest
                self.metrics.count(metric, amount, **labels)
            case "observe":
                metric, value, labels = rest
                self.metrics.observe(metric, value, **labels)
            case "stop":
                self.fail(unpacked_error(*rest))
            case "rebuilt":
                self.rebuilt()
