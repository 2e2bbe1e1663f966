"""Column rules on deletes of PostgreSQL, whose log holds the key alone by default."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from confluent_kafka import Message
from ruling import rule_of, ruled

from handlers import Change
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Record

SOURCE = {"connector": "postgresql", "name": "pg1", "db": "shop", "schema": "shop", "table": "users"}
FILLED = {
    **{"id": 34, "name": "", "email": None, "active": True, "at": "1970-01-01T00:00:00Z", "n": 0},
    "total": "0.00",  # decimal.handling.mode string
}
"""As captured under REPLICA IDENTITY DEFAULT: columns that are NOT NULL have their defaults."""


def deleted(**rules: Any) -> list[Change]:
    value = {"op": "d", "before": FILLED, "after": None, "ts_ms": 1763000000000, "source": SOURCE}
    record = Message(
        topic="pg1.shop.users",
        partition=0,
        offset=0,
        key=json.dumps({"id": 34}).encode(),
        value=json.dumps(value).encode(),
    )
    changes: list[Change] = []
    Debezium().decode(cast(Record, record), changes)
    return ruled(rule_of(**rules), changes)


@pytest.mark.parametrize("text", ["name <> ''", "n > 5", "NOT active", "at > '2020-01-01'"])
def test_a_delete_goes_on_though_the_filter_takes_none_of_what_the_connector_fills_in(text: str) -> None:
    """Else the row would stay in the target for ever."""
    [change] = deleted(filter=text)
    assert (change.op, change.before) == ("delete", {"id": 34})


def test_a_marked_row_keeps_its_values() -> None:
    [change] = deleted(deletes="mark")
    assert change.op == "update"
    assert change.after is not None
    assert set(change.after) == {"id", "deleted_at"}
