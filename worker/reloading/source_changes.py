"""Read complete topics, and extract one table's changes as a worker would pass them to its handler."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from handlers import Change
from handlers.kafka.librdkafka import SILENT, close_in_time
from offsets.topic_ids import TopicIds
from worker.column_rules.applying import bring_under, decode_under
from worker.column_rules.expectations import Unmet
from worker.column_rules.transforms import FAULTS
from worker.configuration import Configuration, TableRule
from worker.configuration.formats import formats_of
from worker.configuration.kafka_properties import admin_settings, consumer_settings
from worker.fetching.barrier_tables import may_name, refusal, shows
from worker.formats.decoding import explained
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord, remade
from worker.formats.registry import NoFormatError
from worker.formats.statements import tables_of
from worker.kafka.connection import reach_kafka

_SECONDS = 10.0
_POLL_RECORDS, _POLL_SECONDS = 1_000, 0.02

Partition = tuple[str, int]


class ReadFault(Exception):
    """Why the topics cannot be read completely, in one sentence."""


class WholeTopics:
    """All partitions of some topics, read by a consumer that joins no group and commits nothing."""

    def __init__(self, configuration: Configuration, topics: list[str]) -> None:
        """Raise ReadFault if Kafka does not answer, or no longer has all records ever written."""
        reached = reach_kafka(configuration, _SECONDS)[0]
        if reached.error is not None:
            raise ReadFault(f"{reached.target}: {reached.error}")
        admin = AdminClient(admin_settings(configuration.kafka), logger=SILENT)
        settings = consumer_settings(configuration.kafka)
        settings.pop("group.instance.id", None)
        self._consumer = Consumer(settings, logger=SILENT)
        self.next: dict[Partition, int] = {}
        """The next offset of each partition. The caller has received all records before it."""
        try:
            numbers = {topic: self._numbers(topic) for topic in topics}
            _refuse_compacted(admin, topics)
            self.topic_ids = TopicIds(admin).now(topics, _SECONDS)
            for topic in topics:
                for number in numbers[topic]:
                    self.next[topic, number] = self._beginning(topic, number)
        except KafkaException as error:
            self.close()
            raise ReadFault(f"Kafka: {error.args[0].str()}") from None
        except ReadFault:
            self.close()
            raise

    def records(self) -> Generator[Record]:
        """Yield records from the current positions to the current end of each partition.

        A record counts as received at the next request, or at the generator's end. Raises ReadFault."""
        if not self.next:
            return
        places = [confluent_kafka.TopicPartition(*place, offset) for place, offset in self.next.items()]
        # Assigned again, so that Kafka reports the end of each partition again.
        self._consumer.assign(places)
        # Kafka reports no end while new records keep arriving, so the end is fixed here.
        try:
            ends = {place: self._bounds(*place)[1] for place in self.next}
        except KafkaException as error:
            raise ReadFault(f"Kafka: {error.args[0].str()}") from None
        left = {place for place, end in ends.items() if self.next[place] < end}
        last = time.monotonic()
        while left:
            for message in self._consumer.consume(_POLL_RECORDS, _POLL_SECONDS):
                place = cast(str, message.topic()), cast(int, message.partition())
                fault, last = message.error(), time.monotonic()
                offset = cast(int, message.offset())
                if fault is None:
                    yield cast(Record, message)
                    last = time.monotonic()  # a slow target does not mean that Kafka is silent
                    self.next[place] = offset + 1
                    if offset + 1 >= ends[place]:
                        left.discard(place)
                elif fault.code() == KafkaError._PARTITION_EOF:
                    self.next[place] = max(self.next[place], offset)
                    left.discard(place)
                else:
                    raise ReadFault(f"{place[0]}[{place[1]}]: {fault.str()}")
            if time.monotonic() - last > _SECONDS:
                raise ReadFault(f"no answer from Kafka within {_SECONDS:g} s")

    def close(self) -> None:
        close_in_time(self._consumer)

    def _numbers(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
        if found.error is not None:
            raise ReadFault(f"topic {topic}: {found.error.str()}")
        return sorted(found.partitions)

    def _bounds(self, topic: str, number: int) -> tuple[int, int]:
        place = confluent_kafka.TopicPartition(topic, number)
        return self._consumer.get_watermark_offsets(place, timeout=_SECONDS)

    def _beginning(self, topic: str, number: int) -> int:
        first, _ = self._bounds(topic, number)
        if first > 0:
            raise ReadFault(
                f"{topic}[{number}] begins at offset {first}: earlier records were deleted (retention.ms, "
                "retention.bytes), so a table built from the rest would lack rows. Have the source send a "
                "new snapshot instead"
            )
        return first


def _refuse_compacted(admin: AdminClient, topics: list[str]) -> None:
    asked: list[Any] = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    try:
        for resource, future in admin.describe_configs(asked, request_timeout=_SECONDS).items():
            policy = future.result(_SECONDS)["cleanup.policy"].value
            if "compact" in policy:
                raise ReadFault(
                    f"topic {resource.name} is compacted (cleanup.policy={policy}): some of its records may "
                    "be gone, so a table built from the rest could lack rows. Have the source send a new "
                    "snapshot instead"
                )
    except (KafkaException, KeyError, TimeoutError) as error:
        raise ReadFault(
            f"Kafka does not say whether {', '.join(topics)} still contain all records (the account needs "
            f"the ACL DescribeConfigs): {error}"
        ) from None


class Unfollowable(Exception):
    """Why the table cannot be built from these records, in one sentence."""


class ChangesOf:
    """The changes of one table. For one thread."""

    def __init__(self, configuration: Configuration, rule: TableRule, database: str, name: str) -> None:
        self._configuration = configuration
        self._formats = formats_of(configuration)
        self._halts = configuration.on_undecodable == "halt"
        self._rule = rule
        self._database, self._name = database, name
        self.undecodable = 0
        """Records that were skipped, as on_undecodable says."""

    def of(self, record: Record) -> Iterator[Sequence[Change]]:
        """Yield the changes of the record; a statement comes alone. Raises Unfollowable."""
        place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
        try:
            format_ = self._formats.of(record.topic())
            for route, piece in self._pieces(format_, record):
                is_ours = (route.database, route.table) == (self._database, self._name)
                ours, given = f"{self._database}.{self._name}", self._configuration
                if not is_ours:
                    fault = refusal(format_, piece) if route.alone else None
                    if fault is not None and shows(fault, ours, given):
                        raise fault
                    is_named = route.alone and may_name(format_, piece, route.database, ours, given)
                    if fault is not None or not is_named:
                        continue
                changes: list[Change] = []
                rules = (self._rule.row_rules if is_ours else None, self._rule.statement_rules)
                decode_under(format_, piece, changes, *rules, alone=route.alone)
                self._refuse_others(changes, route.database, place, is_ours=is_ours)
                if is_ours:
                    names: Any = {"database": self._database, "table": self._name}
                    bring_under(*rules, changes, 0, self._rule.transforming, **names)
                    expected = self._rule.expectations
                    unmet = None if expected is None else expected.unmet(changes, ours)
                    if unmet is not None and unmet.action != "warn":
                        raise unmet
                    if changes:
                        yield changes
        except NoFormatError as error:
            raise Unfollowable(str(error)) from None
        except FAULTS as fault:
            raise Unfollowable(f"{place}: column rules: {fault}") from None
        except UndecodableRecord as fault:
            if isinstance(fault, Unmet) and fault.action == "halt":
                raise Unfollowable(str(fault)) from None
            if self._halts and not isinstance(fault, Unmet):
                raise Unfollowable(
                    f"undecodable record at {place}: {fault}. To skip all such records, set on_undecodable: "
                    "skip, or dead_letter"
                ) from None
            self.undecodable += 1

    def _pieces(self, format_: Format, record: Record) -> Iterator[tuple[Route, Record]]:
        try:
            route: Route | Skip | Apart | None = format_.route(record.value() or b"")
        except Exception:  # as in the router: the slow path then finds the reason
            route = None
        if route is None or not (route.database and route.table):  # type: ignore[union-attr]
            route = explained(format_, record)
        if isinstance(route, Apart):
            for own, value in route.parts:
                piece = remade(record, record.key(), value)
                if not own.table:
                    explained(format_, piece)  # raises with the reason
                yield own, piece
        elif not isinstance(route, Skip):
            yield route, record

    def _refuse_others(self, changes: Sequence[Change], database: str, place: str, *, is_ours: bool) -> None:
        """Refuse a statement about this table and another: rows or columns come from the other one."""
        ours = self._database, self._name
        for change in changes:
            named = tables_of(change.sql or "", database)
            others = [one for one in named if one != ours]
            if others and (is_ours or any(one in (ours, ("", self._name)) for one in named)):
                told = ", ".join(".".join(filter(None, one)) for one in named)
                raise Unfollowable(
                    f"{place} is a statement about several tables ({told}): the contents of "
                    f"{self._database}.{self._name} do not follow from its own records alone"
                )
