"""Errors of the last commits, by store: logged, counted, and shown until the store works again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from handlers.logs import get_logger
from offsets.stores.interface import CheckpointError
from offsets.stores.kafka import GroupMovedOn
from worker.attempts.backoff import describe
from worker.observing.metrics import Metrics

log = get_logger("committer")

_TELL_AGAIN_SECONDS = 60.0
"""Seconds until the log repeats an error. While batches wait for a commit, one is tried each second."""


class CommitErrors:
    """One thread at a time changes it, any thread reads it."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._texts: dict[str, str] = {}
        self._told_at: dict[str, float] = {}  # store -> when its error was logged
        self.count = 0
        """Failed commits so far."""

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __contains__(self, store: str) -> bool:
        """Whether the store's last commit failed."""
        return store in self._texts

    @property
    def text(self) -> str | None:
        """All errors; None if there are none."""
        return "; ".join(self._texts.values()) or None

    def replace(self, store: str, text: str) -> None:
        """Set the store's error, which is logged and counted elsewhere. An empty text: no error."""
        self._texts.pop(store, "")
        if text:
            self._texts[store] = text

    def works_again(self, store: str) -> None:
        """The store works again: what failed is now saved, or belonged to revoked partitions."""
        if self._texts.pop(store, ""):
            log.info("checkpoint_works_again", store=store)

    def failed(self, store: str, error: Exception) -> None:
        """Log and count an error of a commit to the store."""
        told = str(error) if isinstance(error, CheckpointError) else describe(error)
        same = self._texts.get(store) == told
        self._texts[store] = told
        self.count += 1
        self._metrics.commit(store, "failure")
        if same and self._clock() < self._told_at[store] + _TELL_AGAIN_SECONDS:
            return
        self._told_at[store] = self._clock()
        # A CheckpointError's text is complete. Any other error needs its place in the code.
        exc_info = None if isinstance(error, CheckpointError) else error
        # In most rebalances of a busy worker, one commit comes too late, and the next one includes it.
        log.log(
            logging.INFO if isinstance(error, GroupMovedOn) else logging.ERROR,
            "checkpoint_failed",
            store=store,
            error=told,
            exc_info=exc_info,
        )
