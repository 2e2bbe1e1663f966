"""Read complete topics, and extract one table's changes as a worker would pass them to its handler."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from handlers import Change
from handlers.kafka.librdkafka import close_in_time
from offsets.topic_ids import TopicIds
from offsets.types import TopicPartition
from worker.column_rules.applying import bring_under, decode_under
from worker.column_rules.judging import Unmet
from worker.column_rules.transforms import FAULTS
from worker.configuration import Configuration, TableRule
from worker.configuration.formats import formats_of
from worker.fetching.barrier_tables import may_name, refusal, shows
from worker.formats.decoding import explained
from worker.formats.images import tables_of
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord, remade
from worker.formats.registry import NoFormatError
from worker.kafka.connection import KAFKA_SECONDS, ReadFault, bounds, bounds_of, connected, read_between


class WholeTopics:
    """All partitions of some topics, read by a consumer that joins no group and commits nothing."""

    def __init__(self, configuration: Configuration, topics: list[str]) -> None:
        """Raise ReadFault if Kafka does not answer, or no longer has all records ever written."""
        self._consumer, admin = connected(configuration)
        self.next: dict[tuple[str, int], int] = {}
        """The next offset of each partition. The caller has received all records before it."""
        try:
            for topic in topics:
                self.next.update(self._beginnings(topic))
            _refuse_compacted(admin, topics)
            self.topic_ids = TopicIds(admin).now(topics, KAFKA_SECONDS)
        except ReadFault:
            self.close()
            raise

    def records(self) -> Generator[Record]:
        """Yield records from the current positions to the current end of each partition.

        A record counts as received at the next request, or at the generator's end. Raises ReadFault."""
        try:
            ends = {place: bounds(self._consumer, TopicPartition(*place))[1] for place in self.next}
            for place, reached, record in read_between(self._consumer, self.next, ends):
                if record is not None:
                    yield record
                self.next[place] = max(self.next[place], reached)
        except KafkaException as error:
            raise ReadFault(f"Kafka: {error.args[0].str()}") from None

    def close(self) -> None:
        close_in_time(self._consumer)

    def _beginnings(self, topic: str) -> Iterator[tuple[TopicPartition, int]]:
        found = bounds_of(self._consumer, topic)
        if not found:
            raise ReadFault(f"there is no topic {topic}")
        for place, (first, _) in found.items():
            if first > 0:
                raise ReadFault(
                    f"{place} begins at offset {first}: earlier records were deleted (retention.ms, "
                    "retention.bytes), so a table built from the rest would lack rows. Have the source send "
                    "a new snapshot instead"
                )
            yield place, first


def _refuse_compacted(admin: AdminClient, topics: list[str]) -> None:
    asked: list[Any] = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    try:
        for resource, future in admin.describe_configs(asked, request_timeout=KAFKA_SECONDS).items():
            policy = future.result(KAFKA_SECONDS)["cleanup.policy"].value
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
