"""Metrics and logs about a handler's marks: skipped changes and recreated topics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from handlers.api import HandlerContext
from handlers.progress.topic_ids import MadeAnew

_METRIC = "binlane_handler_passed_over_total"
_TABLES = 10_000
"""Number of tables whose log state is kept. It is bounded, because a source may keep creating tables."""


class PassingOver:
    """Counts and logs the changes that a handler skips because of its marks. Any thread.

    Some changes come again after a restart or a rebalance, so skipping some is normal. It is logged once
    for each table, and again at each tenfold.
    """

    def __init__(self, context: HandlerContext, log: Any) -> None:
        context.metrics.count(_METRIC, 0, handler=context.handler)  # rate() misses a counter that starts at 2
        self._context = context
        self._log = log
        self._lock = threading.Lock()  # guards the two below
        self._totals: dict[str, int] = {}
        self._told: dict[tuple[str, str, str], None] = {}

    def passed_over(self, table: str, count: int) -> None:
        """Record that `count` changes of a batch were already applied."""
        if not count:
            return
        handler = self._context.handler
        self._context.metrics.count(_METRIC, count, handler=handler)
        with self._lock:
            before = self._totals.pop(table, 0)
            total = self._totals[table] = before + count
            _bound(self._totals)
        if len(str(total)) == len(str(before)) and before:
            return
        self._log.log(
            logging.WARNING if before else logging.INFO,
            "changes_passed_over",
            table=table,
            handler=handler,
            count=total,
            means="the target's marks show that they were applied before; they are not applied again",
        )

    def made_anew(self, table: str, found: Iterable[MadeAnew]) -> None:
        """Log, once for each topic, that the marks of these partitions restarted with a new topic."""
        for each in found:
            told = each.topic, each.former_id, each.topic_id
            with self._lock:
                is_known = told in self._told
                self._told[told] = None
                _bound(self._told)
            if not is_known:
                self._log.warning(
                    "topic_made_anew",
                    topic=each.topic,
                    former_id=each.former_id,
                    topic_id=each.topic_id,
                    table=table,
                    handler=self._context.handler,
                    means="its offsets restart, so marks of the former topic do not cover it: all its "
                    "records are applied to the existing rows",
                )


def _bound(known: dict[Any, Any]) -> None:
    if len(known) > _TABLES:
        del known[next(iter(known))]
