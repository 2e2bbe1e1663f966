"""The user metadata of each commit of a Delta table: its worker, and the segments that it merges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.spark.log.last_seen_table import Held


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The user metadata of a commit."""

    worker: str
    handler: str
    first: int
    """The first segment that the commit merges, 0 for a DDL commit."""
    segment: int
    """The last segment that the commit merges, 0 for a DDL commit."""
    source_time_ms: int
    """The newest change's source time."""
    marks: Mapping[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (offset, index) of the last applied change."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> Kafka's id of the topic, if known."""

    def to_json(self, log: str = "", commit: str = "") -> str:
        """`log`: the segments' log (`TableRef.app_id`), because a renamed table has commits of two logs.
        `commit`: an id that identifies the commit."""
        marks: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), place in sorted(self.marks.items()):
            marks.setdefault(topic, {})[str(partition)] = list(place)
        told = {
            "worker": self.worker,
            "handler": self.handler,
            "log": log,
            "first": self.first,
            "segment": self.segment,
            "commit": commit,
            "source_time_ms": self.source_time_ms,
            "marks": marks,
            **({"topic_ids": dict(sorted(self.topic_ids.items()))} if self.topic_ids else {}),
        }
        return json.dumps({"binlane": told}, separators=(",", ":"))


def read_note(user_metadata: str | None) -> dict[str, Any] | None:
    """Read what `CommitNote.to_json` wrote. Returns None for another writer's commit."""
    try:
        note = json.loads(user_metadata or "null")
    except ValueError:
        return None
    own = note.get("binlane") if isinstance(note, dict) else None
    return own if isinstance(own, dict) else None


def brought(note: Mapping[str, Any] | None, app_id: str) -> Held | None:
    """Return the segments of this log (`TableRef.app_id`) that a commit has merged. None if it merged none.

    An earlier release recorded only the last segment, and used it as Delta's transaction version too."""
    if note is None or note.get("log") != app_id or not note.get("segment"):
        return None
    return Held(int(note.get("first") or note["segment"]), int(note["segment"]))
