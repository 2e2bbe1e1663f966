"""The order in which records of a table in row order count as finished.

A restart repeats unfinished records. A record with rows in several shards is repeated as a whole, including
rows that were handled. Later records of these rows must then be repeated too. Otherwise, a target's last
change of such a row would be an old one. So until all parts of the record are finished, its shards hold back
what they finish after it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.piece_order import AnyRun


class SharedRecord:
    """A record with rows in several shards."""

    __slots__ = ("assignment", "changes", "fronts", "left", "offset", "parts", "run")

    def __init__(self, chunk: Chunk, offset: int, *, parts: int, changes: int) -> None:
        self.assignment = chunk.assignment
        self.run = chunk.run
        self.offset = offset
        self.parts = parts
        self.changes = changes
        """The number of its changes."""
        self.left = parts
        """Parts that some chunk still has, finished or not. Guarded by the lock of `Lanes`."""
        self.fronts: set[int] = set()
        """The shards that have finished their part and hold back nothing before it."""


class _Held(NamedTuple):
    """Offsets that a shard has finished."""

    assignment: Assignment
    run: AnyRun
    offsets: list[int]


class FinishOrder:
    """The order of one table."""

    __slots__ = ("_lock", "_queues", "held_back")

    def __init__(self) -> None:
        # Guards all below: several processors finish parts at the same time.
        self._lock = threading.Lock()
        self._queues: dict[int, deque[_Held | SharedRecord]] = {}  # shard -> what it holds back, in order
        self.held_back = 0
        """Finished records, or parts, that do not count as finished yet."""

    def holds(self, shard: int) -> bool:
        """Whether the shard's next finished records must be held back. Ask on the finishing thread."""
        return shard in self._queues

    def done(
        self, shard: int, chunk: Chunk, messages: Sequence[Record], shared: Mapping[int, SharedRecord]
    ) -> int:
        """The shard has finished these records of the chunk, some `shared` with other shards. Returns how
        many now count as finished."""
        with self._lock:
            # Under the lock, either `forget` is over, or it will find what is queued here.
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
        """Return what a finished record that does not count yet waits for: the first record that several
        shards have not all finished, perhaps itself. None: it is not held back here."""
        with self._lock:
            for queue in self._queues.values():
                if any(_holds(each, assignment, offset) for each in queue):
                    head = queue[0]  # it has unfinished parts, otherwise it would be gone
                    if isinstance(head, SharedRecord):
                        return head.assignment, head.offset
        return None

    def forget(self, gone: set[Assignment]) -> int:
        """Hold nothing back for revoked partitions: their next owners repeat their records. Returns how many
        records of other partitions now count as finished."""
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
        """Finish everything that no longer waits, in these shards and in those that continue as a result."""
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
