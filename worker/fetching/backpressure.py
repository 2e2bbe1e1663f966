"""Waiting for room in the lanes, without leaving the group: records that they refused, and pauses. Also how
far a partition may be read beyond its first unfinished record."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer

from handlers.logs import get_logger
from offsets.stores.polled import PolledKafkaStore
from worker.configuration import Configuration, LanesRule
from worker.fetching.polls import POLL_SECONDS, Polls
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Run, Stage
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Unit

_PATIENCE = 0.25
"""Seconds to wait for room before partitions are paused. A pause discards prefetched records."""
_QUEUED = 10_000
_SHORT, _LONG, _FOR_AN_ANSWER = 0.02, 0.5, 0.25
_BUSY = 0.9
"""The share of one processor: Python code in handlers takes turns on one processor; waiting, sending and
writing need none. An estimate, because native threads count too. Below this share, polls never wait long."""


class Backpressure:
    """Owns the fetched records that the lanes have not accepted, and the pauses. The fetcher's own."""

    def __init__(
        self,
        consumer: Consumer,
        assignments: Assignments,
        lanes: Lanes,
        store: PolledKafkaStore,
        metrics: Metrics,
        *,
        rule: LanesRule,
        clock: Callable[[], float],
    ) -> None:
        """`store`: sends the commits."""
        self.lanes = lanes
        self.backlog = Backlog(lanes, rule.max_records, rule.max_bytes)
        self.pauses = Pauses(consumer, assignments)
        self.polls = Polls(consumer, rule.max_records, rule.max_bytes)
        self.poll_pause = PollPause(lanes, store, clock)
        self._metrics = metrics
        self._clock = clock
        self.waited = 0.0
        """Seconds so far in which records waited for room."""
        self._held_since = 0.0  # time when the lanes last had no room for a delivery

    @property
    def is_full(self) -> bool:
        """Whether to call `wait` instead of polling."""
        return bool(self.backlog) or self.pauses.everything

    def takes_nothing(self) -> bool:
        """Whether the records of a poll could not be routed."""
        return bool(self.backlog or self.polls.waiting or self.pauses.draining)

    def hand_over(self, delivery: Delivery, count: int, *, full: bool) -> None:
        """Give a delivery of `count` records to the lanes, or keep it until they have room. `full`: the poll
        returned as many records as it asked for."""
        fits = self.backlog.add(delivery)
        if not fits:
            self._held_since = self._clock()
        self.polls.size.adjust(delivery, count, full=full, fits=fits)

    def wait(self) -> None:
        """Offer the pending deliveries again. If that takes long, pause all partitions, but keep polling."""
        begin = self._clock()
        if not self.backlog:  # what waited belonged to revoked partitions
            self.lanes.forget_refused()
        self.lanes.wait_for_space(POLL_SECONDS)
        if self.backlog.offer():
            self.pauses.resume()
        elif self.pauses.everything:
            self.polls.stay(0.0)
        elif begin - self._held_since > _PATIENCE:
            self.pauses.pause()
        seconds = self._clock() - begin
        self.waited += seconds
        self._metrics.count("binlane_backpressure_seconds_total", amount=seconds)

    def waiting_seconds(self) -> float:
        """Return how long fetched records have waited for room. Any thread."""
        return self._clock() - self._held_since if self.backlog else 0.0

    def stay(self) -> None:
        """Stay in the group without reading."""
        self.pauses.pause()
        self.polls.stay(POLL_SECONDS)

    def end(self) -> None:
        """Reading has ended: forget what was not accepted."""
        self.backlog.clear()
        self.polls.waiting.clear()
        self.pauses.pause()


@dataclass(eq=False)
class PollPause:
    """Delays the next poll by 0.02 s while more than 10,000 records are queued.

    The delay is up to 0.5 s (0.25 s while a commit waits for its answer) if everything waits for the
    interpreter. More records would then speed up nothing: they leave the cache before they are handled, take
    memory and delay the commit. If calls take long whatever their size, more records make batches fuller: it
    stays 0.02 s.

    The fetcher's own. `cpu`: processor seconds that all threads of this process have used."""

    lanes: Lanes
    commits: PolledKafkaStore
    clock: Callable[[], float]
    cpu: Callable[[], float] = time.process_time

    def __post_init__(self) -> None:
        self._polled = 0.0
        self._cpu_then = 0.0

    def polled(self) -> None:
        """Record that a poll is over and its records have been passed on."""
        self._polled, self._cpu_then = self.clock(), self.cpu()

    @property
    def goes_on(self) -> bool:
        """Whether the next poll must wait."""
        lanes = self.lanes
        if lanes.seen.queued <= _QUEUED:
            return False
        seconds = self.clock() - self._polled
        if seconds < _SHORT:
            return True
        # While the membership is in doubt, no batch starts before a poll returns the answer to a commit.
        if seconds >= _LONG or not lanes.schedule.ready.are_many or not lanes.trusted:
            return False
        if seconds >= _FOR_AN_ANSWER and self.commits.under_way:
            return False
        return self.cpu() - self._cpu_then >= _BUSY * seconds


class Backlog(Stage):
    """Deliveries in their order, each small enough for the bounds. The fetcher's own, except `parts`."""

    def __init__(self, lanes: Lanes, max_records: int, max_bytes: int) -> None:
        self._lanes = lanes
        self._waiting: deque[Delivery] = deque()
        self.bound(max_records, max_bytes)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Delivery) -> bool:
        """Offer the delivery after the pending ones. Returns True if the lanes have accepted everything."""
        self._waiting.extend(delivery.pieces(*self._most))
        return self.offer()

    def offer(self) -> bool:
        """Offer the pending deliveries. Returns True if the lanes have accepted everything."""
        while self._waiting and self._lanes.offer(self._waiting[0]):
            self._waiting.popleft()
        return not self._waiting

    def parts(self) -> list[tuple[Unit, Chunk]]:
        """The pending chunks with their units. Any thread. What is no longer here is in the lanes."""
        return [part for delivery in tuple(self._waiting) for part in delivery.parts]

    def adopt(self, now: Configuration) -> None:
        self.bound(now.lanes.max_records, now.lanes.max_bytes)

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Use other bounds and home lanes from now on. Cuts the pending deliveries to fit, and offers them at
        once."""
        # Of the lanes' other half, open transactions may take room that wait for these records.
        self._most = max(1, max_records // 2), max_bytes // 2
        held = tuple(self._waiting)
        for delivery in held:
            delivery.recount()
        self._waiting = deque(piece for each in held for piece in each.pieces(*self._most))
        self.offer()

    def revoked(self, gone: Collection[Assignment]) -> None:
        self._waiting = deque(
            rest for each in self._waiting if (rest := each.without(set(gone))).parts or rest.queued
        )

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._lanes.forget_refused()


log = get_logger("fetcher")

_SLACK = 10
"""A partition is resumed when a tenth of the bound is free, because each pause discards prefetched
records."""


class MaxAhead(Stage):
    """Pauses a partition with too many fetched records after its first unfinished one.

    The flags of records finished behind that one take memory, and their ranges take room in the checkpoint.
    One poll may exceed the bound: fetched records are handled."""

    def __init__(self, pauses: Pauses, most: int) -> None:
        self._pauses = pauses
        self._most = most
        self._passed: dict[Assignment, None] = {}  # partitions with records since the last look

    def adopt(self, now: Configuration) -> None:
        self._most = now.max_ahead

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for run in runs:
            self._passed[run[0]] = None
            yield run

    def between_polls(self, now: float) -> None:
        """Pause the partitions that are too far ahead, and resume those that have advanced."""
        passed, self._passed = self._passed, {}
        beyond = self._pauses.of("max_ahead")
        new = {a for a in passed if a not in beyond and a.tracker.ahead(self._most) >= self._most}
        enough = self._most - self._most // _SLACK
        free = {each for each in beyond if each.tracker.ahead(enough) < enough}
        for assignment in new:
            log.warning(
                "max_ahead_reached",
                partition=str(assignment.partition),
                first_unfinished=assignment.tracker.head,
                max_ahead=self._most,
                hint="the partition is not read until that record is finished: see binlane status",
            )
        for assignment in free:
            log.info("max_ahead_over", partition=str(assignment.partition))
        if new or free:
            self._pauses.single("max_ahead", (beyond | new) - free)

    def revoked(self, gone: Collection[Assignment]) -> None:
        for assignment in gone:
            self._passed.pop(assignment, None)
        self._pauses.single("max_ahead", self._pauses.of("max_ahead").difference(gone))
