"""Source tables whose columns change while their rows do, as Canal tells it, and what each mode of the Spark
handler must make of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from integration.source import Source

__all__ = ["BEGAN_MS", "EvolvingTable", "Row", "Stream", "texts"]

BEGAN_MS = 1_795_218_962_000
Value = Any
Make = Callable[[random.Random], Value]
Row = dict[str, Value]


class Stream:
    """One partition: numbers the records as Kafka does, and gives each a millisecond of its own."""

    def __init__(self, source: Source, partition: int = 0) -> None:
        self._source = source
        self.partition = partition
        self.offset = -1

    def send(self, **message: Any) -> int:
        """Returns the record's offset."""
        self.offset += 1
        whole = {"database": "shop", "es": BEGAN_MS + self.offset, "ts": BEGAN_MS, "isDdl": False, "sql": ""}
        self._source.send(json.dumps(whole | message).encode(), partition=self.partition)
        return self.offset


class EvolvingTable:
    """One source table; `id` is its key."""

    def __init__(
        self, stream: Stream, name: str, columns: Mapping[str, tuple[str, Make]], *, first_id: int = 1
    ) -> None:
        """`columns`: name -> (MySQL's type, how to make a value). `first_id`: a table of several partitions
        is one of these for each, with keys of its own."""
        self.name = name
        self._stream = stream
        self._columns = dict(columns)
        self._random = random.Random(f"{name} {first_id}")
        self._next_id = first_id
        self.rows: dict[int, Row] = {}
        self.versions: list[Row] = []
        """Of mode history: the columns of the time, and those with `_`."""
        self._current: dict[int, Row] = {}  # of these, by key
        self.changes: list[Row] = []
        """Of mode changelog."""

    # ---- rows

    def change(self, rows: int) -> None:
        """One record that inserts, updates or deletes so many rows."""
        kinds = ("INSERT", "UPDATE", "DELETE")
        kind = self._random.choices(kinds, (5, 4, 1))[0] if len(self.rows) >= rows else "INSERT"
        if kind == "INSERT":
            ids = list(range(self._next_id, self._next_id + rows))
            self._next_id += rows
        else:
            ids = self._random.sample(sorted(self.rows), rows)
        before = [self.rows.get(one) for one in ids]
        after = [self._made(one) if kind != "DELETE" else None for one in ids]
        told = [new or old or {} for new, old in zip(after, before, strict=True)]
        offset = self._stream.send(
            table=self.name,
            type=kind,
            pkNames=["id"],
            mysqlType={"id": "int", **{name: kept for name, (kept, _) in self._columns.items()}},
            data=[texts(row) for row in told],
            old=[texts(row or {}) for row in before] if kind == "UPDATE" else None,
        )
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            self._happened(kind.lower(), old, new, offset, index)

    def _made(self, one: int) -> Row:
        return {"id": one, **{name: make(self._random) for name, (_, make) in self._columns.items()}}

    def _happened(self, op: str, old: Row | None, new: Row | None, offset: int, index: int) -> None:
        one = (new or old or {})["id"]
        moment = datetime.fromtimestamp((BEGAN_MS + offset) / 1000, UTC)
        place = {"_op": op, "_partition": self._stream.partition, "_offset": offset, "_index": index}
        if one in self._current:
            self._current.pop(one)["_valid_to"] = moment
        if new is None:
            del self.rows[one]
        else:
            self.rows[one] = new
            self._current[one] = {**new, **place, "_valid_from": moment, "_valid_to": None}
            self.versions.append(self._current[one])
        self.changes.append({**(new or old or {}), **place, "_before": old if op == "update" else None})

    # ---- columns

    def alter(self, clause: str, *, told: bool = True) -> None:
        """`told`: whether there is a record of the statement; what it does follows by the methods below."""
        if told:
            sql = f"ALTER TABLE {self.name} {clause}"
            offset = self._stream.send(table=self.name, type="ALTER", sql=sql, isDdl=True, data=None)
            place = {"_op": "ddl", "_partition": self._stream.partition, "_offset": offset, "_index": 0}
            self.changes.append({**place, "_sql": sql, "_before": None})

    def add(self, name: str, kept: str, make: Make, default: Value = None) -> None:
        self._columns[name] = (kept, make)
        for row in self.rows.values():
            row[name] = default
        for version in self.versions:
            version[name] = default if version["_valid_to"] is None else None

    def retype(self, name: str, kept: str, make: Make) -> None:
        """Values stay what they are."""
        self._columns[name] = (kept, make)

    def rename(self, name: str, to: str) -> None:
        self._columns[to] = self._columns.pop(name)
        for each in (*self.rows.values(), *self.versions):
            each[to] = each.pop(name)

    def drop(self, name: str) -> None:
        """A history keeps the column."""
        del self._columns[name]
        for row in self.rows.values():
            del row[name]


def texts(row: Row) -> dict[str, str | None]:
    """As Canal writes values."""
    return {name: None if value is None else str(value) for name, value in row.items()}
