"""The components of a worker, built and connected from its configuration. Nothing is started."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import client_logger
from handlers.options.matching import topics_matcher
from offsets.finished import FinishedMap
from offsets.stores.polled import PolledKafkaStore
from offsets.topic_ids import TopicIds
from worker.attempts.circuit import Circuit
from worker.attempts.table_pauses import TablePauses
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.configuration.kafka_properties import admin_settings, consumer_settings, producer_settings
from worker.dead_letters.writing import DeadLetters
from worker.fetching.backpressure import Backpressure, MaxAhead
from worker.fetching.ddl_history import DDLHistory
from worker.fetching.fetcher import Beat, Fetcher, Requests
from worker.fetching.held_records import HeldRecords
from worker.fetching.parking import Parking
from worker.fetching.receiving import Arrivals, KafkaAnswers, Receiver
from worker.fetching.routing import Router
from worker.fetching.source_order import SourceOrder
from worker.fetching.standstill import Standstill, known_end
from worker.formats.registry import FormatChoice
from worker.kafka.errors import GroupStrategies, KafkaErrors
from worker.kafka.group import InstanceId, close_stays
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.journaling import Journaling
from worker.partitions.membership import Membership, WholeShare, session_of
from worker.partitions.own_store import journal_of, own_store
from worker.partitions.rebalance import FormerRecords, NewAssignments, Rebalancer
from worker.partitions.refetching import Refetching
from worker.partitions.stage import Stage
from worker.partitions.starts import Starts
from worker.processes.beginning import Begun
from worker.processes.processes import Processes
from worker.processing.failures import FailureRules
from worker.processing.slow_calls import RunningCalls
from worker.processing.traced import processors, saved, tracing_of
from worker.running.handler_set import HandlerSet
from worker.running.process import KAFKA_SECONDS
from worker.running.unreadable import Unreadable
from worker.stuck.stuck_heads import StuckHeads, UnfinishedRecords
from worker.stuck.unblocking import Unblocking
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.parking_files import ParkingLot
from worker.units.table_book import TableBook

_STATISTICS_MS = "10000"
"""The interval of librdkafka's statistics. They cost 0.1 ms of CPU each time for a hundred partitions."""


class Components:
    """Every object in the picture of docs/architecture.md, connected to the others."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
        stop: threading.Event,
        forked: Sequence[Begun] = (),
    ) -> None:
        """`fail` gets the error of a thread that cannot continue. `stop` is set when the worker must end.
        `forked`: of `Processes`.

        Raises SettingsError, KafkaException, HandlerTypeError, OptionsError."""
        lanes, checkpoint = configuration.lanes, configuration.checkpoint
        self.metrics = Metrics(group=configuration.kafka.group_id)
        self.tracing = tracing_of(configuration, self.metrics)
        self.assignments = Assignments()
        self.has_broker: bool | None = None
        """Whether Kafka can be reached, as its client reports; None: not known yet, or never, if
        `statistics.interval.ms` is 0. The polling thread writes it; any thread may read it."""
        self.processes = None
        if lanes.processes:
            self.processes = Processes(
                configuration,
                metrics=self.metrics.handlers,
                fail=fail,
                rebuilt=partial(self.metrics.count, "binlane_schemas_rebuilt_total"),
                trusted_until=lambda: self.lanes.trusted_until,
                ready=lambda: self.lanes.unblock(),  # noqa: PLW0108 - made later
                ended=partial(self.metrics.count, "binlane_lane_processes_ended_total"),
                forked=forked,
            )
        self.handlers = HandlerSet(
            configuration,
            processes=self.processes,
            fail=fail,
            metrics=self.metrics.handlers,
            partitions=lambda: [assignment.partition for assignment in self.assignments.current()],
            stopping=stop.is_set,
        )
        count = partial(self.metrics.count, "binlane_kafka_errors_total")
        self.errors = KafkaErrors(clock, count, GroupStrategies(configuration))
        self.book = TableBook(configuration, self.handlers.of, self.metrics.tables.label)
        self.local = own_store(configuration, alone=True)
        self.finished_map = FinishedMap(checkpoint.directory, configuration.kafka.group_id)
        self.lanes = Lanes(lanes, clock)
        self.parking_lot = ParkingLot(checkpoint.directory)
        self.calls = RunningCalls(configuration.name)
        self.dead_letters = None
        if configuration.dead_letter is not None:
            self.dead_letters = DeadLetters(
                configuration.dead_letter,
                producer_settings(configuration.kafka),
                worker=configuration.name,
                finished=lambda: self.lanes.seen.finished_records,
                redact=configuration.secrets.redact,
                metrics=self.metrics,
                back=self.lanes.unblock,
                random=random.random,
                clock=clock,
            )
        self.table_pauses = TablePauses(
            configuration, self.book.names, partial(self.lanes.unblock, pauses=True)
        )
        rules = FailureRules(
            on_undecodable=configuration.on_undecodable,
            dead_letters=self.dead_letters,
            calls=self.calls,
            pauses=self.table_pauses,
        )
        self._processor = partial(
            processors(self.tracing),
            lanes=self.lanes,
            metrics=self.metrics,
            rules=rules,
            clock=clock,
            random=random.random,
            fail=fail,
        )
        self.processors = [self._processor(number) for number in range(lanes.count)]
        settings = consumer_settings(configuration.kafka)
        self.membership = Membership(self.lanes, session_of(settings), clock)
        self.kafka = PolledKafkaStore(
            KAFKA_SECONDS, clock, taken=self.membership.confirmed, sending=self.assignments.sending
        )
        journal = journal_of(configuration)
        self.committer = Committer(
            self.assignments,
            self.local,
            self.kafka,
            interval=checkpoint.interval,
            metrics=self.metrics,
            clock=clock,
            fail=fail,
            finished_map=self.finished_map,
            membership=self.membership,
            journal=saved(self.tracing, None if journal is None else Journaling(journal, self.metrics)),
        )
        rebuilt = partial(self.metrics.count, "binlane_schemas_rebuilt_total")
        formats = formats_of(
            configuration,
            patience=None,
            rebuilt=rebuilt,
            present=lambda: self.book.configuration,
            **({} if self.processes is None else {"wrapped": self.processes.given.noting}),
        )
        if self.processes is not None:
            self.processes.given.share(formats)
        self.registry = None if formats.schemas is None else Circuit(clock)
        if formats.schemas is not None and self.registry is not None:
            formats.schemas.told = self.registry.told
        self.consumer = consumer = Consumer(
            {"statistics.interval.ms": _STATISTICS_MS, **settings},
            error_cb=self.errors.report,
            on_commit=self.kafka.answered,
            stats_cb=self._statistics,
            logger=client_logger(),
        )
        self.backpressure = Backpressure(
            consumer, self.assignments, self.lanes, self.kafka, self.metrics, rule=lanes, clock=clock
        )
        self.backlog, self.pauses = self.backpressure.backlog, self.backpressure.pauses
        self.former = FormerRecords(self.lanes, self.backlog.offer, clock)
        self.beat = Beat(clock)
        self._read(configuration, settings, formats, stop=stop, clock=clock, fail=fail)

    def _read(
        self,
        configuration: Configuration,
        settings: dict[str, Any],
        formats: FormatChoice,
        *,
        stop: threading.Event,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Build the parts that read, and those that set records aside. `settings`: the consumer's."""
        consumer, assignments = self.consumer, self.assignments
        admin = AdminClient(admin_settings(configuration.kafka), logger=client_logger())
        topic_ids = TopicIds(admin)
        self.starts = Starts(configuration, self.local, self.kafka, topic_ids, alive=self.beat, stopping=stop)
        self.new_assignments = NewAssignments(assignments, topic_ids, self.finished_map, formats.of_assigned)
        self.stages: list[Stage] = []  # filled below, because some of them call all of them
        self.rebalancer = Rebalancer(
            self.starts,
            stages=self.stages,
            new_assignments=self.new_assignments,
            withdraw=self._withdraw,
            former=self.former,
            committer=self.committer,
            metrics=self.metrics,
            release=self.handlers.release,
        )
        router = Router(self.book, self.metrics, on_undecodable=configuration.on_undecodable)
        self.receiver = Receiver(self.stages, assignments, router, self.backpressure)
        self.gate = HeldRecords(
            self.pauses, assignments, commit=self.committer.wake, lose=self.former.lose, clock=clock
        )
        self.refetching = Refetching(
            consumer,
            assignments,
            self.pauses,
            self.starts,
            self.new_assignments,
            stages=self.stages,
            flush_all=self.receiver.flush,
            clock=clock,
        )
        self.standstill = Standstill(
            consumer, assignments, self.pauses, self.refetching, self.backpressure.takes_nothing
        )
        self.requests = Requests()
        ddl_topics = configuration.kafka.ddl_topics
        topics = list(dict.fromkeys([*configuration.kafka.topics, *ddl_topics]))
        self.order, self.history, self.share = None, None, None
        if ddl_topics:
            has_ddl = topics_matcher(ddl_topics)
            self.order = SourceOrder(
                has_ddl,
                high=partial(known_end, consumer),
                pauses=self.pauses,
                are_held=self.gate.__bool__,
                is_damaged=self.standstill.is_damaged,
                max_bytes=configuration.lanes.max_bytes,
                clock=clock,
            )
            self.share = WholeShare(consumer, assignments, topics_matcher(topics), ddl_topics)
            self.history = DDLHistory(settings, has_ddl, formats.of_assigned, stopping=stop)
        stages: list[Stage | None] = [
            KafkaAnswers(self.kafka, self.errors),
            self.membership,
            self.requests,
            self.gate,  # before stages that count records as fetched, and the end as reached
            self.standstill,
            self.refetching,
            Arrivals(self.metrics.consumed),
            self.order,
            MaxAhead(self.pauses, configuration.max_ahead),
            Parking(
                self.parking_lot, self.lanes, self.book.all, self.pauses, most=configuration.lanes.parked
            ),
            self.share,
            self.backlog,
            self.backpressure.polls,
            self.pauses,  # last: passes the other stages' pauses of new partitions to librdkafka
        ]
        self.stages += [stage for stage in stages if stage is not None]
        self.fetcher = Fetcher(
            consumer,
            self.receiver,
            prepare=[
                *([] if self.history is None else [self.history.read]),
                InstanceId(settings, topics, admin, errors=self.errors, stopping=stop, clock=clock).wait,
                lambda _: self.kafka.attach(consumer),
                lambda _: self.rebalancer.subscribe(consumer, topics),
            ],
            leaves=close_stays(settings),
            beat=self.beat,
            fail=fail,
        )
        parts = self.backlog.parts
        records = UnfinishedRecords(
            assignments, self.lanes, self.calls, units=self.book.all, held=parts, clock=clock
        )
        self.stuck = StuckHeads(records, configuration.stuck_after)
        has_letters = self.dead_letters is not None
        self.unblocking = Unblocking(
            records, commit=self.committer.commit, letters=has_letters, stopped=stop.is_set
        )
        self.unreadable = Unreadable(
            self.assignments,
            self.requests,
            standstill=self.standstill,
            refetching=self.refetching,
            stages=self.stages,
            settings=settings,
            commit=self.committer.commit,
            stopped=stop.is_set,
        )

    def _withdraw(self, gone: set[Assignment], seconds: float) -> list[str]:
        """See `Rebalancer`."""
        running = self.lanes.withdraw(self.book.all(), gone, seconds)
        if running:
            self.calls.let_go()
        return running

    def man(self, lanes: Iterable[int]) -> None:
        """Start a processor for each of these lanes. Processors of removed lanes end by themselves."""
        new = [self._processor(number) for number in lanes]
        self.processors = [each for each in self.processors if not each.dismissed] + new
        for processor in new:
            processor.start()

    def _statistics(self, text: str) -> None:
        self.has_broker = self.standstill.statistics(text)
