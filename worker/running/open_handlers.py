"""A configuration's handlers: planned, bound to their rules, open, asked for their status, and closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from handlers import Handler
from handlers.hanging_calls import Bounded
from handlers.loading.registry import create, resolve
from handlers.logs import get_logger
from worker.attempts.backoff import describe
from worker.attempts.circuit import BoundHandler
from worker.attempts.limit import Limit
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.observing.logs import plain
from worker.processes.processes import Processes
from worker.processes.stand_in import stand_in

log = get_logger("handlers")

Told = dict[str, Any] | None
_ANSWER_SECONDS = 0.5
"""The limit for all of them together, because the worker's own figures must not wait for handlers."""

LONGEST_CLOSE = 86_400.0
"""Seconds. A `close_timeout` beyond a day is a mistake."""


class _Asking:
    """The calls of one handler's `status`: one at a time. A hanging call is waited for once. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._call: Bounded[Told] | None = None
        self._begun = 0.0
        self._late = False
        self._last: Told = None

    def begin(self, ask: Callable[[], Told]) -> None:
        with self._lock:
            if self._call is None:
                self._call, self._begun, self._late = Bounded("status", ask), time.monotonic(), False

    def answer(self, end: float) -> Told:
        """Return its answer by `end`, or its last answer with an error that it is late."""
        call = self._call
        if call is None:  # another thread has taken the answer
            return self._last
        try:
            told = call.within(0.0 if self._late else end - time.monotonic())
        except TimeoutError as error:
            self._late = True
            place = str(error).partition("; ")[2]
            late = f"its status has not answered for {time.monotonic() - self._begun:.0f} s; {place}"
            return (self._last or {}) | {"error": late}
        with self._lock:
            if self._call is call:
                self._call, self._last = None, told
        return told


class _Ending:
    """`close` waits for each running `release`. None starts after it. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._releases = 0
        self._closed = False

    def release(self, do: Callable[[], object]) -> None:
        with self._changed:
            if self._closed:
                return
            self._releases += 1
        try:
            do()
        finally:
            with self._changed:
                self._releases -= 1
                self._changed.notify_all()

    def close(self, do: Callable[[], object]) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._releases)
        do()


@dataclass(frozen=True, slots=True, eq=False)
class OpenHandler:
    """Made when its `open` has returned."""

    name: str
    type: str
    """As in the configuration."""
    lane: int | None
    """For an object that serves one lane."""
    handler: Handler
    asking: _Asking = field(default_factory=_Asking)
    _ending: _Ending = field(default_factory=_Ending)

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Notify the handler that these partitions are revoked. Raises what it raises."""
        self._ending.release(lambda: self.handler.release(partitions))

    def close(self) -> None:
        """Close the handler after any running `release`, however long that takes. Raises what it raises."""
        self._ending.close(self.handler.close)


def statuses(opened: Iterable[OpenHandler], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return `{"handler", "type", ("lane",) ...}` of each handler with a status, without secrets.

    A status that raises becomes `{"error": ...}`. One that hangs becomes its last answer with an `error`.
    Neither may hide the worker's own figures."""
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
        return None if told is None else {redact(str(key)): plain(item, redact) for key, item in told.items()}
    except BaseException as error:
        return {"error": redact(f"its status raised {describe(error)}")}


def most_seconds(handlers: Iterable[Handler | type[Handler]]) -> float:
    """Return the longest `close_timeout`. An unusable one counts as the default: a handler may use that name
    for something else, for example a property that raises."""
    found = (close_timeout(each) for each in handlers)
    return max((each if waitable(each) else Handler.close_timeout for each in found), default=0.0)


def close_timeout(handler: Handler | type[Handler]) -> Any:
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


@dataclass(slots=True)
class BoundRule:
    """A rule of the configuration with its handlers, by entry."""

    rule: TableRule
    bound: list[BoundHandler]


@dataclass(slots=True)
class HandlerPlan:
    """The handlers of another configuration: those that stay, and new ones, already open."""

    configuration: Configuration
    rules: list[BoundRule] = field(default_factory=list)
    opened: list[OpenHandler] = field(default_factory=list)
    grown: list[tuple[BoundHandler, tuple[Handler, ...]]] = field(default_factory=list)
    """Objects for new lanes."""
    given_up: bool = False
    """Nobody waits for it any more."""

    def give_up(self) -> None:
        """Close what was opened. Handlers that are opened later are closed at once."""
        self.given_up = True
        close_all(self.opened)


def pairs(known: BoundRule) -> Iterator[tuple[HandlerEntry, BoundHandler]]:
    return zip(known.rule.handlers, known.bound, strict=True)


@dataclass(frozen=True)
class Making:
    """Makes the handlers of one rule: in this process, or as stand-ins for those in child processes."""

    configuration: Configuration
    rule: TableRule
    processes: Processes | None

    @cached_property
    def elsewhere(self) -> Processes | None:
        """The child processes that decode the rule's tables, and run those of its handlers that do not stay
        in the worker. One that stays and needs the rows keeps all there. Raises HandlerTypeError."""
        if self.processes is None:
            return None
        decodes = self.rule.transform is None and self.configuration.lanes.order_by == "table"
        stay = any(
            self._stays(entry) and not (decodes and self._kind(entry).asks_for_rows(entry.options))
            for entry in self.rule.handlers
        )
        return None if stay else self.processes

    def _kind(self, entry: HandlerEntry) -> type[Handler]:
        return resolve(entry.type, self.configuration.folder)

    def _stays(self, entry: HandlerEntry) -> bool:
        return self._kind(entry).stays(entry.options)

    def make(self, entry: HandlerEntry) -> Handler:
        """Raises HandlerTypeError and OptionsError."""
        made = create(entry, self.configuration.folder)
        if self.elsewhere is None or self._stays(entry):
            return made
        return stand_in(made, entry, self.elsewhere)

    def bind(self, entry: HandlerEntry) -> BoundHandler:
        """Make the handler of an entry, or one per lane if its class says so. Raises as `make`."""
        first = self.make(entry)
        more = self.configuration.lanes.count - 1 if first.per_lane else 0
        objects = (first, *(self.make(entry) for _ in range(more)))
        return BoundHandler(entry.name, objects, limit=Limit(entry.limit), elsewhere=self.elsewhere)
