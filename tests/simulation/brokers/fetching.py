"""One assigned partition in librdkafka: where it is read, what was fetched ahead, whether it is paused."""

from __future__ import annotations

from collections import deque

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED

from .group import Place
from .logs import Entry

__all__ = ["Fetched"]


class Fetched:
    """What is fetched under one version is thrown away when that changes: by a pause or an assignment."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place = place
        self.offset = offset
        """The next one to fetch, or one of librdkafka's names for a place."""
        self.position = OFFSET_INVALID
        """After the last one handed to the program."""
        self.buffer: deque[tuple[int, Entry | None]] = deque()
        """Records, and None for the end of the partition at that offset."""
        self.taken: int | None = None
        """The first offset that the present call has taken from the buffer, and not yet handed over."""
        self.version = 0
        self.fetching = False
        self.stopped = False
        """Nothing is fetched until it is assigned anew: the offset is not there."""
        self.told_end = -1
        self.passed = 0  # records fetched, as statistics count them
        self.watermark = -1

    @property
    def is_resolved(self) -> bool:
        return self.offset >= 0

    def resolve(self, low: int, high: int, stored: int | None) -> None:
        """Names of places become offsets."""
        if self.offset in (OFFSET_STORED, OFFSET_INVALID):
            self.offset = stored if stored is not None else -1
        elif self.offset == OFFSET_BEGINNING:
            self.offset = low
        elif self.offset == OFFSET_END:
            self.offset = high

    def seek(self, offset: int) -> None:
        """Drop what was fetched ahead and read from there."""
        self.version += 1
        self.fetching = False
        self.buffer.clear()
        self.taken = None
        self.offset = offset
        self.told_end = -1

    def rewind(self) -> None:
        """As a pause does: on from what the program has not been handed."""
        unread = next((offset for offset, entry in self.buffer if entry is not None), self.offset)
        self.seek(unread if self.taken is None else self.taken)

    def take(self) -> tuple[int, Entry | None]:
        offset, entry = self.buffer.popleft()
        if entry is not None and self.taken is None:
            self.taken = offset
        return offset, entry

    def hand_over(self, offset: int, *, is_end: bool) -> None:
        self.taken = None
        if not is_end:
            self.position = offset + 1
