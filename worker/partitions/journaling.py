"""The journal of positions: one unit for each moved partition at each checkpoint, searched by time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from handlers.logs import get_logger
from offsets.journal import Entry, Found, Journal, JournalError, Unit
from offsets.types import Checkpoint, TopicPartition
from worker.observing.metrics import Metrics
from worker.partitions.stored_positions import Cluster
from worker.units.assigned_partition import Assignment

log = get_logger("journal")

_STORE = "journal"  # as a label of binlane_commits_total
_YEAR_10000_MS = 253_402_300_800_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def place_at(cluster: Cluster, partition: TopicPartition, moment: datetime) -> tuple[int, str]:
    """Return the next offset to read for a time, and a text about whose time that is and what it means. All
    changes that happened at `moment` or later are from there on, and few earlier ones.

    Raises ReadFault: the partition does not exist, or Kafka does not answer."""
    beginning, end = cluster.bounds(partition)
    found, why = _in_journal(cluster, partition, moment)
    if found is not None and found.offset > end:
        why = f"the journal's offset, {found.offset}, is beyond the end"
    elif found is not None and found.offset < beginning:
        return beginning, f"by source time, from the journal: {why}. Kafka has deleted all earlier records"
    elif found is not None:
        return found.offset, f"by source time, from the journal: {why}"
    offset = cluster.at_time(partition, moment)
    if offset is None:
        told = f"no record has a Kafka timestamp at or after {time_text(moment)}, so this is the end"
        return end, f"{told} ({why})"
    told = f"the first record with a Kafka timestamp (not the source's time) at or after {time_text(moment)}"
    return offset, f"{told} ({why})"


def time_text(time: datetime | int) -> str:
    """Format a time as ISO 8601 in UTC. An int is milliseconds since 1970; beyond all years, it stays so."""
    if isinstance(time, int) and not 0 <= time < _YEAR_10000_MS:
        return f"{time} ms"
    moment = _EPOCH + timedelta(milliseconds=time) if isinstance(time, int) else time.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_journal(cluster: Cluster, partition: TopicPartition, moment: datetime) -> tuple[Unit | None, str]:
    """Return the unit to use and what it says, or None and the reason."""
    if cluster.journal is None:
        return None, "there is no journal"
    try:
        # Part of a millisecond is rounded up: its changes may have happened before the moment.
        source_ms = -((_EPOCH - moment) // timedelta(milliseconds=1))
        found: Found = cluster.journal.search(partition, source_ms, cluster.topic_id(partition.topic))
    except JournalError as error:
        return None, str(error)
    match found:
        case Found(None, None):
            return None, "the journal has no source time for it"
        case Found(None, Unit(source_ms=int(first))):
            return None, f"the journal starts later, at {time_text(first)} of source time"
        case Found(Unit(source_ms=int(last)), None):
            return None, f"the journal ends before, at {time_text(last)} of source time"
        case Found(Unit() as lower, Unit() as upper):
            least = f"all earlier changes happened before {time_text(moment)}"
            return lower, f"{least}, and later ones start before offset {upper.offset}"
    raise AssertionError(found)
