"""Records that real tools wrote for one known workload, and the rows the source held at its end.

One workload ran on MySQL 8.0, another on PostgreSQL 15; each stream was captured from Kafka (see
docs/formats.md).
"""

from __future__ import annotations

import base64
import gzip
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "DATA",
    "POSTGRES_STREAMS",
    "STREAMS",
    "CapturedRecord",
    "Truth",
    "postgres_truth",
    "records",
    "truth",
]

DATA = Path(__file__).parent / "data"
STREAMS = {
    "canal": "canal-flat",
    "canal-packets": "canal-packets",
    "debezium-schemas": "debezium-mysql-schemas",
    "debezium-plain": "debezium-mysql-plain",
    "debezium-strings": "debezium-mysql-strings",
    "debezium-unwrap": "debezium-mysql-unwrap",
    "maxwell": "maxwell",
}
"""Name -> file. Partitions are merged by record time; only the order inside a partition is the source's. The
packets are the flat messages, as Canal's own classes write them: see data/canal_packets/make.py."""
POSTGRES_STREAMS = {
    "postgres-schemas": "debezium-postgres-schemas",
    "postgres-plain": "debezium-postgres-plain",
    "postgres-unwrap": "debezium-postgres-unwrap",
}
"""Of the workload on PostgreSQL; likewise."""
_POSTGRES = "postgres.jsonl.xz"
"""All of that workload in one file: half of what they are alone. A line {"file": name} begins each."""


@dataclass(frozen=True)
class CapturedRecord:
    """A record as a format reads it."""

    topic_: str
    partition_: int
    offset_: int
    timestamp_ms: int
    key_: bytes | None
    value_: bytes | None
    headers_: list[tuple[str, bytes | None]]

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def timestamp(self) -> tuple[int, int]:
        return 1, self.timestamp_ms

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.headers_

    def __len__(self) -> int:
        return len(self.value_ or b"")


@dataclass(frozen=True)
class Truth:
    """A table as the server itself held it."""

    table: str
    """database.table"""
    columns: dict[str, str]
    """Column -> type."""
    primary_key: list[str]
    rows: list[dict[str, Any]]
    """Integers, bit and year are numbers; decimals text; dates and times text as the server prints them
    (timestamps in UTC); bytes {"base64"}; geometry {"base64": WKB, "srid"}; JSON {"json": text}; a set its
    labels joined by commas."""


def records(stream: str) -> list[CapturedRecord]:
    """All records of one of STREAMS or POSTGRES_STREAMS, in the file's order."""
    return list(
        _records(_lines(STREAMS[stream]) if stream in STREAMS else _postgres()[POSTGRES_STREAMS[stream]])
    )


@cache
def truth(when: Literal["snapshot", "final"] = "final") -> dict[str, Truth]:
    """Table -> its contents after the first rows (`snapshot`), or at the end."""
    return _truth(_lines(f"{when}-state"))


@cache
def postgres_truth() -> dict[str, Truth]:
    """Table -> its contents at the end, of the workload on PostgreSQL; of its rows every value is the text
    that PostgreSQL's own output function writes, in UTC."""
    return _truth(_postgres()["final-state-postgres"])


def _truth(lines: Iterable[dict[str, Any]]) -> dict[str, Truth]:
    tables: dict[str, Truth] = {}
    for line in lines:
        if "row" in line:
            tables[line["table"]].rows.append(line["row"])
        else:
            columns = {name: type_ for name, type_, *_rest in line["columns"]}
            tables[line["table"]] = Truth(line["table"], columns, line["primary_key"], [])
    return tables


def _records(lines: Iterable[dict[str, Any]]) -> Iterator[CapturedRecord]:
    for line in lines:
        yield CapturedRecord(
            line["topic"],
            line["partition"],
            line["offset"],
            line["timestamp_ms"],
            _bytes(line["key"]),
            _bytes(line["value"]),
            [(name, _bytes(value)) for name, value in line["headers"] or ()],
        )


def _bytes(text: str | dict[str, str] | None) -> bytes | None:
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def _lines(file: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@cache
def _postgres() -> dict[str, list[dict[str, Any]]]:
    files: dict[str, list[dict[str, Any]]] = {}
    with lzma.open(DATA / _POSTGRES, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line.keys() == {"file"}:
                current = files[line["file"]] = []
            else:
                current.append(line)
    return files
