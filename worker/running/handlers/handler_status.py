"""Handlers' own status (`Handler.status`), made safe to show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from handlers import Handler
from worker.attempts.backoff import describe
from worker.running.handlers.open_handler import OpenHandler, Told

_ANSWER_SECONDS = 0.5
"""The limit for all of them together, because the worker's own figures must not wait for handlers."""


def statuses(opened: Iterable[OpenHandler], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return `{"handler", "type", ("lane",) ...}` of each handler with a status, without secrets.

    A status that raises becomes `{"error": ...}`. One that hangs becomes its last answer with an `error`.
    Neither may hide the worker's own figures.
    """
    asked = [
        each for each in list(opened) if getattr(type(each.handler), "status", None) is not Handler.status
    ]
    for each in asked:
        each.asking.begin(partial(_told, each.handler, redact))
    end = time.monotonic() + _ANSWER_SECONDS
    found: list[dict[str, Any]] = []
    for each in asked:
        plain = each.asking.answer(end)
        if plain is None:
            continue
        own: dict[str, Any] = {"handler": each.name, "type": each.type}
        if each.lane is not None:
            own["lane"] = each.lane
        found.append(own | {key: value for key, value in plain.items() if key not in own})
    return found


def _told(handler: Handler, redact: Callable[[str], str]) -> Told:
    try:
        told = handler.status()
        return (
            None if told is None else {redact(str(key)): _plain(item, redact) for key, item in told.items()}
        )
    except BaseException as error:
        return {"error": redact(f"its status raised {describe(error)}")}


def _plain(value: Any, redact: Callable[[str], str]) -> Any:
    """Convert `value` for JSON. What JSON cannot represent becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): _plain(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, redact) for item in value]
    return redact(str(value))
