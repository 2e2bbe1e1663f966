"""What a handler tells of its marks: what they passed over, and where a topic was made anew."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from handlers.api import HandlerContext
from handlers.progress.topic_ids import MadeAnew

_METRIC = "binlane_handler_passed_over_total"
_TABLES = 10_000
"""Of which it is remembered what was told; a source may make new ones all the time."""


class PassingOver:
    """Counts what a handler's marks pass over, and tells it. Any thread.

    After a restart or a rebalance some changes come again, so that some are passed over is as it should be:
    it is told once for each table, and again with each tenfold.
    """

    def __init__(self, context: HandlerContext, log: Any) -> None:
        context.metrics.count(_METRIC, 0, handler=context.handler)  # one that begins at 2 shows no increase
        self._context = context
        self._log = log
        self._lock = threading.Lock()  # guards the two below
        self._totals: dict[str, int] = {}
        self._told: dict[tuple[str, str, str], None] = {}

    def passed_over(self, table: str, count: int) -> None:
        """So many changes of a batch were applied before."""
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
            means="the target's marks say that they were applied before; they are not applied again",
        )

    def made_anew(self, table: str, found: Iterable[MadeAnew]) -> None:
        """The marks of these partitions began anew: told once for each topic."""
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
                    means="its offsets begin anew, so marks of the former topic cover nothing of it: all of "
                    "it is applied, upon the rows that are there",
                )


def _bound(known: dict[Any, Any]) -> None:
    if len(known) > _TABLES:
        del known[next(iter(known))]
