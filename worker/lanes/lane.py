"""Parts of `Lanes`: each lane's queue and counters, the remaining room, the timers of waiting units."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from sortedcontainers import SortedDict

from worker.configuration import LanesRule
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Barrier, Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Account, Shard, Unit, UnitState
from worker.units.work import Work

_SPREAD_SHARE = 8
"""Rows as Python objects take about this many times their record's bytes. So rows that wait in shards take
about `max_bytes` more, at most."""


class Lane:
    """One lane's queue, running batch and counters. Guarded by the lock of `Lanes`."""

    def __init__(self, number: int, lock: threading.Lock) -> None:
        self.number = number
        self.condition = threading.Condition(lock)
        self.ready: deque[Unit] = deque()
        self.records = 0
        """Queued and running records of the units whose home is this lane."""
        self.bytes = 0
        self.running: Work | None = None
        """The batch that this lane's processor is running, from any lane."""
        self.since = 0.0
        self.busy_seconds = 0.0
        self.offers = {"queued": 0, "refused": 0}
        """Offers with records for this lane, by result. An offer is accepted or refused as a whole."""
        self.batches = {"finished": 0, "given_back": 0, "halted": 0, "spread": 0}
        """Batches that this lane's processor took, by how they ended."""
        self.finished_records = 0
        """Records that this lane's processor finished. Only that processor writes this."""
        self.manned = True
        """Whether it has a processor. A removed lane keeps its processor until its last batch ends."""

    def count_finished(self, records: int) -> None:
        self.finished_records += records

    def runs(self, work: Work) -> None:
        """Raise RuntimeError unless this lane runs the batch: it has ended, or belongs to another lane."""
        if self.running is not work:
            raise RuntimeError(
                f"lane {self.number} does not run this batch of {work.unit.table.label}, or no longer does"
            )

    def end(self, work: Work, how: str, now: float) -> float:
        """End the batch and return its start time. `how` it ended: see `batches`."""
        self.runs(work)
        self.batches[how] += 1
        self.running = None
        self.busy_seconds += now - self.since
        return self.since

    def works_on(self, gone: set[Assignment]) -> bool:
        """Whether its running batch contains records of these assignments."""
        work = self.running
        return work is not None and any(chunk.assignment in gone for chunk in work.chunks)


class Room:
    """What is queued and running against the bounds, and the delivery that waits for room.

    Guarded by the lock of `Lanes`."""

    def __init__(self, lanes: Sequence[Lane], rule: LanesRule, lock: threading.Lock) -> None:
        self.spread = 0
        """Fetched bytes of the records that are decoded and distributed over shards."""
        self.refused: Delivery | None = None
        """The delivery that did not fit. Nothing more arrives, so no unit may wait for a fuller batch."""
        self._lanes = lanes
        self._space = threading.Condition(lock)  # notified if the refused delivery fits
        self._bytes = 0
        self.bound(rule)

    def bound(self, rule: LanesRule) -> None:
        self.max_records = rule.max_records
        self.max_bytes = rule.max_bytes
        self.look()

    def lacking(self, delivery: Delivery) -> Collection[int]:
        """Return the lanes whose records must leave before the delivery fits."""
        # What is larger than a bound passes alone. Otherwise it would wait forever.
        if self._bytes and self._bytes + delivery.bytes > self.max_bytes:
            return range(len(self._lanes))
        lanes, most = self._lanes, self.max_records
        return [
            number
            for number, records in delivery.records.items()
            if lanes[number].records and lanes[number].records + records > most
        ]

    def fits(self, delivery: Delivery) -> bool:
        return not self.lacking(delivery)

    def take(self, delivery: Delivery) -> bool:
        """Count a delivery. If it does not fit, remember it as refused and return False."""
        if not self.fits(delivery):
            self.refused = delivery
            for number in delivery.records:
                self._lanes[number].offers["refused"] += 1
            return False
        self.refused = None
        for unit, chunk in delivery.parts:
            account, records = unit.account, len(chunk.messages)
            account.records += records
            account.bytes += chunk.bytes
            lane = self._lanes[account.lane]
            lane.records += records
            lane.bytes += chunk.bytes
        self._bytes += delivery.bytes
        for number in delivery.records:
            self._lanes[number].offers["queued"] += 1
        return True

    def is_short(self, lane: int) -> bool:
        """Whether a delivery waits, or more counts than may: parked batches count again when they are
        retried."""
        more = self._bytes >= self.max_bytes or self._lanes[lane].records >= self.max_records
        return more or self.refused is not None

    @property
    def waited_for(self) -> bool:
        """Whether the refused delivery still does not fit."""
        return self.refused is not None and not self.fits(self.refused)

    def wait(self, timeout: float) -> bool:
        """Return True as soon as the refused delivery would fit, or False after `timeout` seconds."""
        return not self.waited_for or self._space.wait(timeout)

    def look(self) -> None:
        """Room was released: notify the waiting thread if the refused delivery fits."""
        if self.refused is not None and self.fits(self.refused):
            self._space.notify_all()

    def stop(self) -> None:
        """Wake the waiting thread without a condition."""
        self._space.notify_all()

    def forget(self) -> None:
        """Forget the refused delivery, because it is not offered again."""
        self.refused = None

    def without(self, gone: set[Assignment]) -> None:
        """Remove the records of revoked partitions from the refused delivery."""
        if self.refused is not None:
            rest = self.refused.without(gone)
            self.refused = rest if rest.parts else None

    def may_spread(self, unit: Unit | None = None) -> bool:
        """Whether more records may be decoded for the shards of this unit's table (None: of any table).

        A table may always have one batch of them, so it never depends on another table that is blocked."""
        if self.spread < self.max_bytes // _SPREAD_SHARE:
            return True
        if unit is None or unit.shards is None:
            return False
        table, shards = unit.table, unit.shards
        return shards.records < table.max_records and shards.bytes < table.max_bytes

    def count_spread(self, shard: Unit, size: int) -> None:
        """Add `size` bytes (negative: remove) to what the table's shards contain, if this is a shard."""
        if isinstance(shard, Shard) and shard.whole.shards is not None:
            shard.whole.shards.bytes += size
            self.spread += size

    def release(self, unit: Unit, records: int, size: int) -> None:
        account = unit.account
        account.records -= records
        account.bytes -= size
        lane = self._lanes[account.lane]
        lane.records -= records
        lane.bytes -= size
        self._bytes -= size

    def let_go(self, unit: Unit, chunks: Iterable[Chunk]) -> list[Barrier[Unit]]:
        """Release chunks that a unit no longer has. Returns the barriers that are now over."""
        barriers = []
        parts = weight = records = size = 0
        for chunk in chunks:
            parts += len(chunk.messages)
            weight += 0 if chunk.parked else chunk.bytes
            left = chunk.leave()
            records += left[0]
            size += left[1]
            if chunk.barrier is not None:
                chunk.barrier.over = True
                barriers.append(chunk.barrier)
        self.release(unit, records, size)
        if isinstance(unit, Shard) and unit.whole.shards is not None:
            unit.whole.shards.records -= parts
            self.count_spread(unit, -weight)
        return barriers

    def move(self, account: Account, home: int) -> None:
        """Count the account's records and bytes against another lane from now on."""
        old, new = self._lanes[account.lane], self._lanes[home]
        old.records -= account.records
        old.bytes -= account.bytes
        new.records += account.records
        new.bytes += account.bytes
        account.lane = home


def is_reached(barrier: Barrier[Unit]) -> bool:
    """Whether all its tables have finished everything before it."""
    return all(
        unit.state is UnitState.WAITING_FOR_OTHERS
        and unit.chunks[0].barrier is barrier
        and (unit.shards is None or unit.shards.through)
        for unit in (barrier.home, *barrier.others)
    )


class Timers:
    """When waiting units (for a fuller batch, or for a retry) are due. Guarded by the lock of `Lanes`."""

    def __init__(self) -> None:
        self._keys: dict[Unit, tuple[float, int]] = {}
        self._units: SortedDict = SortedDict()  # (due, ticket) -> unit
        self._tickets = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._keys)

    def set(self, unit: Unit, due: float) -> None:
        self.cancel(unit)
        unit.due = due
        self._keys[unit] = key = due, next(self._tickets)
        self._units[key] = unit

    def cancel(self, unit: Unit) -> None:
        key = self._keys.pop(unit, None)
        if key is not None:
            del self._units[key]

    def next_due(self) -> float:
        due: float = self._units.peekitem(0)[0][0]
        return due

    def due(self, now: float) -> Iterator[Unit]:
        """Remove and yield the units that are due."""
        while self._keys and self.next_due() <= now:
            unit: Unit = self._units.peekitem(0)[1]
            self.cancel(unit)
            yield unit

    def gathering(self) -> list[Unit]:
        """The units that only wait for a fuller batch."""
        return [unit for unit in self._units.values() if unit.state is UnitState.GATHERING]
