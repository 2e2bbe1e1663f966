"""A problem of a worker, and helpers for its text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from worker.observing.status import PartitionStatus
from worker.observing.visible_text import duration, visible

DEAD_LETTERS = "__dead_letter__"
SCHEMAS = "__schema_registry__"
UNDECODABLE = "__undecodable__"
"""A pseudo-table of undecodable records."""
_NAMED = 3
_LONG = 80
_DAY = 72_000.0


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
    lane: int | None = None
    partition: str | None = None
    """As `place` formats it."""
    runbook: str | None = None
    """The section of docs/runbooks.md."""
    waits: bool = False
    """It waits for something else, and continues with that."""
    below: list[str] = []
    """What waits for this."""


def short(name: str) -> str:
    """Write control characters out, and cut the middle of a long name."""
    name = visible(name)
    return name if len(name) <= _LONG else f"{name[: _LONG * 2 // 3]}…{name[-_LONG // 4 :]}"


def since(seconds: float) -> str:
    """Format when something began that has lasted for `seconds`."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    return f"{moment:{'%H:%M:%S' if seconds < _DAY else '%Y-%m-%d %H:%M'}} UTC ({duration(seconds)})"


def place(partition: PartitionStatus) -> str:
    """Format a partition as topic[partition]."""
    return f"{short(partition.topic)}[{partition.partition}]"


def names(found: list[str], what: str = "tables") -> str:
    """List all names, or two names and how many more `what` there are."""
    found = [short(each) for each in found]
    if len(found) <= _NAMED:
        return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))
    return f"{', '.join(found[: _NAMED - 1])} and {len(found) - _NAMED + 1:,} more {what}"


def plural(number: int, word: str) -> str:
    """Format the number and the word, with a plural s if needed."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
