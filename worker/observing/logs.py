"""Logging: one output for the worker's own events and those of libraries (uvicorn, py4j, librdkafka)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from handlers.logs import get_logger
from worker.observing.log_limits import LogLimits
from worker.observing.visible_text import visible

Redact = Callable[[str], str]
Listener = Callable[[str, EventDict], None]

_LEVELS = {"exception": "error", "warn": "warning", "fatal": "critical"}
"""Methods of a logger whose names are not levels."""

# They log every call at level info. Only warnings and errors matter here.
_TALKATIVE = ("py4j", "httpx", "httpcore")

LIMITS = LogLimits()
"""The limits of this process for events that may occur for every record."""

context: ContextVar[Callable[[], dict[str, Any]]] = ContextVar("context", default=dict)
"""Returns the fields of the handler's call in progress, for every event that is logged in this context. An
event's own fields come first. A thread that a handler starts has them if it runs in a copy of the context."""

_listeners: tuple[Listener, ...] = ()


def configure(
    level: str = "info",
    format: Literal["auto", "json", "console"] = "auto",
    stream: TextIO | None = None,
    *,
    redact: Redact | None = None,
) -> None:
    """Log to `stream` (default: standard error) from now on, and nowhere else.

    JSON lines contain `timestamp` (ISO 8601, UTC), `level`, `logger`, `event`, the event's own fields, and
    `exception` if there is one. `auto` means console for a terminal, else JSON. `redact` is applied to every
    text of an event: `Configuration.secrets.redact` removes the configuration's secrets.

    A later call replaces the earlier settings, also for loggers that exist already."""
    stream = sys.stderr if stream is None else stream
    as_json = format == "json" or (format == "auto" and not stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _in_context,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Exceptions become text before secrets are removed, because their messages may contain secrets.
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    if redact is not None:
        last.append(_redacting(redact))
    json = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    last += [_ordered, json] if as_json else [_visible, _console(stream)]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()], processors=last
        )
    )
    least = getattr(logging, level.upper())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(least)
    logging.captureWarnings(capture=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(least, logging.WARNING))
    structlog.configure(
        processors=[
            _heard,
            structlog.stdlib.filter_by_level,
            _limited,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Loggers are created when modules are imported, before the configuration is known.
        cache_logger_on_first_use=False,
    )


def listen(listener: Listener) -> Callable[[], None]:
    """Also pass the worker's own events of every level to `listener`, as (method, event), with their secrets.
    It runs on the logging thread and must be fast. Return a function that removes it."""
    global _listeners  # noqa: PLW0603  # like the settings above: one per process
    _listeners = (*_listeners, listener)

    def end() -> None:
        global _listeners  # noqa: PLW0603
        _listeners = tuple(each for each in _listeners if each is not listener)

    return end


def tell_left_out(*, all_of_it: bool = False) -> None:
    """Log a summary of omitted lines. Call it regularly. `all_of_it`: include the current minute."""
    for fields in LIMITS.due(all_of_it=all_of_it):
        get_logger("logs").warning("lines_left_out", **fields)


def log_unhandled(error: BaseException) -> bool:
    """Log an uncaught exception without secrets. Return False if logging is not configured yet."""
    if not logging.getLogger().handlers:
        return False
    get_logger("binlane").critical("unhandled_error", exc_info=error)
    return True


def _heard(_logger: Any, method: str, event: EventDict) -> EventDict:
    for listener in _listeners:
        with suppress(Exception):  # a listener must not prevent logging
            listener(method, event)
    return event


def _in_context(_logger: Any, _method: str, event: EventDict) -> EventDict:
    for key, value in context.get()().items():
        event.setdefault(key, value)
    return event


def _limited(_logger: Any, method: str, event: EventDict) -> EventDict:
    if not LIMITS.admit(_LEVELS.get(method, method), event):
        raise structlog.DropEvent
    return event


def _ordered(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Put what happened before its details, because people read the lines too."""
    first = ("timestamp", "level", "logger", "event")
    return {key: event[key] for key in first if key in event} | dict(event)


def _visible(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escape control characters: texts of records and errors may contain terminal commands."""
    return {
        key: visible(value, lines=True) if isinstance(value, str) else value for key, value in event.items()
    }


def _console(stream: TextIO) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=stream.isatty(),
        pad_event_to=30,
        # The exception is already text.
        exception_formatter=structlog.dev.plain_traceback,
    )


def _redacting(redact: Redact) -> Processor:
    def processor(_logger: Any, _method: str, event: EventDict) -> EventDict:
        return {key: plain(value, redact) for key, value in event.items()}

    return processor


def plain(value: Any, redact: Redact) -> Any:
    """Convert `value` for JSON, and redact its texts. What JSON cannot represent becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): plain(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, redact) for item in value]
    return redact(str(value))
