"""A partition's offset at a time: by source time from the journal, otherwise by Kafka's timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from offsets.journal import Found, JournalError, Unit
from offsets.types import TopicPartition
from worker.partitions.positions.stored import Cluster

_YEAR_10000_MS = 253_402_300_800_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def place_at(cluster: Cluster, partition: TopicPartition, moment: datetime) -> tuple[int, str]:
    """Return the next offset to read for a time, and a text about whose time that is and what it means. All
    changes that happened at `moment` or later are from there on, and few earlier ones.

    Raises:
        PositionError: the partition does not exist, or Kafka does not answer.
    """
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
