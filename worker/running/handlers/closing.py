"""Ending handlers: their time limits, and what happens to slow ones."""

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
"""Seconds. A `close_timeout` beyond a day is a mistake."""


def most_seconds(handlers: Iterable[Handler]) -> float:
    """Return the longest `close_timeout`. An unusable one counts as the default: a handler may use that name
    for something else, for example a property that raises."""
    found = (close_timeout(each) for each in handlers)
    return max((each if waitable(each) else Handler.close_timeout for each in found), default=0.0)


def close_timeout(handler: Handler) -> Any:
    """Return the handler's `close_timeout`, or None if reading it raises."""
    try:
        return handler.close_timeout
    except BaseException:  # a stop continues, whatever it raises
        return None


def waitable(seconds: object) -> bool:
    """Whether it can be a `close_timeout`."""
    return isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_CLOSE  # excludes NaN


def release(opened: OpenHandler, partitions: Collection[tuple[str, int]]) -> None:
    """Notify the handler that these partitions are revoked. Its errors are logged."""
    try:
        opened.release(partitions)
    except BaseException as error:  # SystemExit too
        log.error("handler_release_failed", handler=opened.name, error=describe(error), exc_info=error)


def taken(opened: list[OpenHandler]) -> list[OpenHandler]:
    """Remove and return all entries of the list. Another thread may add or remove entries meanwhile. Each
    entry goes to exactly one of them, and none is lost, unlike with a copy followed by `clear`."""
    found: list[OpenHandler] = []
    with suppress(IndexError):
        while True:
            found.append(opened.pop(0))
    return found


def close_all(opened: list[OpenHandler]) -> bool:
    """Close them. Returns False if one of them raised, or took too long.

    They close in parallel, so none uses up another's time. None continues its work behind batches until the
    others are closed."""
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
