"""Parts of `Lanes`: each lane's queue and counters, the room that is left, the timers of units that wait."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.unit import Account, Unit, UnitState
from worker.units.work import Work

_SPREAD_SHARE = 8
"""Rows as Python objects take about so many times the bytes of their record: those that wait in shards take
up to about `max_bytes` more."""

_FEW_TIMERS = 64
"""So many are kept however many of them nobody waits for any more."""
_FEW, _PATIENCE = 4, 4
"""While tables take turns: so many ready units a lane are few; when so many others have become ready, a lane,
who waits is next whatever it has."""


class Lane:
    """Guarded by the lock of `Lanes`."""

    __slots__ = (
        "batches",
        "busy_seconds",
        "bytes",
        "condition",
        "finished_records",
        "manned",
        "number",
        "offers",
        "ready",
        "records",
        "running",
        "since",
    )

    def __init__(self, number: int, lock: threading.Lock) -> None:
        self.number = number
        self.condition = threading.Condition(lock)
        self.ready: deque[Unit] = deque()
        self.records = 0
        """Queued and running, of the units whose home this is."""
        self.bytes = 0
        self.running: Work | None = None
        """What this lane's processor works on, wherever it comes from."""
        self.since = 0.0
        self.busy_seconds = 0.0
        self.offers = {"queued": 0, "refused": 0}
        """Deliveries with records of its tables, by what came of the offer: each is taken whole or not."""
        self.batches = {"finished": 0, "given_back": 0, "halted": 0, "spread": 0}
        """Those that this lane's processor took, by how they ended."""
        self.finished_records = 0
        """By this lane's processor, whose own it is."""
        self.manned = True
        """Whether it has a processor. A lane that was given up keeps it until its last batch ends."""

    def works_on(self, gone: set[Assignment]) -> bool:
        """Whether its running batch holds records of these."""
        work = self.running
        return work is not None and any(chunk.assignment in gone for chunk in work.chunks)


class Room:
    """What is queued and running against what may be. Guarded by the lock of `Lanes`."""

    __slots__ = ("_bytes", "_lanes", "max_bytes", "max_records", "spread")

    def __init__(self, lanes: Sequence[Lane], max_records: int, max_bytes: int) -> None:
        """`max_records`: of each lane; `max_bytes`: of all together."""
        self.spread = 0
        """Bytes, as they were fetched, of records that are decoded and spread over shards."""
        self._lanes = lanes
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._bytes = 0

    def fits(self, delivery: Delivery) -> bool:
        # What is larger than a bound passes alone, else it would wait for ever.
        if self._bytes and self._bytes + delivery.bytes > self.max_bytes:
            return False
        for number, records in delivery.records.items():
            waiting = self._lanes[number].records
            if waiting and waiting + records > self.max_records:
                return False
        return True

    def take(self, delivery: Delivery) -> None:
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

    def refuse(self, delivery: Delivery) -> None:
        for number in delivery.records:
            self._lanes[number].offers["refused"] += 1

    def may_spread(self, unit: Unit | None = None) -> bool:
        """Whether more records may be decoded to be spread over shards: of this unit's table, or of any.

        A table may always have a batch of them, so that none depends on another's being blocked."""
        if self.spread < self.max_bytes // _SPREAD_SHARE:
            return True
        if unit is None or unit.shards is None:
            return False
        table, shards = unit.table, unit.shards
        return shards.records < table.max_records and shards.bytes < table.max_bytes

    def release(self, unit: Unit, records: int, size: int) -> None:
        account = unit.account
        account.records -= records
        account.bytes -= size
        lane = self._lanes[account.lane]
        lane.records -= records
        lane.bytes -= size
        self._bytes -= size

    def move(self, account: Account, home: int) -> None:
        """What it holds counts against another lane from now on."""
        old, new = self._lanes[account.lane], self._lanes[home]
        old.records -= account.records
        old.bytes -= account.bytes
        new.records += account.records
        new.bytes += account.bytes
        account.lane = home


class Timers:
    """When units that wait (for a fuller batch, or to try again) are due. Guarded by the lock of `Lanes`."""

    def __init__(self) -> None:
        # An entry whose unit has moved on since stays until its time comes, or until half of them are such.
        self._heap: list[tuple[float, int, Unit]] = []
        self._most = _FEW_TIMERS
        self._ticket = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, unit: Unit) -> None:
        """At `unit.due`."""
        if len(self._heap) >= self._most:
            kept = {entry[2]: entry for entry in self._heap if _waits(*entry)}
            self._heap = list(kept.values())
            heapq.heapify(self._heap)
            self._most = max(_FEW_TIMERS, 2 * len(self._heap))
        heapq.heappush(self._heap, (unit.due, next(self._ticket), unit))

    def next_due(self) -> float:
        return self._heap[0][0]

    def due(self, now: float) -> Iterator[Unit]:
        """Takes out the units whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if _waits(*entry):
                yield entry[2]

    @property
    def pending(self) -> bool:
        """Whether a unit waits for its time."""
        waits = (UnitState.GATHERING, UnitState.BACKOFF)
        return any(unit.state in waits for _, _, unit in self._heap)

    def waiting(self) -> Collection[Unit]:
        """The units that only wait for a fuller batch, in one order whatever the hashes."""
        return dict.fromkeys(unit for _, _, unit in self._heap if unit.state is UnitState.GATHERING)

    def blocked(self) -> Collection[Unit]:
        """The units that wait for a target that is down."""
        waiting = (unit for _, _, unit in self._heap if unit.state is UnitState.BACKOFF and unit.blocked)
        return dict.fromkeys(waiting)


def _waits(due: float, _ticket: int, unit: Unit) -> bool:
    """Whether the unit waits for just this time."""
    return unit.due == due and unit.state in (UnitState.GATHERING, UnitState.BACKOFF)


def fullest(lanes: Iterable[Lane]) -> Lane:
    """Of those with a ready unit, the one that holds the most records."""
    found, most = None, -1
    for lane in lanes:  # no `max`: it calls Python for each lane, and this is asked for each batch
        if lane.ready and lane.records > most:
            found, most = lane, lane.records
    assert found is not None  # there is a ready unit somewhere
    return found


def whose_turn(lanes: Sequence[Lane], ready: int, tickets: int) -> Unit:
    """Of `ready` units the one that is next; `tickets`: how many have become ready so far.

    If they are few, the one with the most to do, in seconds: it would go on alone when all others are
    through. But none waits for long."""
    longest = min((lane.ready[0] for lane in lanes if lane.ready), key=lambda unit: unit.ticket)
    if ready > _FEW * len(lanes) or tickets - longest.ticket >= _PATIENCE * len(lanes):
        return longest
    return min(
        (unit for lane in lanes for unit in lane.ready),
        key=lambda unit: (-unit.turns.seconds(unit.records), unit.ticket),
    )
