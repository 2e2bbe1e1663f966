"""The fetcher: the one thread that polls Kafka. It routes what comes and hands it to the lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from offsets.stores import PolledKafkaStore
from offsets.types import TopicPartition
from worker.assignment import Assignment, Assignments
from worker.chunk import Delivery
from worker.errands import Errands
from worker.formats.interface import Record
from worker.holding import Holding
from worker.kafka_errors import KafkaErrors
from worker.lanes import Lanes
from worker.logs import get_logger
from worker.metrics import Metrics
from worker.pausing import Pauses
from worker.poll_size import MOST_RECORDS, PollSize
from worker.rebalance import Rebalancer
from worker.routing import Router
from worker.source_order import SourceOrder

__all__ = ["Fetcher"]

log = get_logger("fetcher")

_POLL_SECONDS = 0.1
_FILL_SECONDS = 0.005
"""How long a poll waits for more once something came: fuller polls cost less for each record."""
_QUEUED = 10_000
_BREATHS, _BREATH_SECONDS = 10, 0.002
"""With more records queued than that, the processors get so many moments before the next poll."""
_ENDS_SECONDS = 1.0
"""How often the partitions' ends are looked up; the last fetch told them, no broker is asked."""
_PATIENCE = 0.25
"""Seconds to wait for room before the partitions are paused, which throws away what was fetched ahead."""

_error = Message.error


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
        lanes: Lanes,
        errors: KafkaErrors,
        store: PolledKafkaStore,
        metrics: Metrics,
        order: SourceOrder | None,
        prepare: Callable[[Callable[[], None]], object] | None,
        max_records: int,
        max_bytes: int,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`order`: what puts the records of several topics in source order, where that is wanted. `prepare`:
        called before anything is fetched, with what to call while it goes on."""
        super().__init__(name="fetcher", daemon=True)
        self._consumer = consumer
        self._topics = list(topics)
        self._assignments = assignments
        self._router = router
        self._rebalancer = rebalancer
        rebalancer.changed = self.changed
        self._lanes = lanes
        self._errors = errors
        self._store = store
        self._ends_due = 0.0
        self._metrics = metrics
        self._order = order
        self._prepare = prepare
        self._pauses = Pauses(consumer, assignments)
        self._poll = PollSize(max_records, max_bytes)
        self._clock = clock
        self._fail = fail
        self._draining = threading.Event()
        self._closing = threading.Event()
        self._held = Holding(lanes, max_records, max_bytes)
        self._held_since = 0.0
        self._unrouted: deque[list[Message]] = deque()
        self._left: set[TopicPartition] = set()  # what left during the poll under way
        self.errands = Errands()
        """What is to be done between two polls."""
        self.beat = clock()
        """When the thread last went round."""

    @property
    def paused(self) -> bool:
        """Whether nothing is fetched, because the lanes are full or the worker drains."""
        return self._pauses.everything

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
            self._subscribe()
            while not self._draining.is_set():
                self._go_round()
                if self._held or self.paused:
                    self._wait_for_room()
                elif self._unrouted:
                    self._receive(self._unrouted.popleft())
                else:
                    self._receive(self._next_poll())
        except BaseException as error:
            self._fail(error)
        try:
            self._idle_until_closed()
            self._consumer.close()
        except BaseException as error:
            self._fail(error)

    def bound(self, max_records: int, max_bytes: int) -> None:
        """Other lanes and bounds (see `Lanes.resize`). An errand."""
        self._poll = PollSize(max_records, max_bytes)
        self._held.bound(max_records, max_bytes)

    def _alive(self) -> None:
        self.beat = self._clock()

    def changed(self, gone: set[Assignment], added: list[Assignment]) -> None:
        """The rebalancer's word on this thread: these partitions left, those came."""
        self._held.leave(gone)
        # A record fetched before must not count as fetched by a later assignment of its partition.
        left = {assignment.partition for assignment in gone}
        self._left |= left
        for poll in self._unrouted:
            poll[:] = [m for m in poll if _place(m) not in left]
        if self._order is not None:
            self._order.forget(gone)
            self._order.watch(added)
        if self._draining.is_set():
            self._pauses.pause()
        self._pauses.came(added)

    def _go_round(self) -> None:
        """Between two polls: what only this thread may do with the consumer."""
        self.beat = now = self._clock()
        self._store.serve()
        self.errands.serve()
        if now >= self._ends_due:
            self._ends_due = now + _ENDS_SECONDS
            for assignment in self._assignments.current():
                place = confluent_kafka.TopicPartition(*assignment.partition)
                end = self._consumer.get_watermark_offsets(place, cached=True)[1]
                if end >= 0:
                    assignment.end = end

    def _subscribe(self) -> None:
        self._store.attach(self._consumer)
        self._consumer.subscribe(
            self._topics,
            on_assign=self._rebalancer.on_assign,
            on_revoke=self._rebalancer.on_revoke,
            on_lost=self._rebalancer.on_lost,
        )

    def _next_poll(self) -> list[Message]:
        """Waits for a first record, then a moment for more."""
        first = self._consumer.poll(_POLL_SECONDS)
        if first is None:
            return []
        if self._poll.records == 1:
            return [first]
        self._left.clear()
        more = self._consumer.consume(self._poll.records - 1, _FILL_SECONDS)
        return more if self._left and _place(first) in self._left else [first, *more]

    def _receive(self, messages: list[Message]) -> None:
        if not messages and not self._order:
            return
        full = len(messages) >= self._poll.records
        ends: list[Message] = []
        if any(map(_error, messages)):
            ends = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        self._route(self._in_order(messages), full=full)
        for message in ends:
            self._told(message)
        if self._order is not None:
            self._pauses.ahead(self._order.ahead())
            for assignment, end in self._order.ends():
                assignment.tracker.reach(end)

    def _route(self, runs: Iterable[tuple[Assignment, list[Record]]], *, full: bool) -> None:
        delivery = Delivery()
        count = 0
        try:
            for assignment, own in runs:
                count += len(own)
                self._router.route(assignment, own, delivery)
        finally:  # what was routed before a record that stops the worker is still handed over
            if delivery.parts:
                self._hand_over(delivery, full=full, count=count)

    def _in_order(self, messages: list[Message]) -> Iterator[tuple[Assignment, list[Record]]]:
        """The records of each partition; those of several topics in source order where that is wanted."""
        for assignment, own in self._assignments.split(messages, left=bool(self._left)):
            assignment.consumed += len(own)
            self._metrics.consumed(*assignment.partition, len(own))
            records = cast(list[Record], own)
            if self._order is None:
                yield assignment, records
            else:
                yield from self._order.add(assignment, records)
        if self._order:
            yield from self._order.due()

    def _hand_over(self, delivery: Delivery, *, full: bool, count: int) -> None:
        fits = self._held.add(delivery)
        if fits:
            self._let_processors_catch_up()
        else:
            self._held_since = self._clock()
        self._poll.adjust(delivery, count, full=full, fits=fits)

    def _let_processors_catch_up(self) -> None:
        """Quick handlers find their records in the cache if few are queued; slow ones lose nothing by it."""
        for _ in range(_BREATHS):
            if self._lanes.queued <= _QUEUED or self._draining.wait(_BREATH_SECONDS):
                break

    def _wait_for_room(self) -> None:
        """Offer what is held again; pause the partitions if that takes long, and go on polling."""
        begin = self._clock()
        if not self._held:  # what waited belonged to partitions that left
            self._lanes.forget_held()
        self._lanes.wait_for_space(_POLL_SECONDS)
        if self._held.offer():
            self._pauses.resume()
        elif self.paused:
            # For the group's sake; paused partitions give nothing but what was under way.
            late = self._consumer.consume(MOST_RECORDS, 0.0)
            if late:
                self._unrouted.append(late)
        elif begin - self._held_since > _PATIENCE:
            self._pauses.pause()
        self._metrics.backpressure(self._clock() - begin)

    def _told(self, message: Message) -> None:
        """Not a record: the end of a partition, or an error."""
        error = cast(KafkaError, message.error())
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assignment = None
        if topic is not None and partition is not None and partition >= 0:
            assignment = self._assignments.get(topic, partition)
        if error.code() == KafkaError._PARTITION_EOF:
            # Behind the last record may lie transaction markers; everything below has been read.
            if assignment is not None and offset is not None:
                assignment.end = offset
                if self._order is None or self._order.at_end(assignment, offset):
                    assignment.tracker.reach(offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and assignment is not None:
            if self._order is not None:
                self._route(self._order.let_go(assignment), full=False)
            self._rebalancer.out_of_range(self._consumer, assignment, error)
            self._pauses.came([assignment])
        elif error.fatal():
            raise KafkaException(error)
        else:
            self._errors.report(error, topic=topic)

    def _idle_until_closed(self) -> None:
        """Stay in the group without fetching, so that others do not start on what still runs here."""
        while self._held and not self._draining.is_set():  # it came before a record that stops the worker
            self._go_round()
            self._wait_for_room()
        self._held.clear()
        self._unrouted.clear()
        self._pauses.pause()
        while not self._closing.is_set():
            self._go_round()
            self._consumer.consume(MOST_RECORDS, _POLL_SECONDS)


def _place(message: Message) -> TopicPartition:
    return TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
