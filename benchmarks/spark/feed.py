"""Writing the load to a topic or to files of JSON lines, at once or at a steady rate."""

from __future__ import annotations

import os
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.spark.load import DATABASE, Load, Record, table_name

__all__ = [
    "BACKLOG_TIME",
    "Encode",
    "FileTarget",
    "SteadyFeed",
    "TableFilesTarget",
    "Target",
    "TopicTarget",
    "write_backlog",
]

BACKLOG_TIME = 1_763_000_000_000
"""The source time of a backlog's changes."""

_AT_ONCE = 2_000


Encode = Callable[[Record], tuple[bytes, bytes]]
"""Record -> (key, value)"""


def _as_it_is(record: Record) -> tuple[bytes, bytes]:
    return f"{DATABASE}.{table_name(record.table)}".encode(), record.value


class Target(Protocol):
    """A target of changes."""

    tick: float
    """Seconds between two writes of a steady load."""

    def write(self, records: Sequence[Record]) -> None: ...

    def flush(self) -> None:
        """Return when all changes can be read."""
        ...


class TopicTarget:
    """A new topic of one partition. A change's number is its offset."""

    tick = 0.05

    def __init__(self, bootstrap: str, topic: str, encode: Encode | None = None) -> None:
        """`encode`: record -> (key, value), by default the record itself, with the table as its key.

        Raises KafkaException if the broker refuses.
        """
        self.topic = topic
        self._encode = encode or _as_it_is
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "batch.size": 200_000,
                "queue.buffering.max.messages": 200_000,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,  # otherwise a retried batch overtakes the next one on a new topic
                "log_level": 3,
            }
        )

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            key, value = self._encode(record)
            while True:
                try:
                    self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        """Raises KafkaException if a record did not arrive."""
        if self._producer.flush(120) or self._failed:
            raise KafkaException(self._failed[0] if self._failed else KafkaError(KafkaError._TIMED_OUT))

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failed.append(error)


class FileTarget:
    """A folder. Each write adds a file atomically. Names and times of the files follow the order."""

    tick = 0.25

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.files = 0
        """Number of files written."""
        self._time_ms = 0

    def write(self, records: Sequence[Record]) -> None:
        hidden = self.folder / f".{self.files:08d}.json"
        with hidden.open("wb") as file:
            file.writelines(record.value + b"\n" for record in records)
        # Spark takes files by their time, in milliseconds.
        self._time_ms = max(time.time_ns() // 1_000_000, self._time_ms + 1)
        os.utime(hidden, ns=(self._time_ms * 1_000_000, self._time_ms * 1_000_000))
        hidden.rename(self.folder / hidden.name[1:])
        self.files += 1

    def flush(self) -> None:
        pass


class TableFilesTarget:
    """A folder with a folder of each table. A file's name is the number of its last change."""

    tick = 1.0

    def __init__(self, folder: Path, tables: Sequence[str], *, at_least: int = 1) -> None:
        """`at_least`: a table's changes wait for that many, or for the flush."""
        self.folder = folder
        self._at_least = at_least
        self._folders = [folder / name for name in tables]
        self._waiting: list[list[Record]] = [[] for _ in tables]
        for each in self._folders:
            each.mkdir(parents=True)

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._waiting[record.table].append(record)
        for waiting in self._waiting:
            if len(waiting) >= self._at_least:
                self._add(waiting)

    def flush(self) -> None:
        for waiting in filter(None, self._waiting):
            self._add(waiting)

    def _add(self, waiting: list[Record]) -> None:
        last = waiting[-1]
        folder = self._folders[last.table]
        hidden = folder / f".{last.number:012d}.json"
        with hidden.open("wb") as file:
            file.writelines(record.value + b"\n" for record in waiting)
        hidden.rename(folder / hidden.name[1:])
        waiting.clear()


def write_backlog(load: Load, targets: Sequence[Target], records: int) -> None:
    """Write the load's next changes to all targets, in writes of 2,000."""
    for begin in range(0, records, _AT_ONCE):
        taken = list(load.take(min(_AT_ONCE, records - begin), BACKLOG_TIME + begin))
        for target in targets:
            target.write(taken)
    for target in targets:
        target.flush()


class SteadyFeed:
    """A thread that writes `rate` changes a second, each with the time of its creation."""

    def __init__(self, load: Load, target: Target, rate: int) -> None:
        self.load = load
        self.tables = array("H")
        """The table of each change, starting with change `first`."""
        self.first = load.made
        self._target = target
        self._rate = rate
        self._numbers: list[int] = []
        self._times: list[int] = []
        self._stopping = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when all changes can be read. Raises the error that ended the thread."""
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises the error that ended the thread early."""
        if self._fault is not None:
            raise self._fault

    def source_time(self, number: int) -> int:
        """Time of change `number`, in milliseconds since 1970."""
        return self._times[bisect_right(self._numbers, number) - 1]

    def made_at(self, time_ms: int) -> int:
        """The first change of `time_ms` or later; if none exists, the next change."""
        place = bisect_right(self._times, time_ms - 1)
        return self._numbers[place] if place < len(self._numbers) else self.load.made

    def _run(self) -> None:
        try:
            begin = time.monotonic()
            while not self._stopping.wait(self._target.tick):
                due = int((time.monotonic() - begin) * self._rate) - len(self.tables)
                now = time.time_ns() // 1_000_000
                first = self.load.made
                records = list(self.load.take(due, now))
                self._target.write(records)
                self.tables.extend(record.table for record in records)
                self._numbers.append(first)
                self._times.append(now)
            self._target.flush()
        except BaseException as fault:  # raised again in the thread that asks
            self._fault = fault
