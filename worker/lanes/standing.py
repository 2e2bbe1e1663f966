"""How many records blocked tables contain, and whether other tables still have room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from worker.lanes.lane import Room
from worker.units.delivery import Delivery
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


class Standing:
    """Sums up the tables that a change or an unavailable target blocks, and those with a batch that has been
    failing for long. Under the lock of `Lanes`, except `keeps_out`."""

    def __init__(self, room: Room, before: float) -> None:
        """`before`: a batch that has been failing since then, or longer, counts as blocked."""
        self.records = 0
        """Their unfinished records: queued, kept and running. With `order_by: row`, those of the blocked
        shards and the records queued behind them, without finished records that other shards hold back."""
        self._room = room
        self._before = before
        self._bytes = 0
        self._lanes: Counter[int] = Counter()  # lane -> records that count against its bound

    def add(self, unit: Unit, works: Mapping[Unit, Work]) -> None:
        """Add a table. `works`: the running and kept batches."""
        standing = [each for each in unit.members() if self._stands(each)]
        if unit not in standing and self._waits(unit, standing):
            standing.append(unit)
        if not standing:
            return
        records = size = done = 0
        for each in standing:
            records += each.records
            size += each.bytes
            if (work := works.get(each)) is not None:
                records += work.records
                size += work.bytes
                done += work.finished
        account = unit.account
        records = min(records, account.records)  # a record with parts in several shards counts once
        self.records += max(0, records - done)
        self._lanes[account.lane] += records
        self._bytes += min(size, account.bytes)

    def keeps_out(self, refused: Delivery | None) -> bool:
        """Whether the refused delivery would not fit even if all other tables were finished."""
        if refused is None:
            return False
        if self._bytes and self._bytes + refused.bytes > self._room.max_bytes:
            return True
        most = self._room.max_records
        return any(
            held and held + records > most
            for held, records in ((self._lanes[lane], new) for lane, new in refused.records.items())
        )

    def _stands(self, unit: Unit) -> bool:
        if unit.state is UnitState.HALTED:
            return True
        return unit.error is not None and (unit.blocked or unit.failing_since <= self._before)

    def _waits(self, unit: Unit, standing: Sequence[Unit]) -> bool:
        """Whether it waits for one of its blocked shards, or for another table of its next statement."""
        if unit.state is not UnitState.WAITING_FOR_OTHERS or not unit.chunks:
            return False
        barrier = unit.chunks[0].barrier
        if standing or barrier is None:
            return bool(standing)
        tables = (barrier.home, *barrier.others)
        return any(self._stands(each) for table in tables for each in table.members())
