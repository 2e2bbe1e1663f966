"""Errors that cross the border between two processes, and those of a process that has ended."""

from __future__ import annotations

import traceback
from functools import lru_cache
from typing import Any, cast

from handlers import PartialFailure, Rejected, StopWorker, TargetUnavailable
from handlers.failures import AskAgain
from worker.attempts.steps import ProcessAway

_KINDS: dict[str, type[Exception]] = {
    "stop": StopWorker,
    "partial": PartialFailure,
    "rejected": Rejected,
    "away": ProcessAway,
    "unavailable": TargetUnavailable,
    "again": AskAgain,
    "other": Exception,
}


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
        "text": _text(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, PartialFailure):
        cause = None if error.cause is None else packed(error.cause)
        return found | {"done": error.done, "cause": cause}
    if isinstance(error, Rejected):
        return found | {"at": error.at}
    if isinstance(error, TargetUnavailable):
        return found | {"retry_after": error.retry_after, "others_go_on": error.others_go_on}
    if isinstance(error, AskAgain):
        return found | {"seconds": error.seconds}
    return found


def unpacked(found: dict[str, Any]) -> Exception:
    """Make an error of the same kind, name and text. Its cause shows the traceback of the other process."""
    made = cast(Any, _class(found["kind"], found["module"], found["name"]))
    text = found["text"]
    error: Exception
    match found["kind"]:
        case "partial":
            return PartialFailure(found["done"], None if found["cause"] is None else unpacked(found["cause"]))
        case "rejected":
            error = made(text, at=found["at"])
        case "unavailable":
            error = made(text, retry_after=found["retry_after"], others_go_on=found["others_go_on"])
        case "away":
            return ProcessAway(text, found["retry_after"])
        case "again":
            return AskAgain(found["seconds"])
        case _:
            error = made(text)
    error.__cause__ = _Traceback(found["traceback"])
    return error


@lru_cache(256)
def _class(kind: str, module: str, name: str) -> type[Exception]:
    # With the constructor of its kind: that of the handler's own class may want anything.
    return type(name, (_KINDS[kind],), {"__module__": module})


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a handler's own error class may fail too
        return ""
