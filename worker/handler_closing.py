"""Handlers told to end: what they may take, and what becomes of those that take longer."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from handlers import Handler
from worker.backoff import describe
from worker.ending import Bounded
from worker.handler_status import OpenHandler
from worker.logs import get_logger

__all__ = ["LONGEST_CLOSE", "close_all", "most_seconds", "release", "waitable"]

log = get_logger("handlers")

LONGEST_CLOSE = 86_400.0
"""Seconds: a `close_timeout` beyond a day is a mistake."""


def most_seconds(handlers: Iterable[Handler]) -> float:
    """The longest `close_timeout`. A handler may have given that name to something else; no number, or one
    that no clock can wait for, counts as the usual one."""
    found = (each.close_timeout for each in handlers)
    return max((each if waitable(each) else Handler.close_timeout for each in found), default=0.0)


def waitable(seconds: object) -> bool:
    """Whether it can be a `close_timeout`."""
    return isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_CLOSE  # not NaN either


def release(opened: OpenHandler, partitions: Collection[tuple[str, int]]) -> None:
    """Tell it that these leave; what it raises is logged."""
    try:
        opened.handler.release(partitions)
    except Exception as error:
        log.error("handler_release_failed", handler=opened.name, error=describe(error), exc_info=error)


def close_all(opened: list[OpenHandler]) -> bool:
    """Close them; False if one of them raised, or took longer than it may.

    Side by side: what one does at its end takes nothing of another's time, and none goes on with what it does
    behind its batches until the others are closed."""
    began = time.monotonic()
    closing = [(each, Bounded(f"close-{each.name}", each.handler.close)) for each in opened]
    opened.clear()
    clean = True
    for each, call in closing:
        try:
            call.within(began + most_seconds([each.handler]) - time.monotonic())
        except BaseException as error:
            clean = False
            log.error("handler_close_failed", handler=each.name, error=describe(error), exc_info=error)
    return clean
