"""One thing that is wrong with a worker, and the words for it."""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.observing.status import PartitionStatus

DEAD_LETTERS = "__dead_letter__"
SCHEMAS = "__schema_registry__"
UNDECODABLE = "__undecodable__"
"""Among the tables."""
_NAMED = 3


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or under way (`busy`)."""

    level: Literal["bad", "warn", "busy"]
    what: str
    """One sentence without its full stop."""
    do: str = ""
    """What to do about it; empty: it is over by itself."""
    error: str | None = None
    """What was told about it by others."""
    commands: list[str] = []
    """Of a shell on the worker's machine, quoted."""
    table: str | None = None


def place(partition: PartitionStatus) -> str:
    """topic[partition]"""
    return f"{partition.topic}[{partition.partition}]"


def names(found: list[str], what: str = "tables") -> str:
    """All of them, or two and how many more `what`."""
    if len(found) <= _NAMED:
        return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))
    return f"{', '.join(found[: _NAMED - 1])} and {len(found) - _NAMED + 1:,} more {what}"


def plural(number: int, word: str) -> str:
    """The number and the word, which takes an s."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
