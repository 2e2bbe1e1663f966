"""The components of a worker, made and joined from its configuration; nothing is started."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import client_logger
from handlers.options.matching import topics_matcher
from offsets.finished import FinishedMap
from offsets.stores import PolledKafkaStore
from offsets.topic_ids import TopicIds
from worker.attempts.circuit import Circuit
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.configuration.kafka_properties import admin_settings, consumer_settings, producer_settings
from worker.dead_letters.writing import DEAD_LETTER_TARGET, DeadLetters
from worker.fetching.ddl_history import DDLHistory
from worker.fetching.fetcher import Fetcher
from worker.fetching.routing import Router
from worker.fetching.source_order import SourceOrder, ends_told_by
from worker.kafka.brokers import Brokers
from worker.kafka.errors import KafkaErrors
from worker.kafka.group_strategies import GroupStrategies
from worker.kafka.instance_id import InstanceId
from worker.kafka.leaving import close_stays
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.former_topics import FormerRecords
from worker.partitions.journaling import Journaling, journal_of
from worker.partitions.membership import Membership, session_of
from worker.partitions.own_store import own_store
from worker.partitions.rebalance import Rebalancer
from worker.partitions.refetching import Refetching
from worker.partitions.starts import Starts
from worker.partitions.whole_share import WholeShare
from worker.processing.failures import FailureRules
from worker.processing.slow_calls import RunningCalls
from worker.running.ending import KAFKA_SECONDS
from worker.running.handlers.handler_set import HandlerSet
from worker.running.traced import processors, saved, tracing_of
from worker.running.unreadable import Unreadable
from worker.stuck.stuck_heads import StuckHeads
from worker.stuck.unblocking import Unblocking
from worker.units.assigned_partition import Assignments
from worker.units.table_book import TableBook

SCHEMA_REGISTRY_TARGET = "__schema_registry__"
"""Among the handlers' names."""

_STATISTICS_MS = "10000"
"""How often librdkafka tells how far it has fetched; 0.1 ms of CPU each time for a hundred partitions."""


class Components:
    """Every object that docs/architecture.md draws, joined to the others."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
        stop: threading.Event,
    ) -> None:
        """`fail` is told the error of a thread that cannot go on; `stop` is set when the worker is to end.

        Raises SettingsError, KafkaException, HandlerTypeError, OptionsError."""
        lanes, checkpoint = configuration.lanes, configuration.checkpoint
        self.metrics = Metrics()
        self.tracing = tracing_of(configuration, self.metrics)
        self.assignments = Assignments()
        self.handlers = HandlerSet(
            configuration,
            fail=fail,
            metrics=self.metrics.handlers,
            partitions=lambda: [assignment.partition for assignment in self.assignments.current()],
            stopping=stop.is_set,
        )
        self.errors = KafkaErrors(clock, self.metrics.kafka_error, GroupStrategies(configuration))
        self.brokers = Brokers()
        self.book = TableBook(configuration, self.handlers.of, self.metrics.tables.label)
        self.local = own_store(configuration, alone=True)
        self.kafka = PolledKafkaStore(KAFKA_SECONDS, clock)
        self.finished_map = FinishedMap(checkpoint.directory, configuration.kafka.group_id)
        self.lanes = Lanes(
            lanes.count,
            max_records=lanes.max_records,
            max_bytes=lanes.max_bytes,
            work_stealing=lanes.work_stealing,
            clock=clock,
        )
        self.calls = RunningCalls()
        self.dead_letters = None
        if configuration.dead_letter is not None:
            self.dead_letters = DeadLetters(
                configuration.dead_letter,
                producer_settings(configuration),
                worker=configuration.name,
                finished=lambda: self.lanes.finished_records,
                redact=configuration.secrets.redact,
                metrics=self.metrics,
                back=self.lanes.unblock,
                random=random.random,
                clock=clock,
            )
        rules = FailureRules(
            on_undecodable=configuration.on_undecodable, dead_letters=self.dead_letters, calls=self.calls
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
        settings = consumer_settings(configuration)
        self.membership = Membership(self.lanes, session_of(settings), clock)
        self.kafka.taken = self.membership.confirmed
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
        self.kafka.sending = self.committer.sending
        formats = formats_of(configuration, patience=None, rebuilt=self.metrics.schema_rebuilt)
        self.registry = Circuit(clock)
        if formats.schemas is not None:
            formats.schemas.told = self.registry.told
        self._has_registry = formats.schemas is not None
        incremental = _is_incremental(settings)
        admin = AdminClient(admin_settings(configuration), logger=client_logger())
        topic_ids = TopicIds(admin)
        self.former = FormerRecords(self.lanes, clock)
        starts = Starts(configuration, local=self.local, kafka=self.kafka, topic_ids=topic_ids, stopping=stop)
        self.rebalancer = Rebalancer(
            starts,
            revoke_timeout=configuration.revoke_timeout,
            assignments=self.assignments,
            book=self.book,
            lanes=self.lanes,
            former=self.former,
            committer=self.committer,
            kafka=self.kafka,
            finished_map=self.finished_map,
            topic_ids=topic_ids,
            format_of=formats.of_assigned,
            metrics=self.metrics,
            incremental=incremental,
            release=self.handlers.release,
            settled=self.errors.settled,
        )
        self.consumer = consumer = Consumer(
            {"statistics.interval.ms": _STATISTICS_MS, **settings},
            error_cb=self.errors.report,
            on_commit=self.kafka.answered,
            stats_cb=self._statistics,
            logger=client_logger(),
        )
        self.refetching = Refetching(
            consumer,
            self.assignments,
            self.rebalancer,
            topic_ids=topic_ids,
            initial=checkpoint.initial,
            incremental=incremental,
            clock=clock,
        )
        topics = list(dict.fromkeys([*configuration.kafka.topics, *configuration.kafka.ddl_topics]))
        order, self.history, self.share = None, None, None
        if configuration.kafka.ddl_topics:
            has_ddl = topics_matcher(configuration.kafka.ddl_topics)
            order = SourceOrder(has_ddl, high=ends_told_by(consumer), max_bytes=lanes.max_bytes, clock=clock)
            self.share = WholeShare(
                consumer, self.assignments, topics_matcher(topics), configuration.kafka.ddl_topics
            )
            self.history = DDLHistory(settings, has_ddl, formats.of_assigned, stopping=stop)
        self.fetcher = Fetcher(
            consumer,
            topics,
            assignments=self.assignments,
            router=Router(self.book, self.metrics, on_undecodable=configuration.on_undecodable),
            rebalancer=self.rebalancer,
            refetching=self.refetching,
            lanes=self.lanes,
            errors=self.errors,
            store=self.kafka,
            membership=self.membership,
            metrics=self.metrics,
            order=order,
            share=self.share,
            prepare=[
                *([] if self.history is None else [self.history.read]),
                InstanceId(settings, topics, admin, errors=self.errors, stopping=stop, clock=clock).wait,
            ],
            max_records=lanes.max_records,
            max_bytes=lanes.max_bytes,
            max_ahead=configuration.max_ahead,
            leaves=close_stays(settings),
            clock=clock,
            fail=fail,
        )

        self.stuck = StuckHeads(
            self.assignments,
            self.lanes,
            self.calls,
            units=self.book.all,
            held=self.fetcher.backlog.parts,
            after=configuration.stuck_after,
            clock=clock,
        )
        self.unblocking = Unblocking(
            self.assignments,
            self.lanes,
            self.calls,
            units=self.book.all,
            held=self.fetcher.backlog.parts,
            commit=self.committer.commit,
            letters=self.dead_letters is not None,
            stopped=stop.is_set,
            clock=clock,
        )

        self.unreadable = Unreadable(
            self.assignments,
            self.fetcher,
            settings=settings,
            commit=self.committer.commit,
            stopped=stop.is_set,
        )

    def man(self, lanes: Iterable[int]) -> None:
        """Start a processor for each of these lanes. Those whose lanes were given up end by themselves."""
        new = [self._processor(number) for number in lanes]
        self.processors = [each for each in self.processors if not each.dismissed] + new
        for processor in new:
            processor.start()

    def circuits(self) -> list[tuple[str, Circuit]]:
        """What is known of each target, by the handler's name; last the dead-letter topic and the schema
        registry."""
        found = list(self.handlers.circuits())
        if self.dead_letters is not None:
            found.append((DEAD_LETTER_TARGET, self.dead_letters.circuit))
        if self._has_registry:
            found.append((SCHEMA_REGISTRY_TARGET, self.registry))
        return found

    def _statistics(self, text: str) -> None:
        self.fetcher.standstill.statistics(text)
        self.brokers.statistics(text)


def _is_incremental(settings: Mapping[str, Any]) -> bool:
    """Whether a rebalance takes only the partitions that leave."""
    strategy = str(settings.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or settings.get("group.protocol") == "consumer"
