"""The options of the `kafka` handler that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.kafka.handler import KafkaHandler
from handlers.options.faults import check_options

PROPERTIES = ("properties",)


@pytest.mark.parametrize(
    ("options", "path", "told"),
    [
        ({}, ("bootstrap_servers",), "missing"),
        ({"bootstrap_servers": ""}, ("bootstrap_servers",), "not empty"),
        ({"bootstrap_servers": "h", "topic": "a:{table}"}, ("topic",), "cannot have :"),
        ({"bootstrap_servers": "h", "topic": "{key}"}, ("topic",), "{key} is not allowed here"),
        ({"bootstrap_servers": "h", "topic": "{tabel}"}, ("topic",), "nearest: {table}"),
        ({"bootstrap_servers": "h", "topic": ""}, ("topic",), "empty"),
        ({"bootstrap_servers": "h", "value": "row"}, ("value",), "change, after"),
        (
            {"bootstrap_servers": "h", "properties": {"acks": 1}},
            ("properties",),
            "acks: the handler sets it itself",
        ),
        ({"bootstrap_servers": "h", "properties": {"linger": 5}}, PROPERTIES, "linger"),
        ({"bootstrap_servers": "h", "properties": {"linger.ms": "5ms"}}, PROPERTIES, "without a unit"),
        ({"bootstrap_servers": "h", "properties": {"batch.size": "hunter22"}}, PROPERTIES, "batch.size"),
        (
            {"bootstrap_servers": "h", "properties": {"transactional.id": "x"}},
            ("properties",),
            "transactional.id",
        ),
        ({"bootstrap_servers": "h", "topics": "x"}, ("topics",), "nearest: topic"),
    ],
)
def test_options_that_cannot_be_used_are_faults(
    options: dict[str, Any], path: tuple[str, ...], told: str
) -> None:
    (fault,) = check_options(KafkaHandler, options)
    assert fault.path == path
    assert told in fault.message
    assert "hunter22" not in fault.message
