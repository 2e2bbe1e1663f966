"""How far a partition may be read beyond its first unfinished record."""

from __future__ import annotations

from collections.abc import Iterable

from handlers.logs import get_logger
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignment

log = get_logger("fetcher")

_SLACK = 10
"""A partition is read again when a tenth of the bound is free: what was fetched ahead is thrown away by each
pause."""


class MaxAhead:
    """Pauses a partition while so many of its records were fetched since the first that is unfinished.

    The flags of what was finished behind that one take memory, and their ranges room in the checkpoint. The
    bound may be passed by one poll: what has been fetched is handled. The fetcher's own.
    """

    def __init__(self, pauses: Pauses, most: int) -> None:
        self._pauses = pauses
        self.most = most
        """Records; may be changed between two polls."""

    def __bool__(self) -> bool:
        """Whether a partition is paused by it."""
        return bool(self._pauses.of("max_ahead"))

    def came(self, assignments: Iterable[Assignment]) -> None:
        """These have brought records."""
        beyond = self._pauses.of("max_ahead")
        new = {a for a in assignments if a not in beyond and a.tracker.ahead(self.most) >= self.most}
        for assignment in new:
            log.warning(
                "max_ahead_reached",
                partition=str(assignment.partition),
                first_unfinished=assignment.tracker.head,
                max_ahead=self.most,
                hint="the partition is not read until that record is finished: see binlane status",
            )
        if new:
            self._pauses.single("max_ahead", beyond | new)

    def look(self) -> None:
        """To be called between two polls: read again what has moved."""
        beyond = self._pauses.of("max_ahead")
        if not beyond:
            return
        enough = self.most - self.most // _SLACK
        free = {each for each in beyond if each.tracker.ahead(enough) < enough}
        for assignment in free:
            log.info("max_ahead_over", partition=str(assignment.partition))
        if free:
            self._pauses.single("max_ahead", beyond - free)

    def left(self, gone: set[Assignment]) -> None:
        """These partitions are not this worker's any more."""
        self._pauses.single("max_ahead", self._pauses.of("max_ahead") - gone)
