"""The load: changes of tables as Canal flat JSON, the same in every run, whose final rows are known.

60 % inserts, 30 % updates, 10 % deletes, tables drawn uniformly, updates and deletes of rows that are there,
drawn uniformly. A row is a function of its key and of the number of the change that wrote it last, so that
what a table must hold in the end costs one number a row to remember.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CHECKSUM", "COLUMNS", "DATABASE", "Load", "Record", "TableTruth", "table_name"]

DATABASE = "shop"
COLUMNS = {
    "id": "bigint",
    "state": "varchar(12)",
    "qty": "int",
    "price": "decimal(10,2)",
    "name": "varchar(64)",
    "at": "datetime",
    "note": "text",
    "n": "bigint",
}
"""Column -> MySQL type. `n` is the number of the change that wrote the row last."""

CHECKSUM = "sum(crc32(concat_ws('|', {})))".format(", ".join(f"cast(`{name}` AS string)" for name in COLUMNS))
"""What `TableTruth.checksum` is in Spark's SQL."""

_SEED = 7
_INSERTS, _UPDATES = 0.6, 0.9  # an update below the second, a delete above it
_STATES = ("created", "paid", "packed", "shipped", "returned", "closed", "refunded")
_SQL_TYPES = {"bigint": -5, "int": 4, "decimal(10,2)": 3, "datetime": 93, "text": 2005}  # java.sql.Types
_VARCHAR = 12

_HEAD = '{"id":%d,"database":"shop","table":"t%d","pkNames":["id"],"isDdl":false,"type":"%s","es":%d,"ts":%d,'
_TYPES = (
    '"sql":"","sqlType":{'
    + ",".join(f'"{name}":{_SQL_TYPES.get(kind, _VARCHAR)}' for name, kind in COLUMNS.items())
    + '},"mysqlType":{'
    + ",".join(f'"{name}":"{kind}"' for name, kind in COLUMNS.items())
    + "},"
)
_ROW = '"data":[{"id":"%s","state":"%s","qty":"%s","price":"%s","name":"%s","at":"%s","note":"%s","n":"%s"}],'
_OLD = '"old":[{"state":"%s","qty":"%s","price":"%s","n":"%s"}]}'
_WHOLE = _HEAD + _TYPES + _ROW + '"old":null}'
_CHANGED = _HEAD + _TYPES + _ROW + _OLD


@dataclass(frozen=True, slots=True)
class TableTruth:
    """What a table holds in the end."""

    rows: int
    checksum: int
    """The sum of each row's CRC-32 of all its columns as text, joined by `|`."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change. `number` counts from 0 and is the record's offset in a topic of one partition."""

    number: int
    table: int
    value: bytes


class _Table:
    """The keys that are there, and which change wrote each last."""

    __slots__ = ("changes", "keys", "last", "next_key", "written")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.written: dict[int, int] = {}
        self.next_key = 1
        self.changes = 0
        self.last = -1


class Load:
    """An endless sequence of changes; two loads of the same arguments make the same ones."""

    def __init__(self, tables: int = 20, *, bigger: int = 0, each_once: bool = False) -> None:
        """`bigger`: the first changes are so many inserts into table 0; `each_once`: the first of each table
        come in their order."""
        self._random = random.Random(_SEED)
        self._tables = [_Table() for _ in range(tables)]
        self._bigger = bigger
        self._in_order = tables if each_once else 0
        self.made = 0
        """How many changes there were so far."""

    def take(self, count: int, es: int) -> Iterator[Record]:
        """The next changes, which the source commits at `es`, milliseconds since 1970."""
        draw, tables = self._random.random, self._tables
        for number in range(self.made, self.made + count):
            self.made += 1
            big = number < self._bigger
            place = number if number < self._in_order else 0 if big else int(draw() * len(tables))
            table = tables[place]
            table.changes += 1
            table.last = number
            kind = 0.0 if big else draw()
            if kind < _INSERTS or not table.keys:
                key = table.next_key
                table.next_key += 1
                table.keys.append(key)
                table.written[key] = number
                text = _WHOLE % (number, place, "INSERT", es, es + 3, *_row(key, number))
            else:
                keys = table.keys
                spot = int(draw() * len(keys))
                key = keys[spot]
                before = table.written[key]
                if kind < _UPDATES:
                    table.written[key] = number
                    old = _row(key, before)
                    row = _row(key, number)
                    text = _CHANGED % (
                        *(number, place, "UPDATE", es, es + 3, *row),
                        *(old[1], old[2], old[3], old[7]),
                    )
                else:
                    keys[spot] = keys[-1]
                    keys.pop()
                    del table.written[key]
                    text = _WHOLE % (number, place, "DELETE", es, es + 3, *_row(key, before))
            yield Record(number, place, text.encode())

    def changes(self) -> list[int]:
        """How many changes each table had so far."""
        return [table.changes for table in self._tables]

    def last(self) -> list[int]:
        """The number of each table's last change so far; -1 for none."""
        return [table.last for table in self._tables]

    def truth(self) -> list[TableTruth]:
        """What each table holds after the changes so far."""
        return [
            TableTruth(
                len(table.written),
                sum(zlib.crc32("|".join(map(str, _row(*row))).encode()) for row in table.written.items()),
            )
            for table in self._tables
        ]


def table_name(table: int) -> str:
    return f"t{table}"


def _row(key: int, number: int) -> tuple[object, ...]:
    """The columns' values; state, qty, price and n are what updates change."""
    return (
        key,
        _STATES[number % 7],
        number % 900 + 1,
        f"{number % 90_000}.{number % 100:02d}",
        f"customer-{key:08d}",
        f"2026-{key % 12 + 1:02d}-{key % 28 + 1:02d} {key % 24:02d}:{key % 60:02d}:{key * 7 % 60:02d}",
        f"parcel {key % 977}, ring twice",
        number,
    )
