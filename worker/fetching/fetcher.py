"""The fetcher: the one thread that polls Kafka. It routes what comes and hands it to the lanes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from handlers.logs import get_logger
from offsets.stores import PolledKafkaStore
from worker.fetching.backlog import Backlog
from worker.fetching.poll_size import MOST_RECORDS, PollSize
from worker.fetching.polls import POLL_SECONDS, Polls
from worker.fetching.requests import Requests
from worker.fetching.routing import Router
from worker.fetching.source_order import SourceOrder
from worker.fetching.standstill import Standstill
from worker.formats.choice import NO_FORMAT
from worker.formats.interface import Record
from worker.kafka.errors import KafkaErrors, Stopping
from worker.kafka.leaving import leave
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.max_ahead import MaxAhead
from worker.partitions.pausing import Pauses
from worker.partitions.rebalance import Rebalancer
from worker.partitions.refetching import Refetching
from worker.partitions.whole_share import WholeShare
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Unit

__all__ = ["Fetcher"]

log = get_logger("fetcher")

_QUEUED = 10_000
_BREATHS, _BREATH_SECONDS = 10, 0.002
"""With more records queued than that, the processors get so many moments before the next poll."""
_PATIENCE = 0.25
"""Seconds to wait for room before the partitions are paused, which throws away what was fetched ahead."""

_OTHER_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})

_error = Message.error


def _is_fault(message: Message) -> bool:
    """Neither a record nor the end of a partition."""
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


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
        metrics: Metrics,
        order: SourceOrder | None,
        share: WholeShare | None,
        prepare: Callable[[Callable[[], None]], object] | None,
        max_records: int,
        max_bytes: int,
        max_ahead: int,
        leaves: bool,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`order`: what puts the records of several topics in source order, where that is wanted; `share`:
        whether this worker has them all. `prepare`: called before anything is fetched, with what to call
        while it goes on. `leaves`: see `close_stays`."""
        super().__init__(name="fetcher", daemon=True)
        self._consumer = consumer
        self._topics = list(topics)
        self._assignments = assignments
        self._router = router
        self._rebalancer = rebalancer
        self._refetching = refetching
        rebalancer.changed = self.changed
        rebalancer.alive = self._alive
        self._lanes = lanes
        self._errors = errors
        self._store = store
        self._metrics = metrics
        self._order = order
        self._share = share
        self._prepare = prepare
        self._leaves = leaves
        self.pauses = Pauses(consumer, assignments)
        self.max_ahead = MaxAhead(self.pauses, max_ahead)
        self.standstill = Standstill(consumer, assignments, self.pauses, refetching)
        self._polls = Polls(consumer, max_records, max_bytes)
        self._clock = clock
        self._fail = fail
        self._draining = threading.Event()
        self._closing = threading.Event()
        self._backlog = Backlog(lanes, max_records, max_bytes)
        rebalancer.offer = self._backlog.offer
        self._held_since = 0.0
        self.requests = Requests()
        """What is to be done between two polls."""
        self.beat = clock()
        """When the thread last went round."""
        self.brought = clock()
        """When a poll last brought a record, or the end of a partition."""

    def drain(self) -> None:
        """Fetch nothing more, but stay a member of the group."""
        self._draining.set()

    def close(self) -> None:
        """Leave the group and end the thread."""
        self._draining.set()
        self._closing.set()

    def run(self) -> None:
        try:
            if self._prepare is not None:
                self._prepare(self._alive)
            self._store.attach(self._consumer)
            self._rebalancer.begin(self._consumer)
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
                elif self._backlog or self.pauses.everything:
                    self._wait_for_room()
                elif self._polls.waiting:
                    self._receive(self._polls.waiting.popleft())
                else:
                    self._begin_anew(self._refetching.made_anew())
                    messages = self._polls.next()
                    if messages and not self._may_read():
                        self._polls.waiting.append(messages)  # others left by that poll
                    else:
                        self._receive(messages)
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

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Other lanes and bounds (see `Lanes.resize`). A request (see `requests`)."""
        self._polls.size = PollSize(max_records, max_bytes)
        self._backlog.bound(max_records, max_bytes)
        if self._order is not None:
            self._order.bound(max_bytes)

    def waiting(self) -> set[Unit]:
        """Tables with records that the lanes have not taken yet. Any thread."""
        return self._backlog.units()

    def held(self) -> list[tuple[Unit, Chunk]]:
        """Those records. Any thread."""
        return self._backlog.parts()

    def _alive(self, allowance: float = 0.0) -> None:
        """What comes next may take so many seconds longer than anything may."""
        self.beat = self._clock() + allowance

    def changed(self, gone: set[Assignment], added: list[Assignment]) -> None:
        """The rebalancer's word on this thread: these partitions left, those came."""
        self._backlog.leave(gone)
        self.max_ahead.left(gone)
        self._polls.leave({assignment.partition for assignment in gone})
        if self._share is not None:
            self._share.changed()
        if self._order is not None:
            self._order.forget(gone)
            self._order.watch(added)
        if self._draining.is_set():
            self.pauses.pause()
        self.pauses.came(added)

    def _go_round(self) -> None:
        """Between two polls: what only this thread may do with the consumer."""
        self.beat = now = self._clock()
        self._store.serve()
        self.requests.serve()
        hindered = bool(self._backlog or self._polls.waiting or self._draining.is_set())
        self.standstill.look(now, hindered=hindered)
        self._refetching.look()
        self.max_ahead.look()

    def _may_read(self) -> bool:
        return self._share is None or self._share.look(self._clock())

    def _receive(self, messages: list[Message]) -> None:
        if not self._backlog:  # nothing is under way to a table
            self._router.let_go(self._lanes.at_rest)
        if not messages and not self._order:
            return
        if not all(map(_is_fault, messages)):
            self.brought = self._clock()
        full = len(messages) >= self._polls.size.records
        ends: list[Message] = []
        if any(map(_error, messages)):
            ends = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        self._route(self._in_order(messages), full=full)
        for message in ends:
            self._told(message)
        if self._order is not None:
            self.pauses.ahead(self._order.ahead())
            for assignment, end in self._order.ends():
                assignment.tracker.reach(end)

    def _route(self, runs: Iterable[tuple[Assignment, list[Record]]], *, full: bool) -> None:
        delivery = Delivery()
        count = 0
        routed: dict[Assignment, None] = {}
        try:
            for assignment, own in runs:
                count += len(own)
                routed[assignment] = None
                self._router.route(assignment, own, delivery)
        finally:  # what was routed before a record that stops the worker is still handed over
            if delivery.parts:
                self._hand_over(delivery, full=full, count=count)
            self.max_ahead.came(routed)

    def _in_order(self, messages: list[Message]) -> Iterator[tuple[Assignment, list[Record]]]:
        """The records of each partition; those of several topics in source order where that is wanted."""
        for assignment, own in self._assignments.split(messages, left=self._polls.some_revoked):
            if assignment.format is NO_FORMAT:  # fetched before it was paused
                continue
            records = cast(list[Record], own)
            assignment.came(records)
            self._metrics.consumed(*assignment.partition, len(own))
            if self._order is None:
                yield assignment, records
            else:
                yield from self._order.add(assignment, records)
        if self._order:
            yield from self._order.due(patient=bool(self.max_ahead))

    def _hand_over(self, delivery: Delivery, *, full: bool, count: int) -> None:
        fits = self._backlog.add(delivery)
        if fits:
            self._let_processors_catch_up()
        else:
            self._held_since = self._clock()
        self._polls.size.adjust(delivery, count, full=full, fits=fits)

    def _let_processors_catch_up(self) -> None:
        """Quick handlers find their records in the cache if few are queued; slow ones lose nothing by it."""
        for _ in range(_BREATHS):
            if self._lanes.queued <= _QUEUED or self._draining.wait(_BREATH_SECONDS):
                break

    def _wait_for_room(self) -> None:
        """Offer what is held again; pause the partitions if that takes long, and go on polling."""
        begin = self._clock()
        if not self._backlog:  # what waited belonged to partitions that left
            self._lanes.forget_refused()
        self._lanes.wait_for_space(POLL_SECONDS)
        if self._backlog.offer():
            self.pauses.resume()
        elif self.pauses.everything:
            self._polls.stay(0.0)
        elif begin - self._held_since > _PATIENCE:
            self.pauses.pause()
        self._metrics.backpressure(self._clock() - begin)

    def _told(self, message: Message) -> None:
        """Not a record: the end of a partition, or an error."""
        error = cast(KafkaError, message.error())
        assignment, offset = self._assignments.of(message), message.offset()
        if error.code() == KafkaError._PARTITION_EOF:
            # Behind the last record may lie transaction markers; everything below has been read.
            if assignment is not None and offset is not None:
                assignment.end = offset
                self.standstill.read_to_end(assignment, offset)
                if self._order is None or self._order.at_end(assignment, offset):
                    assignment.tracker.reach(offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and assignment is not None:
            topic_id = self._refetching.other_id(assignment)
            if topic_id is not None:
                self._begin_anew([(assignment, topic_id)])
                return
            if self._order is not None:
                self._route(self._order.let_go(assignment), full=False)
            self._refetching.out_of_range(assignment, error)
            self.pauses.came(self._assignments.current())  # the eager protocol assigns all of them anew
        elif error.fatal():
            raise KafkaException(error)
        else:
            if error.code() in _OTHER_TOPIC:
                self._refetching.suspect()
            self._errors.report(error, topic=message.topic())
            if assignment is not None:
                self.standstill.refused(assignment, error)

    def _begin_anew(self, changed: list[tuple[Assignment, str]]) -> None:
        """The topics of these have other ids now. What the earlier ones brought is handled first."""
        for assignment, topic_id in changed:
            if self._order is not None:
                self._route(self._order.let_go(assignment), full=False)
                self._order.forget({assignment})
            new = self._refetching.begin_anew(assignment, topic_id)
            if self._order is not None:
                self._order.watch([new])
        if changed:
            self.pauses.came(self._assignments.current())  # the eager protocol assigns all of them anew

    def _idle_until_closed(self) -> None:
        """Stay in the group without fetching, so that others do not start on what still runs here."""
        while self._backlog and not self._draining.is_set():  # it came before a record that stops the worker
            self._go_round()
            self._wait_for_room()
        self._backlog.clear()
        self._polls.waiting.clear()
        self.pauses.pause()
        while not self._closing.is_set():
            self._stay()

    def _stay(self) -> None:
        self._go_round()
        self._consumer.consume(MOST_RECORDS, POLL_SECONDS)
