"""A problem of a worker, and helpers for its text."""

from __future__ import annotations

from typing import Literal

import msgspec

from worker.observing.status import PartitionStatus

DEAD_LETTERS = "__dead_letter__"
SCHEMAS = "__schema_registry__"
UNDECODABLE = "__undecodable__"
"""A pseudo-table of undecodable records."""
_NAMED = 3


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, or something in progress (`busy`)."""

    level: Literal["bad", "warn", "busy"]
    what: str
    """One sentence without its full stop."""
    do: str = ""
    """The remedy; empty: it ends by itself."""
    error: str | None = None
    """The error that another system reported."""
    commands: list[str] = []
    """Shell commands for the worker's machine, quoted."""
    table: str | None = None


def place(partition: PartitionStatus) -> str:
    """Format a partition as topic[partition]."""
    return f"{partition.topic}[{partition.partition}]"


def names(found: list[str], what: str = "tables") -> str:
    """List all names, or two names and how many more `what` there are."""
    if len(found) <= _NAMED:
        return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))
    return f"{', '.join(found[: _NAMED - 1])} and {len(found) - _NAMED + 1:,} more {what}"


def plural(number: int, word: str) -> str:
    """Format the number and the word, with a plural s if needed."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
