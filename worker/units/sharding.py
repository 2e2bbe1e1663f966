"""Distribution of a decoded batch of a table in row order over the table's shards.

The table's own unit only decodes and distributes. So one thread at a time decodes a table, in order. Its
shards are normal units and keep all lanes busy. A shard exists while it has work. A record counts against its
table's home lane until its last row is finished.

Changes that concern the whole table are barriers: DDL, truncate, and a move of a row to another primary key.
So are a row without its whole key, and a record with other key columns than the records before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from handlers import Change
from handlers.rows import shard_of
from worker.formats.interface import Record
from worker.units.chunk import RECORD_OVERHEAD, Chunk, DecodedChunk, lengths, offsets
from worker.units.finish_order import FinishOrder, SharedRecord
from worker.units.table import Table
from worker.units.work import Work

KeyColumns = tuple[str, ...]
_OTHER_RULES: KeyColumns = ("",)
"""Used for records that were distributed under other rules: no key has these columns."""


@dataclass(slots=True)
class Spread:
    """The result of distributing a batch."""

    parts: list[tuple[int, ShardChunk]] = field(default_factory=list)
    """(number of the shard, its chunk), for all records before the first barrier."""
    rest: list[Chunk] = field(default_factory=list)
    """Records from the first barrier on, to be queued again, each barrier alone."""
    records: int = 0
    """Records without changes: they are finished."""
    bytes: int = 0


def spread(work: Work) -> Spread:
    """Distribute a decoded batch, and finish its records without changes. 0.9 us a record."""
    shards, changes = work.unit.shards, work.changes
    assert shards is not None  # only batches of such a table are distributed
    assert changes is not None  # it is decoded
    result = Spread()
    rule = work.table.rule
    if shards.key_columns is not None and shards.rule is not None and not rule.shows_as(shards.rule):
        shards.key_columns = _OTHER_RULES  # a row may have another key now: finish earlier rows first
    shards.rule = rule
    begin = place = 0
    for chunk in work.chunks:
        end = place + len(chunk.messages)
        ends = [each - begin for each in work.ends[place:end]] if begin else work.ends[place:end]
        own = changes[begin : begin + ends[-1]]
        piece = _Piece(chunk, own, ends, work.table)
        if result.rest:
            result.rest += piece.apart(0, barrier=False)
        else:
            first, shards.key_columns = piece.spread(result, shards.key_columns, shards.order)
            if first < len(ends):
                result.rest += piece.apart(first, barrier=True)
        begin, place = begin + ends[-1], end
    return result


@dataclass(slots=True)
class _Piece:
    """The records of one chunk."""

    chunk: Chunk
    changes: Sequence[Change]
    ends: Sequence[int]
    """For each record, the number of `changes` up to its end."""
    table: Table
    """See `DecodedChunk`."""

    def spread(
        self, result: Spread, known: KeyColumns | None, order: FinishOrder
    ) -> tuple[int, KeyColumns | None]:
        """Distribute records up to the first barrier. Returns its place, and the last key columns."""
        chunk, changes = self.chunk, self.changes
        shares: dict[int, tuple[list[Record], list[Change], list[int]]] = {}
        shared: dict[int, SharedRecord] = {}
        empty: list[Record] = []
        first, stop = 0, len(self.ends)
        for place, (message, end) in enumerate(zip(chunk.messages, self.ends, strict=True)):
            if end - first == 1:  # most records: as below, at less cost
                change = changes[first]
                number = shard_of(change)
                columns = change.key_columns or ()
                if (
                    number is None
                    or change.moves_key
                    or (columns is not known and known is not None and columns != known)
                ):
                    stop = place
                    break
                known = columns
                share = shares.get(number)
                if share is None:
                    share = shares[number] = ([], [], [])
                share[0].append(message)
                share[1].append(change)
                share[2].append(len(share[1]))
                first = end
                continue
            own = changes[first:end]
            numbers = _numbers(own, known)
            if numbers is None:
                stop = place
                break
            first = end
            if not own:
                empty.append(message)
                continue
            known = own[0].key_columns or ()
            mine: dict[int, list[Change]] = {}
            for number, change in zip(numbers, own, strict=True):
                mine.setdefault(number, []).append(change)
            if len(mine) > 1:
                offset = message.offset()
                shared[offset] = SharedRecord(chunk, offset, parts=len(mine), changes=len(own))
            for number, rows in mine.items():
                share = shares.setdefault(number, ([], [], []))
                share[0].append(message)
                share[1].extend(rows)
                share[2].append(len(share[1]))
        for number, share in shares.items():
            part = ShardChunk(chunk, *share, table=self.table, shard=number, shared=shared, order=order)
            result.parts.append((number, part))
        if empty:
            result.records += chunk.finish(empty)
            result.bytes += sum(map(len, empty)) + RECORD_OVERHEAD * len(empty)
        return stop, known

    def apart(self, first: int, *, barrier: bool) -> list[Chunk]:
        """Return the records from `first` on, each barrier in its own chunk. `barrier`: the first record is
        one."""
        found: list[Chunk] = []
        whole = DecodedChunk(self.chunk, self.chunk.messages, self.changes, self.ends, table=self.table)
        known: KeyColumns | None = None
        begin = first
        for place in range(first, len(self.ends)):
            start = self.ends[place - 1] if place else 0
            own = self.changes[start : self.ends[place]]
            barrier = barrier or _numbers(own, known) is None
            if not barrier:
                known = own[0].key_columns or () if own else known
                continue
            if place > begin:
                found.append(whole.part(begin, place))
            found.append(alone := whole.part(place, place + 1))
            alone.alone = True
            begin, known, barrier = place + 1, None, False
        if begin < len(self.ends):
            found.append(whole.part(begin, len(self.ends)))
        return found


def _numbers(changes: Sequence[Change], known: KeyColumns | None) -> list[int] | None:
    """Return the shard of each of a record's changes, or None if the record is a barrier."""
    numbers = []
    for change in changes:
        number = shard_of(change)
        if number is None or change.moves_key or (known is not None and (change.key_columns or ()) != known):
            return None
        numbers.append(number)
    return numbers


class ShardChunk(DecodedChunk):
    """A shard's part of the records of a chunk: of each record, the changes that belong to this shard."""

    __slots__ = ("order", "shard", "shared")

    def __init__(
        self,
        like: Chunk,
        messages: Sequence[Record],
        changes: Sequence[Change],
        ends: Sequence[int],
        *,
        table: Table | None,
        shard: int,
        shared: Mapping[int, SharedRecord],
        order: FinishOrder,
    ) -> None:
        """`shared`: offset -> record, for records with parts in other shards."""
        super().__init__(like, messages, changes, ends, table=table)
        self.shard = shard
        self.shared = shared
        self.order = order
        if shared:
            self.bytes = sum(self._sizes())

    def _sizes(self) -> Iterator[int]:
        """Yield the bytes of each part: its share of the record, and the overhead of a record."""
        begin = 0
        for offset, length, end in zip(
            offsets(self.messages), lengths(self.messages), self.ends, strict=True
        ):
            shared = self.shared.get(offset)
            own = length if shared is None else length * (end - begin) // shared.changes
            yield own + RECORD_OVERHEAD
            begin = end

    def part(self, first: int, end: int) -> ShardChunk:
        plain = super().part(first, end)
        own = plain.messages, plain.changes, plain.ends
        return ShardChunk(
            self, *own, table=self.table, shard=self.shard, shared=self.shared, order=self.order
        )

    def rows_of(self, place: int) -> frozenset[int] | None:
        begin = self.ends[place - 1] if place else 0
        return frozenset(change.index for change in self.changes[begin : self.ends[place]])

    def head(self, records: int, size: int) -> int:
        if not self.shared:
            return super().head(records, size)
        for place, own in enumerate(self._sizes()):
            size -= own
            if size < 0 or place >= records:
                return place
        return len(self.messages)

    def _join_changes(self, other: Chunk) -> bool:
        alike = isinstance(other, ShardChunk) and not self.shared and not other.shared
        return alike and super()._join_changes(other)

    def finish(self, messages: Sequence[Record]) -> int:
        if self.shared or self.order.holds(self.shard):
            return self.order.done(self.shard, self, messages, self.shared)
        # In this order: after `forget`, what held it back is gone and was never finished.
        if self.assignment.forgotten:
            return 0
        return super().finish(messages)

    def leave(self) -> tuple[int, int]:
        if not self.shared or self.parked:
            return super().leave()
        return self._counted(-1, when=0)

    def enter(self) -> tuple[int, int]:
        return self._counted(1, when=1) if self.shared else super().enter()

    def _counted(self, step: int, *, when: int) -> tuple[int, int]:
        """Add `step` to the parts of each shared record. Returns the (records, bytes) that count: those of
        the records with `when` parts, and of those that are not shared."""
        records = size = 0
        for offset, length in zip(offsets(self.messages), lengths(self.messages), strict=True):
            shared = self.shared.get(offset)
            if shared is not None:
                shared.left += step
                if shared.left != when:
                    continue
            records += 1
            size += length + RECORD_OVERHEAD
        return records, size
