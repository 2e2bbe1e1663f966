"""Changes of a table of 10 columns, typed like decoded changes, and the same in every run."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from handlers import Change
from handlers.api import Operation, Row

__all__ = ["DATABASE", "KEY", "TYPES", "WORKLOADS", "changes", "preloaded"]

DATABASE = "shop"
KEY = "id"
TYPES = {
    KEY: "bigint",
    "customer_id": "int",
    "status": "varchar(16)",
    "total": "decimal(12,2)",
    "vip": "tinyint(1)",
    "note": "varchar(200)",
    "weight": "double",
    "due": "date",
    "placed_at": "datetime(6)",
    "updated_at": "timestamp(3)",
}
WORKLOADS = {"inserts": (100, 0, 0), "60 % insert, 30 % update, 10 % delete": (60, 30, 10)}
"""Name -> numbers of inserts, updates and deletes in 100 changes."""

_SEED = 7
_STATUS = ("new", "paid", "shipped", "cancelled")
_NOTES = ("leave it with the neighbour", 'ring "twice", then wait\nat the door', "C:\\orders\\today", None)
_NOON = datetime(2025, 4, 18, 12)


def preloaded(count: int) -> list[Change]:
    """Inserts of the rows that exist before the measurement, with ids from 0."""
    return [_change("insert", number, number, 0) for number in range(count)]


def changes(workload: str, count: int, *, there: int) -> list[Change]:
    """Return `count` changes, after `there` preloaded rows. Updates and deletes use any existing row."""
    inserts, updates, _ = WORKLOADS[workload]
    pick = random.Random(_SEED)
    rows = list(range(there))
    made: list[Change] = []
    for number in range(count):
        what = pick.randrange(100)
        if what < inserts:
            rows.append(there + number)
            made.append(_change("insert", rows[-1], number, 0))
        elif what < inserts + updates:
            made.append(_change("update", pick.choice(rows), number, number + 1))
        else:
            place = pick.randrange(len(rows))
            rows[place], rows[-1] = rows[-1], rows[place]
            made.append(_change("delete", rows.pop(), number, 0))
    return made


def _change(op: Operation, key: int, offset: int, version: int) -> Change:
    row = _row(key, version)
    return Change(
        op=op,
        before=None if op == "insert" else row if op == "delete" else _row(key, 0),
        after=None if op == "delete" else row,
        key_columns=(KEY,),
        sql=None,
        source_time_ms=1_795_219_014_629,
        topic="cdc.shop",
        partition=0,
        offset=offset,
        index=0,
        transaction=None,
        types=TYPES,
    )


def _row(key: int, version: int) -> Row:
    moment = _NOON + timedelta(microseconds=key * 1_000_003 + version)
    return {
        KEY: key,
        "customer_id": key % 1_000,
        "status": _STATUS[(key + version) % 4],
        "total": Decimal(key % 100_000 * 100 + version % 100).scaleb(-2),
        "vip": key % 2,
        "note": _NOTES[key % 4],
        "weight": key / 7,
        "due": date(2025, 1, 1) + timedelta(days=key % 365),
        "placed_at": moment,
        "updated_at": moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=UTC),
    }
