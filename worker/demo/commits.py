"""What a Delta table's log tells of its appends: which changes each holds, and when it was there.

The log's format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

__all__ = ["Commit", "read_commits"]


class Commit(NamedTuple):
    """One append."""

    first_offset: int
    last_offset: int
    rows: int
    ended: float
    """Seconds since 1970."""


def read_commits(table: Path) -> list[Commit]:
    """The appends of a changelog table, in order; none when there is no table."""
    commits = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        actions = msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes())
        stats = [msgspec.json.decode(action["add"]["stats"]) for action in actions if "add" in action]
        if stats:
            commits.append(
                Commit(
                    min(part["minValues"]["_offset"] for part in stats),
                    max(part["maxValues"]["_offset"] for part in stats),
                    sum(part["numRecords"] for part in stats),
                    path.stat().st_mtime,
                )
            )
    return commits
