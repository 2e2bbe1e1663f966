"""A shop whose tables lie in several partitions, row by row, and what every Spark table of it must hold."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from integration.evolving_tables import EvolvingTable, Row, Stream, texts
from integration.source import Source

__all__ = ["SpreadShop", "difference"]

_KINDS = ("INSERT", "UPDATE", "DELETE")
_WEIGHTS = (5, 4, 1)


class KeylessTable:
    """The rows that a table without a key has in one partition: many of them are equal."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._random = random.Random(f"{name} {stream.partition}")
        self.rows: list[Row] = []
        self.changes: list[Row] = []
        """Of mode changelog."""

    def change(self) -> None:
        """One record of one to five rows."""
        kind = self._random.choices(_KINDS, _WEIGHTS)[0] if len(self.rows) > 20 else "INSERT"
        count = self._random.randrange(1, 6)
        before: list[Row] = []
        if kind != "INSERT":
            self._random.shuffle(self.rows)
            before = [self.rows.pop() for _ in range(count)]
        after = [self._made() for _ in range(count)] if kind != "DELETE" else []
        self.rows += after
        told = after or before
        offset = self._stream.send(
            table=self._name,
            type=kind,
            pkNames=None,
            mysqlType={"place": "int", "page": "varchar(20)"},
            data=[texts(row) for row in told],
            old=[texts(row) for row in before] if kind == "UPDATE" else None,
        )
        for index, row in enumerate(told):
            place = {"_partition": self._stream.partition, "_offset": offset, "_index": index}
            old = before[index] if kind == "UPDATE" else None
            self.changes.append({**row, "_op": kind.lower(), **place, "_before": old})

    def _made(self) -> Row:
        """Its equals are all of one partition: between two of them there is no order."""
        return {"place": self._stream.partition, "page": f"page {self._random.randrange(30)}"}


class SpreadShop:
    """`orders` (with a key) and `visits` (without) lie in all partitions, `items` (with a key) in the last.

    One thread changes it, or `open` does.
    """

    def __init__(self, source: Source, partitions: int) -> None:
        self._source = source
        streams = [Stream(source, number) for number in range(partitions)]
        self._keyed = {
            "orders": [_keyed(stream, "orders") for stream in streams],
            "items": [_keyed(streams[-1], "items")],
        }
        self._visits = [KeylessTable(stream, "visits") for stream in streams]

    def change(self) -> None:
        """One record for each table and partition."""
        for orders, visits in zip(self._keyed["orders"], self._visits, strict=True):
            orders.change(2)
            visits.change()
        for items in self._keyed["items"]:
            items.change(2)
        self._source.producer.poll(0)

    @contextmanager
    def open(self, every: float) -> Iterator[None]:
        """Meanwhile rows change every so many seconds; afterwards Kafka has all of it."""
        with self._source.going_on(self.change, every):
            yield

    def expected(self, mode: str, table: str) -> list[Row]:
        """The rows of a Spark table, in any order."""
        parts: Sequence[EvolvingTable | KeylessTable] = self._keyed.get(table, self._visits)
        if mode == "changelog":
            return [change for part in parts for change in part.changes]
        if mode == "replica":
            return [row for part in parts for row in _rows(part)]
        return [
            {**version, "_current": version["_valid_to"] is None}
            for part in self._keyed[table]
            for version in part.versions
        ]


def _rows(part: EvolvingTable | KeylessTable) -> list[Row]:
    return list(part.rows.values()) if isinstance(part, EvolvingTable) else part.rows


def _keyed(stream: Stream, name: str) -> EvolvingTable:
    columns = {
        "name": ("varchar(20)", lambda pick: f"{name} {pick.randrange(1000)}"),
        "amount": ("bigint", lambda pick: pick.randrange(-(2**63), 2**63)),
    }
    return EvolvingTable(stream, name, columns, first_id=1 + 1_000_000 * stream.partition)


def difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """In words, with the first rows of each kind; empty: the same rows, each as often."""
    has, wants = Counter(map(_text, found)), Counter(map(_text, expected))
    told = []
    for what, rows in (("lost", wants - has), ("too many", has - wants)):
        if rows:
            told.append(f"{rows.total()} of {wants.total()} {what}: {sorted(rows)[:3]}")
    return "; ".join(told)


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, default=str)
