"""Records that may not be handled yet: held in their order, with the end of their partition.

They wait for Kafka to accept their assignment's first commit, or for a schema. Held records are not
registered, so they are read again after a restart. After a moment, their partition is paused: then only
records that were already fetched are held. Other partitions are still read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import islice

from handlers.logs import get_logger
from worker.formats.interface import NamesSchemas, Record
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Run, Stage
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("fetcher")

_MOMENT = 0.1
"""Seconds until a waiting partition is paused. Most commits and schemas need less. A pause costs more:
librdkafka may fetch a resumed partition only 1 s later."""
_MOST_RECORDS = 20_000
"""A partition that waits with more is paused at once."""
_PATIENCE = 5.0
"""Seconds that a first commit may take before a warning: a rebalance in progress rejects some commits."""


@dataclass(slots=True)
class _Held:
    records: list[Record]
    end: int | None = None
    """The partition's end, if it is read to its end. Reported after these records."""


@dataclass(eq=False)
class HeldRecords(Stage):
    """The fetcher's own, except `uncommitted_seconds`.

    `commit`: makes another thread send the first commits. `lose`: called with the number of a partition's
    records that cannot be handled, and the reason."""

    pauses: Pauses
    assignments: Assignments
    _: KW_ONLY
    commit: Callable[[], object]
    lose: Callable[[Assignment, int, str], None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._held: dict[Assignment, _Held] = {}
        self._uncommitted: dict[Assignment, float] = {}  # since when they wait for their first commit
        self._since: dict[Assignment, float] = {}  # since when they wait for anything
        self._said = False

    def __bool__(self) -> bool:
        """Whether a partition waits."""
        return bool(self._held or self._uncommitted)

    def assigned(self, added: Collection[Assignment]) -> None:
        self.between_polls(self.clock())

    def revoked(self, gone: Collection[Assignment]) -> None:
        for assignment in gone:
            self._held.pop(assignment, None)
        self.between_polls(self.clock())

    def between_polls(self, now: float) -> None:
        """Request the missing first commits, and pause the partitions that have waited for a moment."""
        before = self._uncommitted
        self._uncommitted = {
            each: before.get(each, now)
            for each in self.assignments.current()
            if not each.may_begin and each.tracker.next_offset is not None
        }
        if self._uncommitted.keys() - before.keys():
            self.commit()
        self._since = {each: self._since.get(each, now) for each in {*self._held, *self._uncommitted}}
        late = {each for each, since in self._since.items() if now - since >= _MOMENT}
        many = {each for each, held in self._held.items() if len(held.records) > _MOST_RECORDS}
        self.pauses.single("held", late | many)
        self._said = self._said and bool(self._uncommitted)
        longest = now - min(self._uncommitted.values(), default=now)
        if not self._said and longest >= _PATIENCE:
            self._said = True
            log.warning(
                "first_commit_missing",
                partitions=sorted(str(each.partition) for each in self._uncommitted),
                seconds=round(longest, 1),
                hint="records of these partitions are not handled until Kafka accepts a commit of their "
                "start offsets: checkpoint_failed has the reason. The commit is retried each second",
            )

    def uncommitted_seconds(self, assignment: Assignment, now: float) -> float:
        """How long it has waited for its first commit; 0 if it does not wait. Any thread."""
        return now - self._uncommitted.get(assignment, now)

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for assignment, own in runs:
            if passed := self.add(assignment, own):
                yield assignment, passed
        if self:
            yield from self.due()

    def add(self, assignment: Assignment, records: list[Record]) -> list[Record]:
        """Take a poll's records of one partition. Returns the first records, in order, that may continue."""
        held = self._held.get(assignment)
        if held is not None:
            held.records += records
            held.end = None
            return []
        count = _ready(assignment, records)
        if count == len(records):
            return records
        self._held[assignment] = _Held(records[count:])
        return records[:count]

    def due(self) -> Iterator[tuple[Assignment, list[Record]]]:
        """Yield the records that may continue now."""
        for assignment, held in list(self._held.items()):
            count = _ready(assignment, held.records)
            if not count:
                continue
            passed = list(islice(held.records, count))
            del held.records[:count]
            yield assignment, passed
        if any(not held.records and held.end is None for held in self._held.values()):
            self._held = {a: held for a, held in self._held.items() if held.records or held.end is not None}

    def holds(self, assignment: Assignment) -> bool:
        return assignment in self._held

    def ended(self, assignment: Assignment, offset: int) -> bool:
        held = self._held.get(assignment)
        if held is None or not held.records:
            return True
        held.end = offset
        return False

    def ends(self) -> list[tuple[Assignment, int]]:
        found = [(a, held.end) for a, held in self._held.items() if not held.records and held.end is not None]
        for assignment, _ in found:
            del self._held[assignment]
        return found

    def flush(self, assignment: Assignment, *, again: bool) -> Iterable[Run]:
        """If the records are not read again, handle those that wait for their first commit: nobody will
        commit it now. Records that name unknown schemas are lost."""
        held = self._held.pop(assignment, None)
        if held is None or again:
            return
        count = _known(assignment, held.records)
        self.lose(assignment, len(held.records) - count, "their schema was unknown")
        if count:
            yield assignment, held.records[:count]


def _ready(assignment: Assignment, records: list[Record]) -> int:
    """Return how many of the first records may be handled."""
    if not assignment.may_begin:
        if assignment.tracker.next_offset is None and records:  # its start is known only now
            assignment.tracker.reach(records[0].offset())
        return 0
    return _known(assignment, records)


def _known(assignment: Assignment, records: list[Record]) -> int:
    """Return how many of the first records have known schemas."""
    format_ = assignment.format
    return format_.ready(records) if isinstance(format_, NamesSchemas) else len(records)
