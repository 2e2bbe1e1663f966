"""The configured handlers: made, opened, changed while the worker runs, closed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from handlers import Handler, HandlerContext
from handlers.metrics import NO_METRICS, HandlerMetrics
from handlers.registry import create
from worker.backoff import describe
from worker.circuit import Circuit
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.handler_status import OpenHandler, statuses
from worker.logs import get_logger
from worker.tables import BoundHandler

__all__ = ["HandlerOpenError", "HandlerPlan", "HandlerSet"]

log = get_logger("handlers")


class HandlerOpenError(Exception):
    """A handler's `open` raised."""


@dataclass(slots=True)
class _Rule:
    """A rule of the configuration with its handlers, entry by entry."""

    rule: TableRule
    bound: list[BoundHandler]


@dataclass(slots=True)
class HandlerPlan:
    """The handlers of another configuration: those that stay, and new ones that are open already."""

    configuration: Configuration
    rules: list[_Rule] = field(default_factory=list)
    opened: list[OpenHandler] = field(default_factory=list)
    grown: list[tuple[BoundHandler, tuple[Handler, ...]]] = field(default_factory=list)
    """Objects for lanes that are new."""


class HandlerSet:
    """One object for each configured handler; one for each lane where the class says `per_lane`.

    The main thread's own, but for `of`, `circuits` and `statuses`.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        fail: Callable[[BaseException], None] | None = None,
        metrics: HandlerMetrics = NO_METRICS,
    ) -> None:
        """`fail` and `metrics` are what handlers are given as `stop_worker` and `metrics`.

        Raises HandlerTypeError and OptionsError."""
        self._configuration = configuration
        self._fail = fail
        self._metrics = metrics
        self._rules = [
            _Rule(rule, [_bind(configuration, entry) for entry in rule.handlers])
            for rule in configuration.tables
        ]
        self._opened: list[OpenHandler] = []
        self._left: list[BoundHandler] = []

    def of(self, rule: TableRule) -> list[BoundHandler]:
        return next(known.bound for known in self._rules if known.rule is rule)

    def circuits(self) -> Iterator[tuple[str, Circuit]]:
        """Each configured handler's name and what is known of its target."""
        for bound in self._all():
            yield bound.name, bound.circuit

    def statuses(self) -> list[dict[str, Any]]:
        """What each open handler tells of itself. Any thread."""
        return statuses(self._opened, self._configuration.secrets.redact)

    def open(self) -> None:
        """Open every handler. Raises HandlerOpenError; those opened before are closed again by `close`."""
        for known in self._rules:
            for entry, bound in _pairs(known):
                self._open(self._configuration, entry, bound.objects, 0, self._opened)

    def plan(self, configuration: Configuration) -> HandlerPlan:
        """Make and open what another configuration has beside the handlers that are there; they stay where
        type, name and options are the same. Nothing is changed yet.

        Raises HandlerTypeError, OptionsError, HandlerOpenError; what was opened is closed again."""
        plan = HandlerPlan(configuration)
        free = [(entry, bound) for known in self._rules for entry, bound in _pairs(known)]
        try:
            for rule in configuration.tables:
                plan.rules.append(_Rule(rule, [self._take(plan, entry, free) for entry in rule.handlers]))
        except Exception:
            _close(plan.opened)
            raise
        return plan

    def adopt(self, plan: HandlerPlan) -> None:
        """The planned handlers are the configured ones from now on."""
        staying = {id(bound) for known in plan.rules for bound in known.bound}
        self._left += [bound for bound in self._all() if id(bound) not in staying]
        for bound, objects in plan.grown:
            bound.objects = (*bound.objects, *objects)
        self._rules = plan.rules
        self._configuration = plan.configuration
        self._opened += plan.opened

    def close_left(self, in_use: Collection[BoundHandler]) -> None:
        """Close the handlers that are not configured any more, but for those still in use."""
        used = {id(bound) for bound in in_use}
        gone = [bound for bound in self._left if id(bound) not in used]
        for bound in gone:
            self._left.remove(bound)
            own = [each for each in self._opened if any(each.handler is one for one in bound.objects)]
            self._opened = [each for each in self._opened if each not in own]
            _close(own)
            log.info("handler_closed", handler=bound.name)

    @property
    def has_left(self) -> bool:
        """Whether handlers that are not configured any more wait to be closed."""
        return bool(self._left)

    def close(self) -> bool:
        """Close what was opened, in reverse; False if one of them raised."""
        return _close(self._opened)

    def _all(self) -> Iterator[BoundHandler]:
        for known in self._rules:
            yield from known.bound

    def _take(
        self, plan: HandlerPlan, entry: HandlerEntry, free: list[tuple[HandlerEntry, BoundHandler]]
    ) -> BoundHandler:
        configuration = plan.configuration
        for place, (known, bound) in enumerate(free):
            if known == entry:
                del free[place]
                self._grow(plan, entry, bound)
                return bound
        bound = _bind(configuration, entry)
        self._open(configuration, entry, bound.objects, 0, plan.opened)
        return bound

    def _grow(self, plan: HandlerPlan, entry: HandlerEntry, bound: BoundHandler) -> None:
        have, wanted = len(bound.objects), plan.configuration.lanes.count
        if not bound.objects[0].per_lane or have >= wanted:
            return
        more = tuple(create(entry, plan.configuration.folder) for _ in range(wanted - have))
        self._open(plan.configuration, entry, more, have, plan.opened)
        plan.grown.append((bound, more))

    def _open(
        self,
        configuration: Configuration,
        entry: HandlerEntry,
        objects: tuple[Handler, ...],
        first_lane: int,
        opened: list[OpenHandler],
    ) -> None:
        for number, handler in enumerate(objects, first_lane):
            lane = number if handler.per_lane else None
            context = HandlerContext(
                worker=configuration.name,
                handler=entry.name,
                lane=lane,
                lanes=configuration.lanes.count,
                folder=configuration.folder,
                spark=configuration.spark,
                stop_worker=self._fail,
                metrics=self._metrics,
            )
            try:
                handler.open(context)
            except Exception as error:
                raise HandlerOpenError(f"handler {entry.name} could not open: {describe(error)}") from error
            opened.append(OpenHandler(entry.name, entry.type, lane, handler))


def _pairs(known: _Rule) -> Iterator[tuple[HandlerEntry, BoundHandler]]:
    return zip(known.rule.handlers, known.bound, strict=True)


def _bind(configuration: Configuration, entry: HandlerEntry) -> BoundHandler:
    first = create(entry, configuration.folder)
    more = configuration.lanes.count - 1 if first.per_lane else 0
    others = [create(entry, configuration.folder) for _ in range(more)]
    return BoundHandler(entry.name, (first, *others))


def _close(opened: list[OpenHandler]) -> bool:
    """Close them in reverse; False if one of them raised."""
    clean = True
    while opened:
        last = opened.pop()
        try:
            last.handler.close()
        except Exception as error:
            clean = False
            log.error("handler_close_failed", handler=last.name, error=describe(error), exc_info=error)
    return clean
