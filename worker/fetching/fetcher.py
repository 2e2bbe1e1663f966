"""The fetcher: the one thread that polls Kafka. It routes what comes and hands it to the lanes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer

from handlers.logs import get_logger
from offsets.stores import PolledKafkaStore
from worker.fetching.backlog import Backlog
from worker.fetching.held_records import HeldRecords
from worker.fetching.polling.poll_pause import PollPause
from worker.fetching.polling.poll_size import MOST_RECORDS, PollSize
from worker.fetching.polling.polls import POLL_SECONDS, Polls
from worker.fetching.receiving import Receiver
from worker.fetching.requests import Requests
from worker.fetching.routing import Router
from worker.fetching.source_order import SourceOrder
from worker.fetching.standstill import Standstill
from worker.kafka.errors import KafkaErrors, Stopping
from worker.kafka.leaving import leave
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.max_ahead import MaxAhead
from worker.partitions.membership import Membership
from worker.partitions.pausing import Pauses
from worker.partitions.rebalance import Rebalancer
from worker.partitions.refetching import Refetching
from worker.partitions.whole_share import WholeShare
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("fetcher")

_MOMENT = 0.004
"""Seconds until it looks again whether the processors still have enough to do."""
_PATIENCE = 0.25
"""Seconds to wait for room before the partitions are paused, which throws away what was fetched ahead."""


class Fetcher(threading.Thread):
    """Polls until stopped, then keeps the membership alive until `close`."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        *,
        assignments: Assignments,
        router: Router,
        rebalancer: Rebalancer,
        refetching: Refetching,
        lanes: Lanes,
        errors: KafkaErrors,
        store: PolledKafkaStore,
        membership: Membership,
        metrics: Metrics,
        order: SourceOrder | None,
        share: WholeShare | None,
        prepare: Sequence[Callable[[Callable[[], None]], object]],
        max_records: int,
        max_bytes: int,
        max_ahead: int,
        leaves: bool,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`order`: what puts the records of several topics in source order, where
        that is wanted; `share`: whether this worker has them all. `prepare`: called, one after the other,
        before anything is fetched, with what to call while it goes on. `leaves`: see `close_stays`."""
        super().__init__(name="fetcher", daemon=True)
        self._consumer = consumer
        self._assignments = assignments
        self._topics = list(topics)
        self._rebalancer = rebalancer
        self._refetching = refetching
        rebalancer.changed = self.changed
        rebalancer.starts.alive = self._alive
        self._lanes = lanes
        self._store = store
        self._membership = membership
        self._metrics = metrics
        self._order = order
        self._share = share
        self._prepare = prepare
        self._leaves = leaves
        self.pauses = Pauses(consumer, assignments)
        self.gate = HeldRecords(self.pauses, assignments, rebalancer.commit_soon)
        self.max_ahead = MaxAhead(self.pauses, max_ahead)
        self.standstill = Standstill(consumer, assignments, self.pauses, refetching)
        self._polls = Polls(consumer, max_records, max_bytes)
        self._clock = clock
        self._fail = fail
        self._draining = threading.Event()
        self._closing = threading.Event()
        self.backlog = Backlog(lanes, max_records, max_bytes)
        rebalancer.offer = self.backlog.offer
        self._pause = PollPause(lanes, store, clock)
        self.requests = Requests()
        """What is to be done between two polls."""
        self.beat = clock()
        """When the thread last went round."""
        self.receiver = Receiver(
            assignments=assignments,
            router=router,
            refetching=refetching,
            lanes=lanes,
            errors=errors,
            metrics=metrics,
            order=order,
            gate=self.gate,
            pauses=self.pauses,
            max_ahead=self.max_ahead,
            standstill=self.standstill,
            polls=self._polls,
            backlog=self.backlog,
            clock=clock,
        )

    def drain(self) -> None:
        """Fetch nothing more, but stay a member of the group."""
        self._draining.set()

    def close(self) -> None:
        """Leave the group and end the thread."""
        self._draining.set()
        self._closing.set()

    def run(self) -> None:
        try:
            for step in self._prepare:
                step(self._alive)
            self._store.attach(self._consumer)
            self._rebalancer.starts.begin(self._consumer)
            self._consumer.subscribe(
                self._topics,
                on_assign=self._rebalancer.on_assign,
                on_revoke=self._rebalancer.on_revoke,
                on_lost=self._rebalancer.on_lost,
            )
            while not self._draining.is_set():
                self._go_round()
                if not self._may_read():
                    self.pauses.pause()
                    self._polls.stay(POLL_SECONDS)
                elif self.backlog or self.pauses.everything:
                    self._wait_for_room()
                elif self._pause.goes_on:
                    self._draining.wait(_MOMENT)
                else:
                    self._read_on()
        except Stopping:
            pass
        except BaseException as error:
            self._fail(error)
        try:
            self._idle_until_closed()
            if self._leaves:
                leave(self._consumer, self._stay)
            self._consumer.close()
        except BaseException as error:
            self._fail(error)

    def _read_on(self) -> None:
        """What waits of an earlier poll, else the next one."""
        if self._polls.waiting:
            self.receiver.receive(self._polls.waiting.popleft())
        else:
            self.receiver.begin_anew(self._refetching.made_anew())
            messages = self._polls.next()
            if messages and not self._may_read():
                self._polls.waiting.append(messages)  # others left by that poll
            else:
                self.receiver.receive(messages)
        self._pause.polled()

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Other lanes and bounds (see `Lanes.resize`). A request (see `requests`)."""
        self._polls.size = PollSize(max_records, max_bytes)
        self.backlog.bound(max_records, max_bytes)
        if self._order is not None:
            self._order.bound(max_bytes)

    def fetch_from(self, assignment: Assignment, offset: int) -> None:
        """A request (see `requests`). Raises KafkaException and Stopping as `Refetching.restart`."""
        self._refetching.restart(assignment, offset)
        self.pauses.came(self._assignments.current())  # the eager protocol assigns all of them anew

    def holds(self, assignment: Assignment) -> bool:
        """Whether records of it were polled that its tracker does not know. A request (see `requests`)."""
        return (
            self.gate.holds(assignment)
            or self._polls.holds(assignment.partition)
            or (self._order is not None and self._order.holds(assignment))
        )

    def _alive(self, allowance: float = 0.0) -> None:
        """What comes next may take so many seconds longer than anything may."""
        self.beat = self._clock() + allowance

    def changed(self, gone: set[Assignment], added: list[Assignment]) -> None:
        """The rebalancer's word on this thread: these partitions left, those came."""
        self.backlog.leave(gone)
        self.max_ahead.left(gone)
        self.gate.forget(gone)
        self._polls.leave({assignment.partition for assignment in gone})
        if self._share is not None:
            self._share.changed()
        if self._order is not None:
            self._order.forget(gone)
            self._order.watch(added)
        if self._draining.is_set():
            self.pauses.pause()
        self.gate.look(self._clock())
        self.pauses.came(added)

    def _go_round(self) -> None:
        """Between two polls: what only this thread may do with the consumer."""
        self.beat = now = self._clock()
        self._store.serve()
        self._membership.look(now)
        self.requests.serve()
        hindered = bool(self.backlog or self._polls.waiting or self._draining.is_set())
        self.standstill.look(now, hindered=hindered)
        if self._refetching.look():
            self.pauses.came(self._assignments.current())  # the eager protocol assigns all of them anew
        self.max_ahead.look()
        self.gate.look(now)

    def _may_read(self) -> bool:
        return self._share is None or self._share.look(self._clock())

    def _wait_for_room(self) -> None:
        """Offer what is held again; pause the partitions if that takes long, and go on polling."""
        begin = self._clock()
        if not self.backlog:  # what waited belonged to partitions that left
            self._lanes.forget_refused()
        self._lanes.wait_for_space(POLL_SECONDS)
        if self.backlog.offer():
            self.pauses.resume()
        elif self.pauses.everything:
            self._polls.stay(0.0)
        elif begin - self.receiver.held_since > _PATIENCE:
            self.pauses.pause()
        self._metrics.backpressure(self._clock() - begin)

    def _idle_until_closed(self) -> None:
        """Stay in the group without fetching, so that others do not start on what still runs here."""
        while self.backlog and not self._draining.is_set():  # it came before a record that stops the worker
            self._go_round()
            self._wait_for_room()
        self.backlog.clear()
        self._polls.waiting.clear()
        self.pauses.pause()
        while not self._closing.is_set():
            self._stay()

    def _stay(self) -> None:
        self._go_round()
        self._consumer.consume(MOST_RECORDS, POLL_SECONDS)
