"""Records that real tools wrote for one known workload, and the rows the source held at its end.

The workload ran on MySQL 8.0; each stream was captured from Kafka (see docs/formats.md).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

__all__ = ["DATA", "STREAMS", "CapturedRecord", "Truth", "records", "truth"]

DATA = Path(__file__).parent / "data"
STREAMS = {
    "canal": "canal-flat",
    "debezium-schemas": "debezium-mysql-schemas",
    "debezium-plain": "debezium-mysql-plain",
    "debezium-strings": "debezium-mysql-strings",
    "debezium-unwrap": "debezium-mysql-unwrap",
    "maxwell": "maxwell",
}
"""Name -> file. Partitions are merged by record time; only the order inside a partition is the source's."""


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
    """All records of one of STREAMS, in the file's order."""
    return list(_records(STREAMS[stream]))


@cache
def truth(when: Literal["snapshot", "final"] = "final") -> dict[str, Truth]:
    """Table -> its contents after the first rows (`snapshot`), or at the end."""
    tables: dict[str, Truth] = {}
    for line in _lines(f"{when}-state"):
        if "row" in line:
            tables[line["table"]].rows.append(line["row"])
        else:
            columns = {name: type_ for name, type_, _extra in line["columns"]}
            tables[line["table"]] = Truth(line["table"], columns, line["primary_key"], [])
    return tables


def _records(file: str) -> Iterator[CapturedRecord]:
    for line in _lines(file):
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
