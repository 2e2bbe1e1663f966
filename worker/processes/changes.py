"""Decoded changes in a child process: the worker knows how many they are, and where each comes from."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from handlers import Change
from worker.attempts.steps import ProcessAway
from worker.configuration import TableRule
from worker.processes.process import Process
from worker.units.chunk import Chunk, offset_at
from worker.units.table import Table


@dataclass(frozen=True, slots=True)
class ChangePlace:
    """What the worker knows of a change."""

    topic: str
    partition: int
    offset: int
    index: int
    op: str
    moves_key: bool


@dataclass(eq=False)
class Held:
    """A batch that a child has decoded. The child may forget it when nobody refers to this object."""

    process: Process
    ticket: int

    def __del__(self) -> None:
        self.process.released.append(self.ticket)


@dataclass(eq=False)
class Reading:
    """A batch that a child decodes, again if the child has ended since."""

    chunks: Sequence[Chunk]
    table: Table
    """The table whose rules apply."""
    most_bytes: int
    compute: Callable[[ChangesElsewhere, bytes], Any]
    """Of `Processes`."""
    promised: bool = True
    """Nothing has decoded it yet."""
    held: Held | None = None
    ends: Sequence[int] = ()
    """For each record, the number of changes up to its end."""
    numbers: Sequence[int] | None = None
    """The index of each change in its record; None: all are 0."""
    passed: Sequence[tuple[int, Any]] = ()
    """The records that were passed over, or passed on with a warning: number and `packed_fault`."""
    joined: Collection[int] = ()
    """Places before which the changes may not be split."""

    def decoded(self, process: Process, found: Mapping[str, Any]) -> None:
        """`found`: the answer of `Batches.decode`, with a ticket."""
        count = sum(len(chunk.messages) for chunk in self.chunks)
        self.held = Held(process, found["ticket"])
        self.ends = range(1, count + 1) if found["ends"] is None else found["ends"]
        self.numbers, self.joined = found["numbers"], found["joined"]
        self.passed, self.promised = found["passed"], False

    def forget(self) -> None:
        self.held = None

    def place(self, place: int) -> ChangePlace:
        left = bisect_right(self.ends, place)
        for chunk in self.chunks:
            if left < len(chunk.messages):
                break
            left -= len(chunk.messages)
        topic, partition = chunk.assignment.partition
        index = 0 if self.numbers is None else self.numbers[place]
        # As far as `handlers.rows.borders` looks: the halves of a key change.
        moves = place in self.joined or place + 1 in self.joined
        op = "insert" if place in self.joined else "delete"
        return ChangePlace(topic, partition, offset_at(chunk.messages, left), index, op, moves)


@dataclass(eq=False)
class ChangesElsewhere(Sequence[Change]):
    """Stands for changes of a batch."""

    reading: Reading
    first: int
    end: int

    @property
    def chunks(self) -> Sequence[Chunk]:
        return self.reading.chunks

    def computed(self, function: Callable[[Sequence[Change]], Any]) -> Any:
        """See `handlers.rows.on_rows`. Raises what the function raises, ProcessDied and ProcessAway."""
        return self.reading.compute(self, pickle.dumps(function))

    def __len__(self) -> int:
        return self.end - self.first

    def __getitem__(self, place: Any) -> Any:
        """An item is a `ChangePlace`: its row is in the child process."""
        own = range(self.first, self.end)[place]
        if isinstance(own, range):
            return ChangesElsewhere(self.reading, own.start, max(own.start, own.stop))
        return self.reading.place(own)


class Carried(tuple[Change, ...]):
    """Changes that the worker has decoded and a child process handles, with their records."""

    chunks: Sequence[Chunk]
    rule: TableRule

    def __new__(cls, changes: Iterable[Change], chunks: Sequence[Chunk], rule: TableRule) -> Self:
        made = super().__new__(cls, changes)
        made.chunks, made.rule = chunks, rule
        return made


def latest_begin(chunks: Iterable[Chunk], trusted_until: Callable[[], float]) -> float:
    """Return until when (CLOCK_MONOTONIC: the machine's) a call with these records may begin. Raises
    ProcessAway if they were withdrawn: they may have waited for their process since the processor looked."""
    if any(chunk.assignment.closed for chunk in chunks):
        raise ProcessAway("a partition was revoked", 0.0)
    return trusted_until()
