"""The journal of a running worker: one unit for each moved partition, at each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from handlers.logs import get_logger
from offsets.journal import Entry, Journal, JournalError
from offsets.types import Checkpoint
from worker.configuration import Configuration
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment

log = get_logger("journal")

_STORE = "journal"  # as a label of binlane_commits_total


def journal_of(configuration: Configuration) -> Journal | None:
    """Return the journal beside the group's checkpoints, or None if none is configured."""
    rule = configuration.checkpoint.journal
    if rule is None:
        return None
    return Journal(
        configuration.checkpoint.directory / "journal",
        configuration.kafka.group_id,
        flush=rule.flush,
        max_age=rule.max_age,
        max_bytes=rule.max_bytes,
    )


class Journaling:
    """Writes each checkpoint to the journal. An error is logged once, and counted. The entry is left out."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics
        self._failing = False

    def __call__(self, saved: Mapping[Assignment, Checkpoint]) -> None:
        """Add saved checkpoints. One thread at a time. Raises nothing."""
        for assignment in saved:
            assignment.times.latest()  # keeps this place's time for a later checkpoint
        moved = [(a, checkpoint) for a, checkpoint in saved.items() if a.journaled != checkpoint.offset]
        if not moved:
            return
        try:
            self._journal.append(
                Entry(a.partition, checkpoint.offset, _source_ms(a, checkpoint.offset), a.topic_id)
                for a, checkpoint in moved
            )
        except Exception as error:
            self._failed(error)
            return
        for assignment, checkpoint in moved:
            assignment.journaled = checkpoint.offset
        self._metrics.commit(_STORE, "success")
        if self._failing:
            self._failing = False
            log.info("journal_works_again", folder=str(self._journal.folder))

    def _failed(self, error: Exception) -> None:
        self._metrics.commit(_STORE, "failure")
        if self._failing:
            return
        self._failing = True
        told = str(error) if isinstance(error, JournalError) else repr(error)
        log.error(
            "journal_failed",
            error=told,
            hint="checkpoints are still saved, but `checkpoint set --time` and `show --history` will not "
            "include these",
            exc_info=None if isinstance(error, JournalError) else error,
        )


def _source_ms(of: Assignment, offset: int) -> int | None:
    """Return the source time that no record below `offset` exceeds. None: it is unknown, as for records that
    an earlier worker finished and this one has not read."""
    fetched = of.tracker.next_offset
    return of.times.below(offset) if fetched is not None and offset <= fetched else None
