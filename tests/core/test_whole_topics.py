"""Whole topics are read to what was their end, also while records keep coming."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from worker.reloading.source_changes import WholeTopics


class Going:
    """A consumer of a topic that grows with each look: there is never an end to tell."""

    def __init__(self, end: int) -> None:
        self._end, self._offset = end, 0

    def assign(self, places: list[Any]) -> None:
        self._offset = places[0].offset

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, self._end

    def consume(self, *_: Any) -> list[Any]:
        self._offset += 1
        return [made(self._offset - 1)]


def made(offset: int) -> Any:
    told = {"topic": "shop", "partition": 0, "offset": offset, "error": None}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in told.items()})


def test_records_that_keep_coming_do_not_keep_it_from_ending() -> None:
    topics = WholeTopics.__new__(WholeTopics)
    topics._consumer, topics.next = Going(5), {("shop", 0): 0}  # type: ignore[assignment]
    read = [record.offset() for record in itertools.islice(topics.records(), 20)]
    assert read == [0, 1, 2, 3, 4]
    assert topics.next == {("shop", 0): 5}
