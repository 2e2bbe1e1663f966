"""Table definitions from `kafka.ddl_topics`, which the child processes must learn too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from worker.formats.interface import Format, Record

_PASSED_ON = (
    "name",
    "route",
    "explain",
    "decode",
    "source_time_ms",
    "decode_many",
    "ready",
    "log_position",
    "transactions",
)


class Noting:
    """A format that learns definitions, and notes the records that it has learned from."""

    def __init__(self, format_: Format, note: Callable[[Record], object]) -> None:
        self._learn: Callable[[Record], None] = cast(Any, format_).learn
        self._note = note
        for name in _PASSED_ON:
            if hasattr(format_, name):
                setattr(self, name, getattr(format_, name))

    def learn(self, record: Record) -> None:
        try:
            self._learn(record)
        finally:
            self._note(record)
