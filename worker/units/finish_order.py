"""In which order the records of a table in row order count as finished.

A restart repeats what is not finished. A record whose rows fall into several shards is repeated whole, with
those of its rows that were handled. What came after them must then come again, too, else the last that a
target hears of such a row is an old state. So until all parts of the record are done, the shards that have a
part of it hold back what they finish behind it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from worker.formats.interface import Record
    from worker.units.apart.piece_order import AnyRun
    from worker.units.assigned_partition import Assignment
    from worker.units.chunk import Chunk


class SharedRecord:
    """A record of whose rows several shards have a part."""

    __slots__ = ("assignment", "changes", "fronts", "left", "offset", "parts", "run")

    def __init__(self, chunk: Chunk, offset: int, *, parts: int, changes: int) -> None:
        self.assignment = chunk.assignment
        self.run = chunk.run
        self.offset = offset
        self.parts = parts
        self.changes = changes
        """How many it holds in all."""
        self.left = parts
        """Parts that are held somewhere, done or not. Guarded by the lock of `Lanes`."""
        self.fronts: set[int] = set()
        """The shards where its part is done and nothing is held back before it."""


class _Held(NamedTuple):
    """Offsets that a shard has done."""

    assignment: Assignment
    run: AnyRun
    offsets: list[int]


class FinishOrder:
    """Of one table."""

    __slots__ = ("_lock", "_queues", "held_back")

    def __init__(self) -> None:
        # Guards all below: several processors finish parts at the same time.
        self._lock = threading.Lock()
        self._queues: dict[int, deque[_Held | SharedRecord]] = {}  # shard -> what it holds back, in order
        self.held_back = 0
        """Records, or parts of them, that are done and do not count as finished yet."""

    def holds(self, shard: int) -> bool:
        """Whether what the shard finishes next must be held back. To be asked where it is finished."""
        return shard in self._queues

    def done(
        self, shard: int, chunk: Chunk, messages: Sequence[Record], shared: Mapping[int, SharedRecord]
    ) -> int:
        """The shard has done these of the chunk's records, some `shared` with other shards. Returns how many
        count as finished by it."""
        with self._lock:
            # Under the lock: `forget` is past it, or has yet to come, and finds what is queued here.
            if chunk.assignment.forgotten:
                return 0
            queue = self._queues.setdefault(shard, deque())
            offsets: list[int] = []
            for message in messages:
                offset = message.offset()
                record = shared.get(offset)
                if record is None:
                    offsets.append(offset)
                    continue
                if offsets:
                    queue.append(_Held(chunk.assignment, chunk.run, offsets))
                    offsets = []
                queue.append(record)
            if offsets:
                queue.append(_Held(chunk.assignment, chunk.run, offsets))
            self.held_back += len(messages)
            return self._advance([shard])

    def held_by(self, assignment: Assignment, offset: int) -> tuple[Assignment, int] | None:
        """What the record waits for that is done and does not count yet: the first record, of several shards,
        that they have not all done, itself perhaps. None: it is not held back here."""
        with self._lock:
            for queue in self._queues.values():
                if any(_holds(each, assignment, offset) for each in queue):
                    head = queue[0]  # it has parts that are not done: else it would have left
                    if isinstance(head, SharedRecord):
                        return head.assignment, head.offset
        return None

    def forget(self, gone: set[Assignment]) -> int:
        """Hold nothing back for partitions that left: they are repeated elsewhere. Returns how many records
        of others count as finished by it."""
        with self._lock:
            for shard, queue in self._queues.items():
                self._queues[shard] = deque(each for each in queue if each.assignment not in gone)
            self.held_back = sum(
                1 if isinstance(each, SharedRecord) else len(each.offsets)
                for queue in self._queues.values()
                for each in queue
            )
            return self._advance(list(self._queues))

    def _advance(self, shards: list[int]) -> int:
        """Finish what nothing is before any more, in these shards and those that go on by it."""
        finished = 0
        while shards:
            shard = shards.pop()
            queue = self._queues.get(shard)
            while queue:
                head = queue[0]
                if isinstance(head, SharedRecord):
                    head.fronts.add(shard)
                    if len(head.fronts) < head.parts:
                        break
                    for front in head.fronts:
                        self._queues[front].popleft()
                    shards += head.fronts - {shard}
                    head.run.finish((head.offset,))
                    self.held_back -= head.parts
                    finished += 1
                else:
                    queue.popleft()
                    head.run.finish(head.offsets)
                    self.held_back -= len(head.offsets)
                    finished += len(head.offsets)
            if not queue:
                self._queues.pop(shard, None)
        return finished


def _holds(each: _Held | SharedRecord, assignment: Assignment, offset: int) -> bool:
    if each.assignment is not assignment:
        return False
    return each.offset == offset if isinstance(each, SharedRecord) else offset in each.offsets
