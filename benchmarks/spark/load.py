"""The load: changes of tables as Canal flat JSON. Every run has the same changes and known final rows.

60 % are inserts, 30 % updates and 10 % deletes. Tables are drawn uniformly, and so are the existing rows of
updates and deletes. A row is a function of its key and of the number of its last change. So one number for
each row is enough to know a table's final content.
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
"""`TableTruth.checksum` in Spark's SQL."""

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
    """A table's final content."""

    rows: int
    checksum: int
    """Sum of the rows' CRC-32 over all columns as text, joined by `|`."""
    numbers: int
    """Sum of the rows' `n`."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change. `number` counts from 0 and is the record's offset in a topic of one partition."""

    number: int
    table: int
    value: bytes


class _Table:
    """The existing keys, and the last change of each."""

    __slots__ = ("changes", "keys", "last", "next_key", "written")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.written: dict[int, int] = {}
        self.next_key = 1
        self.changes = 0
        self.last = -1


class Load:
    """An endless sequence of changes. Two loads with the same arguments create the same changes."""

    def __init__(self, tables: int = 20, *, bigger: int = 0, each_once: bool = False) -> None:
        """`bigger`: the number of inserts into table 0 that come first. `each_once`: then one change of each
        table, in order."""
        self._random = random.Random(_SEED)
        self._tables = [_Table() for _ in range(tables)]
        self._bigger = bigger
        self._in_order = tables if each_once else 0
        self.made = 0
        """Number of changes so far."""

    def take(self, count: int, es: int) -> Iterator[Record]:
        """Yield the next changes. The source commits them at `es`, in milliseconds since 1970."""
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
        """Number of changes of each table so far."""
        return [table.changes for table in self._tables]

    def last(self) -> list[int]:
        """The number of each table's last change so far; -1 for none."""
        return [table.last for table in self._tables]

    def truth(self) -> list[TableTruth]:
        """Each table's content after the changes so far."""
        return [
            TableTruth(
                len(table.written),
                sum(zlib.crc32("|".join(map(str, _row(*row))).encode()) for row in table.written.items()),
                sum(table.written.values()),
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
