"""Tables of several databases, gathered into one: what Canal tells of them, as handlers get it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Message

from handlers import Batch, Change
from worker.column_rules.applying import bring_under
from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.formats.interface import Record

__all__ = ["HIDDEN", "ROWS", "batches"]

HIDDEN = "hidden-"
_TYPES = {
    "id": "varchar(20)",
    "name": "varchar(9)",
    "n": "bigint",
    "state": "varchar(9)",
    "ssn": "varchar(20)",
}


def _told(
    database: str, kind: str, *rows: Mapping[str, Any], old: Any = None, **types: str
) -> dict[str, Any]:
    data = [{"state": "active", "ssn": f"{HIDDEN}{number}", **row} for number, row in enumerate(rows)]
    every = {**_TYPES, **types}
    return {
        "database": database, "table": "users", "type": kind, "isDdl": False, "es": 1_763_000_000_000,
        "pkNames": ["id"], "data": data, "old": old, "mysqlType": {name: every[name] for name in data[0]},
    }  # fmt: skip


_TOLD: Sequence[dict[str, Any]] = (
    _told("shop_1", "INSERT", {"id": "a", "name": "one", "n": "9000000000"},
          {"id": "a:b", "name": "x", "n": "2"}),
    _told("shop_2", "INSERT", {"id": "a", "name": "two", "n": "6", "more": "5"}, n="int", more="int"),
    # Whose names could run into each other.
    _told("shop_1:a", "INSERT", {"id": "b", "name": "colon", "n": "3"}),
    _told("shop_1", "UPDATE", {"id": "a", "name": "One", "n": "9000000000"}, old=[{"name": "one"}]),
    _told("shop_2", "UPDATE", {"id": "c", "name": "two", "n": "7", "more": "5"}, old=[{"id": "a", "n": "6"}],
          n="int", more="int"),
    _told("shop_2", "INSERT", {"id": "a", "name": "other", "n": "8", "more": None}, n="int", more="int"),
    _told("shop_1", "INSERT", {"id": "z", "name": "draft", "n": "1", "state": f"{HIDDEN}s"}),
    _told("shop_1:a", "UPDATE", {"id": "b", "name": "gone", "n": "3", "state": "draft"},
          old=[{"state": "active"}]),
    _told("shop_1", "DELETE", {"id": "z", "name": "draft", "n": "1", "state": f"{HIDDEN}s"}),
)  # fmt: skip
ROWS = [
    {"source_database": "shop_1", "id": "a", "name": "One", "n": 9000000000, "more": None},
    {"source_database": "shop_1", "id": "a:b", "name": "x", "n": 2, "more": None},
    {"source_database": "shop_2", "id": "a", "name": "other", "n": 8, "more": None},
    {"source_database": "shop_2", "id": "c", "name": "two", "n": 7, "more": 5},
]
"""What is left, without `state`, which is "active" in each."""


def batches() -> Iterator[Batch]:
    """One for each record, of shops.users. Its rule hides a column and rows."""
    rule = {"match": "shops.users", "columns": {"exclude": ["ssn"]}, "filter": "state = 'active'"}
    made = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["cdc"]},
            "tables": [{**rule, "handlers": [{"type": "log"}]}],
            "databases": {"shops": {"match": "shop_*.*"}},
        }
    )
    [table], format_ = made.tables, formats_of(made).of("cdc")
    for offset, told in enumerate(_TOLD):
        value = json.dumps(told).encode()
        changes: list[Change] = []
        format_.decode(cast(Record, Message(topic="cdc", partition=0, offset=offset, value=value)), changes)
        bring_under(table.row_rules, table.statement_rules, changes, 0, database="shops", table="users")
        if changes:
            yield Batch("shops.users", tuple(changes), database="shops", name="users")
