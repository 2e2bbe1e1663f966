"""How far a partition may be read beyond its first unfinished record."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from handlers.logs import get_logger
from worker.configuration import Configuration
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Run, Stage
from worker.units.assigned_partition import Assignment

log = get_logger("fetcher")

_SLACK = 10
"""A partition is resumed when a tenth of the bound is free, because each pause discards prefetched
records."""


class MaxAhead(Stage):
    """Pauses a partition with too many fetched records after its first unfinished one.

    The flags of records finished behind that one take memory, and their ranges take room in the checkpoint.
    One poll may exceed the bound: fetched records are handled."""

    def __init__(self, pauses: Pauses, most: int) -> None:
        self._pauses = pauses
        self._most = most
        self._passed: dict[Assignment, None] = {}  # partitions with records since the last look

    def adopt(self, now: Configuration) -> None:
        self._most = now.max_ahead

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for run in runs:
            self._passed[run[0]] = None
            yield run

    def between_polls(self, now: float) -> None:
        """Pause the partitions that are too far ahead, and resume those that have advanced."""
        passed, self._passed = self._passed, {}
        beyond = self._pauses.of("max_ahead")
        new = {a for a in passed if a not in beyond and a.tracker.ahead(self._most) >= self._most}
        enough = self._most - self._most // _SLACK
        free = {each for each in beyond if each.tracker.ahead(enough) < enough}
        for assignment in new:
            log.warning(
                "max_ahead_reached",
                partition=str(assignment.partition),
                first_unfinished=assignment.tracker.head,
                max_ahead=self._most,
                hint="the partition is not read until that record is finished: see binlane status",
            )
        for assignment in free:
            log.info("max_ahead_over", partition=str(assignment.partition))
        if new or free:
            self._pauses.single("max_ahead", (beyond | new) - free)

    def revoked(self, gone: Collection[Assignment]) -> None:
        for assignment in gone:
            self._passed.pop(assignment, None)
        self._pauses.single("max_ahead", self._pauses.of("max_ahead").difference(gone))
