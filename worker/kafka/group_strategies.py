"""Find how group members' assignment strategies differ if the group rejects this worker for that."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from handlers.kafka.librdkafka import client_logger
from handlers.logs import get_logger
from worker.configuration import Configuration
from worker.configuration.kafka_properties import admin_settings, consumer_settings

log = get_logger("kafka")

_ANSWER_SECONDS = 10.0
_MOST_NAMED = 5


class GroupStrategies:
    """`ask` does not block. Any thread may read `text`."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._group = configuration.kafka.group_id
        self._own = consumer_settings(configuration).get("partition.assignment.strategy")
        self.text = ""
        """The latest finding, after a colon; empty: none yet."""

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(admin_settings(self._configuration), logger=client_logger())

    def ask(self) -> None:
        """Ask the coordinator. The answer is logged and stored in `text`."""
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            log.warning("group_not_described", group=self._group, error=str(error))
            return
        asked[self._group].add_done_callback(self._answered)

    def _answered(self, answer: Future[Any]) -> None:
        try:
            found = answer.result()
        except KafkaException as error:
            log.warning("group_not_described", group=self._group, error=str(error))
            return
        members = [f"{each.client_id} at {each.host.removeprefix('/')}" for each in found.members]
        more = f" and {len(members) - _MOST_NAMED:,} more" if len(members) > _MOST_NAMED else ""
        theirs = found.partition_assignor or str(found.type)
        named = ", ".join(members[:_MOST_NAMED]) + more
        told = f"this worker offers {self._own}, the group uses {theirs}: {named}"
        self.text = f": {told}"
        log.error("group_strategies_differ", group=self._group, found=told)
