"""Which consumers have to leave the group before they are closed."""

from __future__ import annotations

from typing import Any

import pytest
from building import configuration

from worker.configuration.kafka_properties import consumer_settings
from worker.kafka.group import close_stays

KAFKA = {"bootstrap_servers": "localhost:9092", "group_id": "shop", "topics": ["cdc"]}


@pytest.mark.parametrize(
    ("properties", "stays"),
    [
        ({}, True),
        ({"partition.assignment.strategy": "range"}, False),
        ({"group.protocol": "consumer"}, False),
        ({"group.instance.id": "shop-0"}, False),  # it comes back, and finds its place
    ],
)
def test_a_member_that_librdkafka_would_leave_in_the_group_leaves_it_first(
    properties: dict[str, Any], stays: bool
) -> None:
    settings = consumer_settings(configuration(kafka={**KAFKA, "properties": properties}).kafka)
    assert close_stays(settings) is stays
