"""A batch of one table on its way through its handlers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from handlers import Batch, Change, Handler
from handlers.api import positions_of
from handlers.rows import borders, with_own_rows
from offsets.stores.interface import CheckpointError
from worker.attempts.retry_and_split import HandlerRun
from worker.attempts.steps import ProcessDied, SetAside
from worker.column_rules.transforms import passed
from worker.configuration import TableRule
from worker.formats.decoding import SMALL
from worker.formats.interface import Record, UndecodableRecord
from worker.units.chunk import Chunk, offset_at, offsets, whole_records
from worker.units.decoded import Elsewhere, Undecodable, decoded
from worker.units.parked import ParkedChanges
from worker.units.table import Table, is_elsewhere
from worker.units.unit import Unit

_NONE: Mapping[int, SetAside] = {}


class Work:
    """A batch of one unit on its way through its handlers: its records, and the progress of each handler."""

    trace: Any
    """Its trace, set by a processor that traces. Otherwise it is not set and not read."""

    def __init__(self, unit: Unit, chunks: list[Chunk], records: int, size: int) -> None:
        self.unit = unit
        self.table: Table = unit.table
        """The table whose handlers get it: the unit's table when the batch started or was last retried."""
        self.ruled_by = unit.table
        """The table whose rules apply to its changes. Unlike `table`, it stays once a part is applied."""
        self.judged_by = unit.table.statement_rules
        """The rules of all tables, to which a statement is subject."""
        self.chunks = chunks
        self.records = records
        self.bytes = size
        self.finished = 0
        """How many of its first records are already finished."""
        self.changes: Sequence[Change] | None = None
        """None until decoded."""
        self.decoded_by: Elsewhere | None = None
        """The child processes that have its rows. None: this one."""
        self.ends: Sequence[int] = ()
        """For each record, the number of changes up to its end."""
        self.runs: list[HandlerRun] = []
        self.continues = False
        """It begins within a transaction that an earlier batch began. Only known for whole transactions."""
        self.shortened = False
        """It was cut to a turn, because other tables wait."""
        self.lent = False
        """A handler given by import path has the rows themselves, and may have modified them."""
        self.tried_again = False
        """It was decoded again because of that: from then on handlers get copies."""
        self.promised = False
        """Its first call decodes it."""
        self.raised: BaseException | None = None
        """The error of its first call, if its child process ended then."""
        self.most_bytes = SMALL
        self.parked = False
        """Some of its records are in files: `load` it first."""
        self.in_file: tuple[Sequence[Change], ParkedChanges] | None = None
        """Changes that were read back, and where they are in a file."""
        self.orders: Mapping[int, SetAside] = _NONE
        """Orders to set records aside, by the record's number. Given while the batch does not run."""

    @property
    def rule(self) -> TableRule:
        return self.unit.table.rule

    @property
    def is_bound(self) -> bool:
        """Whether it goes by the present rules. A reload may have changed them while it waited."""
        table = self.unit.table
        return self.table is table and (self.judged_by is table.statement_rules or not self.chunks[0].alone)

    @property
    def spreads(self) -> bool:
        """Whether it must be distributed over its table's shards instead of handled."""
        return self.unit.shards is not None and not self.chunks[0].alone

    @property
    def total(self) -> int:
        """The number of its changes, once it is decoded."""
        return self.ends[-1] if self.ends else 0

    @classmethod
    def of(cls, unit: Unit, chunks: list[Chunk]) -> Work:
        """Make a batch of these chunks, and count its records and bytes."""
        return cls(unit, chunks, sum(len(c.messages) for c in chunks), sum(c.bytes for c in chunks))

    @property
    def withdrawn(self) -> bool:
        """True if one of its partitions was revoked: what has not started must not start."""
        for chunk in self.chunks:  # noqa: SIM110 - a generator costs more than the loop, for every batch
            if chunk.assignment.closed:
                return True
        return False

    def tables(self) -> list[str]:
        """Return the table, and the others that its statement is about."""
        barriers = [chunk.barrier for chunk in self.chunks if chunk.barrier is not None]
        others = [other.table.label for barrier in barriers for other in barrier.others]
        return [self.unit.table.label, *others]

    def let_go(self) -> None:
        """Forget the frames of its handlers' errors, which would keep its rows in memory."""
        for run in self.runs:
            run.let_go()

    def forget_rows(self) -> None:
        """Decode it again before its next call: many may wait for theirs."""
        if self.decoded_by is not None:
            self.decoded_by.forget(self.changes)
        else:
            self.changes, self.lent, self.parked = None, True, True

    def park(self, changes: Sequence[Change] | None, parked: ParkedChanges | None) -> None:
        """Keep `parked` instead of `changes`, if they still are its own, because its chunks are parked, too.
        Rows that a handler may have modified are dropped."""
        self.parked = True
        if self.decoded_by is not None:
            self.decoded_by.forget(self.changes)
        elif self.lent:
            self.changes = None
        elif parked is not None and self.changes is changes:
            self.changes = parked

    def load(self) -> None:
        """Read parked records back. Raises CheckpointError."""
        try:
            for chunk in self.chunks:
                chunk.load()
            if isinstance(self.changes, ParkedChanges):
                parked, self.changes = self.changes, tuple(self.changes)
                self.in_file = self.changes, parked
        except Exception as error:
            what = f"parked records of {self.unit.table.label} cannot be read: {error}"
            raise CheckpointError(f"{what}; the next start reads them from Kafka") from error
        if self.lent and self.table.elsewhere is None:
            self._decode_again()
        self.parked = False

    def _decode_again(self) -> None:
        # Records that may be skipped were already reported when it was first decoded.
        self.decode(lambda _record, _fault: True, self.most_bytes)
        self.lent, self.tried_again = False, True

    def ordered(self, place: int) -> tuple[int, SetAside] | None:
        """Return the order about the record of the change at `place`, and where that record's changes end."""
        if not self.orders:
            return None
        number = bisect_right(self.ends, place)
        order = self.orders.get(number)
        return None if order is None else (self.ends[number], order)

    def next_order(self, place: int) -> int | None:
        begins = (self.ends[number - 1] for number in self.orders if number)
        return min((begin for begin in begins if begin > place), default=None)

    def stands_at(self) -> set[int]:
        """Return the numbers of the records with which its handlers must continue. Before it is decoded, and
        for a table without handlers: the first unfinished one."""
        if not self.runs:
            return {self.finished}
        return {bisect_right(self.ends, run.done) for run in self.runs if not run.finished}

    def reaches(self, number: int) -> bool:
        """Return whether a handler's next or running call has this record or later ones. Any thread."""
        begin = self.ends[number - 1] if number and self.runs else 0
        return not self.runs or any(begin < end for run in self.runs for end in run.ends[-1:])

    def offsets(self) -> Iterable[tuple[Chunk, int]]:
        """The offset of each record. Reads no file."""
        for chunk in self.chunks:
            for offset in offsets(chunk.messages):
                yield chunk, offset

    def messages(self) -> Iterable[tuple[Chunk, Record]]:
        for chunk in self.chunks:
            for message in chunk.messages:
                yield chunk, message

    def decode(
        self, undecodable: Undecodable, most_bytes: int = SMALL
    ) -> tuple[int, UndecodableRecord] | None:
        """Decode all records. See `decoded`: returns (the place of the record where it ended, the error)."""
        self.most_bytes, self.promised = most_bytes, False
        elsewhere = self._elsewhere
        decode = decoded if elsewhere is None else elsewhere.decoded
        changes, ends, fault = decode(self.chunks, self.ruled_by, undecodable, most_bytes)
        if fault is not None:
            return len(ends), fault
        # A tuple, because handlers share it and must not modify it. For rows see `Table.own_rows`.
        self.changes, self.ends = tuple(changes) if elsewhere is None else changes, ends
        self.decoded_by = elsewhere
        return None

    @property
    def _elsewhere(self) -> Elsewhere | None:
        """The child processes that decode it; None: this process. A handler that stays in the worker does not
        get the transform there. A reload may have removed the transform of a batch that is partly applied."""
        table: Table = self.table
        return None if table.stays and self.ruled_by.rule.transform is not None else table.elsewhere

    def promise(self, most_bytes: int) -> None:
        """Let its first call decode it, too, in its table's child process: one question instead of two."""
        elsewhere: Elsewhere = self.table.elsewhere
        self.most_bytes, self.decoded_by = most_bytes, elsewhere
        self.changes, self.promised = elsewhere.promised(self.chunks, self.ruled_by, most_bytes), True

    def keep_promise(self, undecodable: Undecodable, raised: BaseException | None) -> bool:
        """Return whether that call has decoded it. If not, it must be decoded without a call.

        `raised`: what the call raised: the error of the first attempt, if the process ended then."""
        found = None if self.decoded_by is None else self.decoded_by.kept_promise(self.changes, undecodable)
        self.promised = False
        if found is None:
            self.changes, self.raised = None, raised if isinstance(raised, ProcessDied) else None
            return False
        self.changes, self.ends, _ = found
        return True

    def take_raised(self) -> BaseException | None:
        raised, self.raised = self.raised, None
        return raised

    def batch(self, first: int, end: int, attempt: int) -> Batch:
        """Return the changes from `first` up to `end` as a handler gets them."""
        table = self.table
        if self.lent or self.decoded_by is not self._elsewhere:
            self._decode_again()
        assert self.changes is not None  # it is decoded before its first attempt
        whole = first == 0 and end == len(self.changes)
        changes = given = self.changes if whole else self.changes[first:end]
        if table.own_rows:
            # Its only handler may have the rows themselves. If it fails, they are decoded again.
            if table.sole and not table.by_row and not self.tried_again:
                self.lent = True
            else:
                given = with_own_rows(changes)
        elif table.carried is not None:
            given = table.carried(given, self.chunks, self.ruled_by.rule)
        elif self.decoded_by is not table.elsewhere:
            given = table.elsewhere.carried(given, self.chunks, self.ruled_by.rule)
        assignments = dict.fromkeys(chunk.assignment for chunk in self.chunks)
        return Batch(
            table.label,
            given,
            database=table.database,
            name=table.name,
            attempt=attempt,
            positions=self._positions if whole else positions_of(changes),
            records=self.records if whole else len({(c.topic, c.partition, c.offset) for c in changes}),
            shard=self.unit.shard,
            topic_ids={own.partition.topic: own.topic_id for own in assignments if own.topic_id is not None},
        )

    def call(self, handler: Handler, batch: Batch) -> object:
        """Pass a batch of its changes to a handler, through the transform of its table."""
        transform = None if is_elsewhere(handler) else self.ruled_by.rule.transforming
        return passed(handler, batch, transform, by_row=self.table.by_row)

    def borders(self, first: int, end: int) -> list[int]:
        """Return all places where its changes from `first` up to `end` may be split, with both ends."""
        return borders(self.changes or (), first, end)

    def _positions(self) -> dict[tuple[str, int], tuple[int, int]]:
        positions: dict[tuple[str, int], tuple[int, int]] = {}
        for chunk in self.chunks:
            partition = chunk.assignment.partition
            last = chunk.messages[-1].offset()
            known = positions.get(partition)
            positions[partition] = (known[0] if known else chunk.messages[0].offset(), last)
        return positions

    def finish_changes(self, done: int) -> int:
        """Mark the records as finished whose changes are all among the first `done`. Returns how many now
        count as finished."""
        count = bisect_right(self.ends, done)
        return self.finish_records(self.whole_records(count) if self.table.whole else count)

    def whole_records(self, count: int) -> int:
        """Return how many of the first `count` records precede the transaction that goes on behind them."""
        if not 0 < count < self.records:
            return count
        chunks, behind = self.head(count).chunks, self.unfinished_chunks(count)[0]
        if behind.assignment is not chunks[-1].assignment:
            return count
        return whole_records(chunks, offset_at(behind.messages, 0))

    def finish_records(self, count: int) -> int:
        """Mark the first `count` records as finished. Returns how many now count as finished. A record with
        parts in other shards counts only with its last part."""
        if count <= self.finished:
            return 0
        new = 0
        if self.finished == 0 and count == self.records:
            for chunk in self.chunks:
                new += chunk.finish(chunk.messages)
        else:
            place = 0
            for chunk in self.chunks:
                new += chunk.finish(chunk.messages[max(0, self.finished - place) : max(0, count - place)])
                place += len(chunk.messages)
        self.finished = count
        if count == self.records:  # its processor keeps it until the next batch
            self.in_file = None
            for chunk in self.chunks:
                chunk.in_file = None
        return new

    def head(self, records: int) -> Work:
        taken: list[Chunk] = []
        for chunk in self.chunks:
            if records <= 0:
                break
            taken.append(chunk if len(chunk.messages) <= records else chunk.split(records)[0])
            records -= len(chunk.messages)
        work = Work.of(self.unit, taken)
        work.orders = {at: order for at, order in self.orders.items() if at < work.records}
        return work

    def unfinished_chunks(self, first: int | None = None) -> list[Chunk]:
        """Return the records from `first` on (default: from the first unfinished one), as chunks to queue."""
        skip = self.finished if first is None else first
        left = []
        for chunk in self.chunks:
            count = len(chunk.messages)
            if skip >= count:
                skip -= count
                continue
            left.append(chunk.split(skip)[1] if skip else chunk)
            skip = 0
        return left
