"""Kafka's topics as they lie on the brokers: partitions with their offsets, holes, what retention took."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

__all__ = ["Entry", "Log", "Topic", "Topics"]


@dataclass(slots=True, frozen=True)
class Entry:
    """A record. Offsets of markers, of compacted and of aborted records have none."""

    value: bytes
    key: bytes | None = None


class Log:
    """One partition: offsets from `low` up to, not including, `high`."""

    def __init__(self) -> None:
        self.low = 0
        self.entries: list[Entry | None] = []
        """By their offset; those below `low` are deleted."""
        self.cut_at: int | None = None
        """Where it was cut off last: the leader tells it to one who reads beyond."""

    @property
    def high(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry | None) -> int:
        self.entries.append(entry)
        return self.high - 1

    def read(self, offset: int, most: int) -> tuple[list[tuple[int, Entry]], int]:
        """Up to `most` records from there, and the next offset to read."""
        found: list[tuple[int, Entry]] = []
        while offset < self.high and len(found) < most:
            entry = self.entries[offset]
            if entry is not None:
                found.append((offset, entry))
            offset += 1
        return found, offset

    def expire(self, low: int) -> None:
        self.low = min(max(self.low, low), self.high)

    def cut(self, high: int) -> None:
        """As when a leader without the last records was elected."""
        del self.entries[max(high, self.low) :]
        self.cut_at = self.high


@dataclass(slots=True)
class Topic:
    name: str
    id: str
    logs: list[Log] = field(default_factory=list)


class Topics:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.by_name: dict[str, Topic] = {}
        self.grew: list[Callable[[], None]] = []
        """Told when something was written: those who wait for it."""

    def create(self, name: str, partitions: int) -> Topic:
        told = base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")
        topic = self.by_name[name] = Topic(name, told, [Log() for _ in range(partitions)])
        return topic

    def log(self, topic: str, partition: int) -> Log | None:
        found = self.by_name.get(topic)
        return found.logs[partition] if found is not None and partition < len(found.logs) else None

    def tell(self) -> None:
        for each in list(self.grew):
            each()
