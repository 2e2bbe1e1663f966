"""What every commit of a Delta table says in its user metadata: who made it, and which segments it brings."""

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
    """The first segment that the commit brings; 0 for one of DDL."""
    segment: int
    """The last one, which the table holds with this commit; 0 for one of DDL."""
    source_time_ms: int
    """Of the newest change in it."""
    marks: Mapping[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (offset, index) of the last change that is applied."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> Kafka's id of it, where known."""

    def to_json(self, log: str = "", commit: str = "") -> str:
        """`log`: whose segments are meant (`TableRef.app_id`): a renamed table has commits of two.
        `commit`: by which the commit is known again."""
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
    """What `CommitNote.to_json` has written; None: it is somebody else's commit."""
    try:
        note = json.loads(user_metadata or "null")
    except ValueError:
        return None
    own = note.get("binlane") if isinstance(note, dict) else None
    return own if isinstance(own, dict) else None


def brought(note: Mapping[str, Any] | None, app_id: str) -> Held | None:
    """The segments of this log (`TableRef.app_id`) that a commit has brought; None: it has brought none.

    A release that told only the last one gave that to Delta as the transaction's version, too."""
    if note is None or note.get("log") != app_id or not note.get("segment"):
        return None
    return Held(int(note.get("first") or note["segment"]), int(note["segment"]))
