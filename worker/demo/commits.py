"""What a Delta table's log tells of the commits that brought changes into it: how far each went, and when.

The log's format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class Commit(NamedTuple):
    """One merge."""

    last: tuple[int, int]
    """(offset, index) of the last change that the table holds with it."""
    ended: float
    """Seconds since 1970."""


def read_commits(table: Path, topic: str) -> list[Commit]:
    """The merges of what came from partition 0 of the topic, in order; none when there is no table."""
    commits = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        for action in msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes()):
            info = action.get("commitInfo", {})
            note = _note(info.get("userMetadata"))
            # Those of DDL, and of nobody: neither says how far the changes are in.
            if place := note.get("marks", {}).get(topic, {}).get("0"):
                commits.append(Commit((place[0], place[1]), info["timestamp"] / 1000))
    return commits


def _note(metadata: str | None) -> dict[str, Any]:
    try:
        note: dict[str, Any] = msgspec.json.decode(metadata or "{}").get("binlane", {})
    except (msgspec.DecodeError, AttributeError):
        return {}
    return note
