"""Errors that cross the border between two processes, and those of a process that has ended."""

from __future__ import annotations

import traceback
from functools import lru_cache
from typing import Any, cast

from handlers import PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.failures import AskAgain
from worker.attempts.backoff import text_of
from worker.attempts.steps import ProcessAway
from worker.column_rules.judging import Unmet
from worker.column_rules.plan import ShownBehind
from worker.formats.interface import UndecodableRecord

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


def packed(error: BaseException) -> dict[str, Any]:
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
        cause = None if error.cause is None else packed(error.cause)
        return found | {"done": error.done, "cause": cause}
    return found | {name: getattr(error, name, None) for name in _FIELDS.get(kind, ())}


def unpacked(found: dict[str, Any]) -> Exception:
    """Make an error of the same kind, name and text. Its cause shows the traceback of the other process."""
    made = cast(Any, _class(found["kind"], found["module"], found["name"]))
    text = found["text"]
    match found["kind"]:
        case "partial":
            return PartialFailure(found["done"], None if found["cause"] is None else unpacked(found["cause"]))
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
