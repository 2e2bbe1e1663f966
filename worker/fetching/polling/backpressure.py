"""Waiting for room in the lanes, without leaving the group."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer

from offsets.stores import PolledKafkaStore
from worker.configuration import LanesRule
from worker.fetching.backlog import Backlog
from worker.fetching.polling.poll_pause import PollPause
from worker.fetching.polling.polls import POLL_SECONDS, Polls
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignments
from worker.units.delivery import Delivery

_PATIENCE = 0.25
"""Seconds to wait for room before partitions are paused. A pause discards prefetched records."""


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
        self._metrics.backpressure(self._clock() - begin)

    def stay(self) -> None:
        """Stay in the group without reading."""
        self.pauses.pause()
        self.polls.stay(POLL_SECONDS)

    def end(self) -> None:
        """Reading has ended: forget what was not accepted."""
        self.backlog.clear()
        self.polls.waiting.clear()
        self.pauses.pause()
