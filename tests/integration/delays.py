"""How long changes took from their source to their target, and which of them had to wait for nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Handled", "Outage", "Report", "read_report", "too_late"]


class Handled(NamedTuple):
    """A change that is in its target. Times in seconds since 1970."""

    handler: str
    table: str
    sent: float
    at: float

    @property
    def delay(self) -> float:
        return self.at - self.sent


class Outage(NamedTuple):
    """Of one handler's target. Times in seconds since 1970."""

    handler: str
    begin: float
    end: float


class Report(NamedTuple):
    """What the handlers of integration.timed have told."""

    handled: list[Handled]
    attempts: set[int]

    def counts(self) -> dict[str, int]:
        """Table -> changes that were handled, repeated ones too."""
        return dict(Counter(one.table for one in self.handled))


def read_report(file: Path) -> Report:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return Report(
        [
            Handled(line["handler"], line["table"], sent / 1000, line["at"])
            for line in lines
            if line["event"] == "handled"
            for sent in line["sent"]
        ],
        {line["attempt"] for line in lines if line["event"] == "called"},
    )


def too_late(
    handled: Iterable[Handled], outages: Sequence[Outage], *, within: float, recovery: float
) -> list[str]:
    """Which changes were not handled `within` so many seconds, counted from when nothing was in their way.

    That is when they were sent; but for those that met an outage of their own target, when it was over and
    the `recovery` too, which is how long nobody may have asked whether it is.
    """
    found = []
    for one in handled:
        free = one.sent
        for outage in outages:
            met = outage.begin - within <= one.sent <= outage.end + recovery and one.at >= outage.begin
            if met and one.handler == outage.handler:
                free = max(free, outage.end + recovery)
        if one.at - free > within:
            found.append(f"{one.table}: sent at {one.sent:.3f}, handled {one.delay:.3f} s later")
    return found
