"""Handlers told to end: what they may take, and what becomes of those that take longer."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from handlers import Handler
from handlers.hanging_calls import Bounded
from handlers.logs import get_logger
from worker.attempts.backoff import describe
from worker.running.handlers.open_handler import OpenHandler

log = get_logger("handlers")

LONGEST_CLOSE = 86_400.0
"""Seconds: a `close_timeout` beyond a day is a mistake."""


def most_seconds(handlers: Iterable[Handler]) -> float:
    """The longest `close_timeout`. A handler may have given that name to something else; no number, one that
    no clock can wait for, or a property that raises, counts as the usual one."""
    found = (close_timeout(each) for each in handlers)
    return max((each if waitable(each) else Handler.close_timeout for each in found), default=0.0)


def close_timeout(handler: Handler) -> Any:
    """As the handler has it; None when it does not tell."""
    try:
        return handler.close_timeout
    except BaseException:  # a stop goes on, whatever it raises
        return None


def waitable(seconds: object) -> bool:
    """Whether it can be a `close_timeout`."""
    return isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_CLOSE  # not NaN either


def release(opened: OpenHandler, partitions: Collection[tuple[str, int]]) -> None:
    """Tell it that these leave; what it raises is logged."""
    try:
        opened.release(partitions)
    except BaseException as error:  # SystemExit, too
        log.error("handler_release_failed", handler=opened.name, error=describe(error), exc_info=error)


def taken(opened: list[OpenHandler]) -> list[OpenHandler]:
    """All that are in the list, which is empty then. Another thread may add to it or take from it meanwhile:
    each is given to one of both, and none is lost, as by a copy that is followed by `clear`."""
    found: list[OpenHandler] = []
    with suppress(IndexError):
        while True:
            found.append(opened.pop(0))
    return found


def close_all(opened: list[OpenHandler]) -> bool:
    """Close them; False if one of them raised, or took longer than it may.

    Side by side: what one does at its end takes nothing of another's time, and none goes on with what it does
    behind its batches until the others are closed."""
    began = time.monotonic()
    closing = [(each, Bounded(f"close-{each.name}", each.close)) for each in taken(opened)]
    clean = True
    for each, call in closing:
        try:
            call.within(began + most_seconds([each.handler]) - time.monotonic())
        except BaseException as error:
            clean = False
            log.error("handler_close_failed", handler=each.name, error=describe(error), exc_info=error)
    return clean
