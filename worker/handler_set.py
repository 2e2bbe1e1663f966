"""The configured handlers: made, opened, closed."""

from __future__ import annotations

from collections.abc import Iterator

from handlers import Handler, HandlerContext
from handlers.registry import create
from worker.backoff import describe
from worker.circuit import Circuit
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.logs import get_logger
from worker.tables import BoundHandler

__all__ = ["HandlerOpenError", "HandlerSet"]

log = get_logger("handlers")


class HandlerOpenError(Exception):
    """A handler's `open` raised."""


class HandlerSet:
    """One object for each configured handler; one for each lane where the class says `per_lane`."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises HandlerTypeError and OptionsError."""
        self._configuration = configuration
        self._of: list[tuple[TableRule, list[BoundHandler]]] = [
            (rule, [self._bind(entry) for entry in rule.handlers]) for rule in configuration.tables
        ]
        self._opened: list[tuple[str, Handler]] = []

    def of(self, rule: TableRule) -> list[BoundHandler]:
        return next(handlers for known, handlers in self._of if known is rule)

    def circuits(self) -> Iterator[tuple[str, Circuit]]:
        """Each configured handler's name and what is known of its target."""
        for _, handlers in self._of:
            for bound in handlers:
                yield bound.name, bound.circuit

    def open(self) -> None:
        """Open every handler. Raises HandlerOpenError; those opened before are closed again by `close`."""
        for _, handlers in self._of:
            for bound in handlers:
                for lane, handler in enumerate(bound.objects):
                    try:
                        handler.open(self._context(bound.name, handler, lane))
                    except Exception as error:
                        raise HandlerOpenError(
                            f"handler {bound.name} could not open: {describe(error)}"
                        ) from error
                    self._opened.append((bound.name, handler))

    def close(self) -> bool:
        """Close what was opened, in reverse; False if one of them raised."""
        clean = True
        while self._opened:
            name, handler = self._opened.pop()
            try:
                handler.close()
            except Exception as error:
                clean = False
                log.error("handler_close_failed", handler=name, error=describe(error), exc_info=error)
        return clean

    def _bind(self, entry: HandlerEntry) -> BoundHandler:
        first = create(entry, self._configuration.folder)
        more = self._configuration.lanes.count - 1 if first.per_lane else 0
        others = [create(entry, self._configuration.folder) for _ in range(more)]
        return BoundHandler(entry.name, (first, *others))

    def _context(self, name: str, handler: Handler, lane: int) -> HandlerContext:
        return HandlerContext(
            worker=self._configuration.name,
            handler=name,
            lane=lane if handler.per_lane else None,
            lanes=self._configuration.lanes.count,
            folder=self._configuration.folder,
            spark=self._configuration.spark,
        )
