"""The configured handlers: made, opened, changed while the worker runs, closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from handlers import Handler, TargetUnavailable
from handlers.hanging_calls import Bounded, GivenUp
from handlers.loading.registry import BUILT_IN
from handlers.logs import get_logger
from handlers.metrics import NO_METRICS, HandlerMetrics
from worker.attempts.backoff import describe
from worker.attempts.circuit import BoundHandler
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.processes.processes import Processes
from worker.running.open_handlers import (
    LONGEST_CLOSE,
    BoundRule,
    HandlerPlan,
    Making,
    OpenHandler,
    close_all,
    close_timeout,
    most_seconds,
    pairs,
    release,
    statuses,
    taken,
    waitable,
)

log = get_logger("handlers")

OPENING_SECONDS = 10.0
"""Time beyond `start_timeout`, for an `open` with its own limit."""
_LATE_SECONDS = 1.0  # beyond `close_timeout`, for a close with its own limit


class HandlerOpenError(Exception):
    """A handler's `open` raised."""


class TargetOpenError(HandlerOpenError):
    """A built-in handler's `open` raised. The text describes the problem with its target."""


@dataclass(eq=False)
class HandlerSet:
    """One object for each configured handler, or one per lane if the class says `per_lane`.

    The main thread's own, except `of`, `bound` and `statuses`. `open` and `plan` run in a separate thread.
    The main thread waits for it unless the worker stops."""

    configuration: Configuration
    _: KW_ONLY
    fail: Callable[[BaseException], None] | None = None
    """Passed to handlers as `stop_worker`; `metrics` and `partitions` by their own names."""
    metrics: HandlerMetrics = NO_METRICS
    partitions: Callable[[], Collection[tuple[str, int]]] | None = None
    stopping: Callable[[], bool] | None = None
    """Passed to handlers that `open` opens."""
    processes: Processes | None = None
    """None: all handlers are in this process."""

    def __post_init__(self) -> None:
        """Make the configured handlers. Raises HandlerTypeError and OptionsError."""
        self._rules = [
            BoundRule(rule, [self._making(self.configuration, rule).bind(entry) for entry in rule.handlers])
            for rule in self.configuration.tables
        ]
        self._opened: list[OpenHandler] = []
        self._retired: list[BoundHandler] = []
        # The last plan, if it is not adopted yet.
        self._plan = HandlerPlan(self.configuration)
        self._opening: tuple[str, float] = "", 0.0  # the handler, and its deadline
        # Closings of removed handlers that the worker did not wait for, with their deadlines.
        self._late: list[tuple[Bounded[bool], float]] = []
        self._leaving: list[Handler] = []  # being closed, because they are no longer configured
        self._ended = False

    def of(self, rule: TableRule) -> list[BoundHandler]:
        return next(known.bound for known in self._rules if known.rule is rule)

    def bound(self) -> Iterator[BoundHandler]:
        """Yield each configured handler. Any thread."""
        for known in self._rules:
            yield from known.bound

    def statuses(self) -> list[dict[str, Any]]:
        """Return the status of each open handler. Any thread."""
        return statuses(self._opened, self.configuration.secrets.redact)

    def open(self) -> None:
        """Open every handler. Raises HandlerOpenError. `close` then closes those that are open."""
        begun = HandlerPlan(self.configuration, opened=self._opened)
        self._begin_opening(begun)
        self.start_processes()
        for known in self._rules:
            for entry, bound in pairs(known):
                self._open(begun, entry, bound.objects, 0)

    def plan(self, configuration: Configuration) -> HandlerPlan:
        """Make and open the handlers that another configuration adds. Handlers with the same type, name and
        options stay. Nothing else changes yet.

        Raises HandlerTypeError, OptionsError, HandlerOpenError, after closing what was opened. `close` also
        closes the handlers of a plan that is not adopted."""
        self._plan = plan = HandlerPlan(configuration)
        self._begin_opening(plan)
        free = [(entry, bound) for known in self._rules for entry, bound in pairs(known)]
        try:
            for rule in configuration.tables:
                making = self._making(configuration, rule)
                bound = [self._take(plan, making, entry, free) for entry in rule.handlers]
                plan.rules.append(BoundRule(rule, bound))
            self.start_processes(plan.rules)
        except Exception:
            close_all(plan.opened)
            raise
        return plan

    def give_up_plan(self) -> None:
        """Close what the present plan has opened. Handlers that it opens later are closed at once."""
        self._plan.give_up()

    @property
    def opening(self) -> str:
        """The handler whose opening started last."""
        return self._opening[0]

    def adopt(self, plan: HandlerPlan) -> None:
        """Make the planned handlers the configured ones."""
        staying = {id(bound) for known in plan.rules for bound in known.bound}
        self._retired += [bound for bound in self.bound() if id(bound) not in staying]
        for bound, objects in plan.grown:
            bound.objects = (*bound.objects, *objects)
        for known in plan.rules:
            for entry, bound in pairs(known):
                bound.limit.change(entry.limit)
        self._rules = plan.rules
        self.configuration = plan.configuration
        if self.processes is not None:
            self.processes.given.adopt(plan.configuration)
        self._opened += plan.opened
        self._plan = HandlerPlan(plan.configuration)

    def close_retired(self, in_use: Collection[BoundHandler], *, stopped: Callable[[], bool]) -> None:
        """Close the handlers that are no longer configured and not in use. If the worker is `stopped`,
        `close` waits for them."""
        used = {id(bound) for bound in in_use}
        gone = [bound for bound in self._retired if id(bound) not in used]
        for bound in gone:
            self._retired.remove(bound)
            own = [each for each in self._opened if any(each.handler is one for one in bound.objects)]
            self._opened = [each for each in self._opened if each not in own]
            end = time.monotonic() + most_seconds(each.handler for each in own) + _LATE_SECONDS
            leaving = [each.handler for each in own]
            self._leaving += leaving
            closing = Bounded(f"close-left-{bound.name}", partial(close_all, own))
            try:
                closing.unless(stopped)
            except GivenUp:
                self._late.append((closing, end))
            else:
                self._leaving = [each for each in self._leaving if each not in leaving]
                log.info("handler_closed", handler=bound.name)

    @property
    def has_retired(self) -> bool:
        """Whether handlers that are no longer configured wait to be closed."""
        return bool(self._retired)

    @property
    def close_seconds(self) -> float:
        objects = [handler for bound in [*self.bound(), *self._retired] for handler in bound.objects]
        objects += self._leaving
        return most_seconds([*objects, *(each.handler for each in list(self._plan.opened))])

    def release(self, partitions: Collection[tuple[str, int]], seconds: float) -> None:
        """Notify the handlers of revoked partitions, and wait for `seconds`. Any thread. Raises nothing."""
        end = time.monotonic() + seconds
        told = [
            (each, Bounded(f"release-{each.name}", partial(release, each, partitions)))
            for each in list(self._opened)
            if getattr(type(each.handler), "release", None) not in (None, Handler.release)
        ]
        for each, call in told:
            try:
                call.within(end - time.monotonic())
            except TimeoutError as error:
                if seconds > 0:
                    log.warning(
                        "handler_release_timeout",
                        handler=each.name,
                        seconds=round(seconds, 1),
                        error=str(error),
                        hint="it is still working for partitions that another worker may have now",
                    )

    def close(self) -> bool:
        """Close all open handlers. Returns False if one of them raised, or took too long."""
        self._ended = True
        clean = close_all([*taken(self._opened), *taken(self._plan.opened)])
        while self._late:
            closing, end = self._late.pop()
            try:
                clean &= closing.within(end - time.monotonic())
            except TimeoutError as error:
                clean = False
                log.error("handler_close_failed", error=describe(error))
        if self.processes is not None:
            self.processes.close()
        return clean

    def start_processes(self, rules: Sequence[BoundRule] = ()) -> None:
        """Start the child processes, without waiting for them, if these rules (default: the configured ones)
        need them. Raises HandlerOpenError."""
        if self.processes is None:
            return
        try:
            if any(bound.elsewhere for known in rules or self._rules for bound in known.bound):
                self.processes.start()
        except Exception as error:  # also ProcessAway, and a thread that cannot be started
            raise HandlerOpenError(f"lanes.processes cannot be started: {describe(error)}") from error
        finally:
            self.processes.need_no_more()

    def _making(self, configuration: Configuration, rule: TableRule) -> Making:
        return Making(configuration, rule, self.processes)

    def _take(
        self,
        plan: HandlerPlan,
        making: Making,
        entry: HandlerEntry,
        free: list[tuple[HandlerEntry, BoundHandler]],
    ) -> BoundHandler:
        for place, (known, bound) in enumerate(free):
            if known.is_like(entry) and bound.elsewhere is making.elsewhere:
                del free[place]
                self._grow(plan, making, entry, bound)
                return bound
        bound = making.bind(entry)
        self._open(plan, entry, bound.objects, 0)
        return bound

    def _grow(self, plan: HandlerPlan, making: Making, entry: HandlerEntry, bound: BoundHandler) -> None:
        have, wanted = len(bound.objects), plan.configuration.lanes.count
        if not bound.objects[0].per_lane or have >= wanted:
            return
        more = tuple(making.make(entry) for _ in range(wanted - have))
        self._open(plan, entry, more, have)
        plan.grown.append((bound, more))

    def _begin_opening(self, plan: HandlerPlan) -> None:
        self._opening = "", time.monotonic() + plan.configuration.start_timeout

    def _open(
        self, plan: HandlerPlan, entry: HandlerEntry, objects: tuple[Handler, ...], first_lane: int
    ) -> None:
        configuration, opened, end = plan.configuration, plan.opened, self._opening[1]
        self._opening = entry.name, end
        for number, handler in enumerate(objects, first_lane):
            lane = number if handler.per_lane else None
            context = configuration.context_for(
                entry,
                lane=lane,
                lanes=configuration.lanes.count,
                start_timeout=max(0.0, end - time.monotonic()),
                # If a reload's handler cannot be opened, the plan is abandoned, not the worker.
                stopping=self.stopping if opened is self._opened else None,
                stop_worker=self.fail,
                metrics=self.metrics,
                handles=lambda table: self.configuration.handles(entry, table),
                partitions=self.partitions,
            )
            try:
                handler.open(context)
            except (Exception, SystemExit) as error:
                # A stop releases a handler that waits for its target. The start has not failed then.
                if isinstance(error, TargetUnavailable) and context.stopping and context.stopping():
                    raise GivenUp(f"handler {entry.name} was not open yet: {error}") from error
                kind = TargetOpenError if entry.type in BUILT_IN else HandlerOpenError
                raise kind(f"handler {entry.name} could not open: {describe(error)}") from error
            if not waitable(seconds := close_timeout(handler)):
                log.warning(
                    "handler_close_timeout_unusable",
                    handler=entry.name,
                    found=str(seconds),
                    allowed=f"seconds, 0 to {LONGEST_CLOSE:.0f}",
                    used=Handler.close_timeout,
                )
            opened.append(OpenHandler(entry.name, entry.type, lane, handler))
            if self._ended or plan.given_up:  # the known ones were closed meanwhile
                close_all(opened)
                raise GivenUp(f"the wait for handler {entry.name} was given up while it opened")
