"""A handler's limit: its calls at once, and its rows per second, for all lanes together."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from handlers.failures import AskAgain
from worker.configuration import LimitRule

_Unit = Any  # what waits: a table, or one of its shards


class Limited(AskAgain):
    """The limit allows no call now. The unit waits for its turn, so `seconds` is infinity."""


class Limit:
    """Calls start in the order of the queue, in which tables take turns. Guarded by the lock of `Lanes`.

    `now`: clock time. A call with more rows than a second allows starts when a second's rows are allowed."""

    def __init__(self, rule: LimitRule | None = None) -> None:
        self.rule = rule
        """None: no limit. Any thread may read it."""
        self.waited = 0.0
        """Seconds that ended waits have taken, all together."""
        self.granted: dict[_Unit, int] = {}
        """Units whose wait is over and whose call has not started, with its rows."""
        self._calls = 0
        self._allowed_at = 0.0  # when a second's rows are allowed again
        self._queue: OrderedDict[Any, dict[_Unit, tuple[int, float]]] = OrderedDict()
        """Account of a table, which stays when its rule changes -> its units: the rows of the next call, and
        since when they wait."""

    @property
    def waiting(self) -> int:
        """Return how many units wait. Any thread."""
        return sum(map(len, list(self._queue.values())))

    def change(self, rule: LimitRule | None) -> None:
        if rule != self.rule:
            self.rule, self._allowed_at = rule, 0.0

    def start(self, unit: _Unit, rows: int, now: float) -> bool:
        """Start a call. False: others come first, or the limit is reached."""
        self.grant(now)
        if unit not in self.granted and (self._queue or self._due(rows) > now):
            return False
        self.granted.pop(unit, None)
        self._calls += 1
        rule = self.rule  # read once: a reload may change it meanwhile
        if rule is not None and rule.rows_per_second is not None:
            self._allowed_at = max(self._allowed_at, now) + rows / rule.rows_per_second
        return True

    def ended(self) -> None:
        self._calls -= 1

    def wait(self, unit: _Unit, rows: int, now: float) -> None:
        if unit not in self.granted:
            self._queue.setdefault(unit.account, {}).setdefault(unit, (rows, now))

    def leave(self, unit: _Unit) -> None:
        """The unit's next call is not made, or not yet."""
        self.granted.pop(unit, None)
        units = self._queue.get(unit.account, {})
        if units.pop(unit, None) is not None and not units:
            del self._queue[unit.account]

    def grant(self, now: float) -> tuple[_Unit, float] | None:
        """End waits as far as the limit allows. Return who is next, and when (infinity: after another's
        call)."""
        while self._queue:
            account, units = next(iter(self._queue.items()))
            unit, (rows, since) = next(iter(units.items()))
            if (due := self._due(rows)) > now:
                return unit, due
            self.leave(unit)
            if units:
                self._queue.move_to_end(account)
            self.granted[unit] = rows
            self.waited += now - since
        return None

    def _due(self, rows: int) -> float:
        rule = self.rule or LimitRule()
        if rule.calls is not None and self._calls + len(self.granted) >= rule.calls:
            return math.inf
        if rule.rows_per_second is None:
            return 0.0
        seconds = (rows + sum(self.granted.values())) / rule.rows_per_second
        if seconds > 1 and self.granted:
            return math.inf
        return self._allowed_at + min(seconds, 1.0) - 1.0
