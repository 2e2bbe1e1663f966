"""What only grows: files of JSON, files of Parquet, and topics. A reader folds it by key and by place."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from handlers.files.handler import FilesHandler
from handlers.kafka.handler import KafkaHandler
from handlers.testing import opened

from ..source import Row, key_of
from ..told import Limits
from ..writers.writing import Names
from .interface import Target, texts
from .reopening import reopened

_PLACE = ("topic", "partition", "offset", "index")


def folded(names: Names, lines: Iterable[Row]) -> list[Row]:
    """The rows that lines make, each with `op`, its place, `key` and `after`.

    A place that comes again is passed over. An update leaves what its row lacks, and makes no row of a key
    alone. An insert replaces the row; if it follows a delete of its own record, and lacks columns, these are
    in the deleted row."""
    if not names.key:
        return _folded_without_key(lines)
    rows: dict[tuple[Any, ...], Row] = {}
    gone: tuple[tuple[Any, ...], Row] = ((0,), {})
    for place, line in _once_each(lines):
        if line["op"] == "truncate":
            rows.clear()
            continue
        key = tuple(map(str, key_of(line["key"], names.key)))
        if line["op"] == "update" and key not in rows and line["after"].keys() <= set(names.key):
            continue
        old = rows.pop(key, {})
        match line["op"]:
            case "delete":
                gone = place, old
            case "update":
                rows[key] = {**old, **line["after"]}
            case _:
                follows = place == (*gone[0][:-1], gone[0][-1] + 1)
                rows[key] = {**(gone[1] if follows else {}), **line["after"]}
    return list(map(texts, rows.values()))


def _once_each(lines: Iterable[Row]) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """The place of each line, and the line, without those of a place that comes again."""
    seen: set[tuple[Any, ...]] = set()
    for line in lines:
        place = tuple(line[name] for name in _PLACE)
        if place not in seen:
            seen.add(place)
            yield place, line


def _folded_without_key(lines: Iterable[Row]) -> list[Row]:
    """An update and a delete are of one row that equals the old one."""
    rows: list[Row] = []
    for _, line in _once_each(lines):
        if line["op"] == "truncate":
            rows.clear()
        if line["before"] is not None and (old := texts(line["before"])) in rows:
            rows.remove(old)
        if line["after"] is not None:
            rows.append(texts(line["after"]))
    return rows


@contextmanager
def files_target(folder: Path) -> Iterator[Target]:
    """Each batch is a file."""

    def rows(names: Names) -> list[Row]:
        found = sorted((folder / "lines" / names.database / names.table).glob("*.jsonl"))
        return folded(names, (json.loads(line) for path in found for line in path.read_text().splitlines()))

    def forget(names: Names) -> None:
        shutil.rmtree(folder / "lines" / names.database, ignore_errors=True)

    with reopened(
        lambda: opened(FilesHandler(directory="lines", rotate_bytes=1), folder, worker="w")
    ) as handler:
        limits = Limits(moves=True, links_moves=False, without_key="match")
        yield Target("files", handler, rows, forget, limits, restart=handler.restart)


@contextmanager
def parquet_target(folder: Path) -> Iterator[Target]:
    def rows(names: Names) -> list[Row]:
        found: list[Row] = []
        for path in (folder / "parquet" / names.database / names.table).glob("*/*/*.parquet"):
            found += pq.ParquetFile(path).read().to_pylist()
        return folded(names, lines_of(names, found))

    def forget(names: Names) -> None:
        shutil.rmtree(folder / "parquet" / names.database, ignore_errors=True)

    with reopened(
        lambda: opened(FilesHandler(directory="parquet", format="parquet"), folder, worker="w")
    ) as handler:
        limits = Limits(shows_gaps=False, without_key="untried")
        yield Target("files", handler, rows, forget, limits, restart=handler.restart)


def lines_of(names: Names, changes: Iterable[Row]) -> Iterator[Row]:
    """Of rows that have what a change is in columns that begin with `_`, in the order of their places."""
    for row in sorted(changes, key=lambda row: [row[f"_{name}"] for name in _PLACE]):
        after = {name: value for name, value in row.items() if not name.startswith("_")}
        yield {"op": row["_op"], "key": after, "after": after, **{name: row[f"_{name}"] for name in _PLACE}}


class _Topic:
    """A topic of one partition with the messages of all examples."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        settings = {"bootstrap.servers": servers, "group.id": "model", "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"enable.partition.eof": True, "fetch.wait.max.ms": 1})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def close(self) -> None:
        self._consumer.close()

    def of(self, names: Names) -> list[Message]:
        """A table's, of those that came since the last call."""
        return [message for message in self._new() if _table(message) == f"{names.database}.{names.table}"]

    def _new(self) -> Iterator[Message]:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0))
        while self._consumer.position([TopicPartition(self._topic, 0)])[0].offset < end:
            message = self._consumer.poll(20)
            assert message is not None, f"no answer from Kafka about {self._topic}"
            error = message.error()
            if error is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error


def _table(message: Message) -> str:
    headers: dict[str, bytes | None] = dict(message.headers() or ())  # type: ignore[arg-type]
    return (headers["source.table"] or b"").decode()


@contextmanager
def kafka_target(broker: Any, *, value: str) -> Iterator[Target]:
    """`value`: as the option."""
    name = f"model-{value}-{next(_numbers)}"
    broker.create_topic(name)
    is_row = value == "after"

    def rows(names: Names) -> list[Row]:
        messages = topic.of(names)
        if not is_row:
            return folded(names, (json.loads(message.value() or b"") for message in messages))
        last = {message.key(): message.value() for message in messages}
        return [texts(json.loads(row)) for row in last.values() if row is not None]

    servers = broker.bootstrap_servers
    with (
        closing(_Topic(servers, name)) as topic,
        opened(KafkaHandler(bootstrap_servers=servers, topic=name, value=value), worker="w") as handler,
    ):
        yield Target(
            "kafka",
            handler,
            rows,
            lambda _: None,
            Limits(
                moves=not is_row,
                links_moves=False,
                truncates=not is_row,
                holds_parts=not is_row,
                without_key="untried" if is_row else "match",
            ),
        )


_numbers = itertools.count(1)
