"""The user metadata of each commit of a Delta table: its worker, and the segments that it merges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from handlers.spark.delta.log_actions import CommitInfo
from handlers.spark.log.last_seen_table import Held

_MAKES = re.compile("(CREATE|REPLACE|CREATE OR REPLACE) TABLE|CLONE")
"""Prefixes of Delta's operations that put another table into a folder. The log continues, and so do the
transaction identifiers."""


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
    told = ((topic, *mark) for topic, marks in note.get("marks", {}).items() for mark in marks.items())
    marks = {(topic, int(partition)): tuple(place) for topic, partition, place in told}
    return Held(int(note.get("first") or note["segment"]), int(note["segment"]), marks or None)


class LostCommit(RuntimeError):
    """The table no longer contains what it contained."""


class Restore(NamedTuple):
    """A commit of another writer that removes rows of earlier commits."""

    version: int
    """The commit's own version."""
    to: int
    """The version whose rows it restores. -1 for a RESTORE to a time, or for another table."""
    is_other: bool = False
    """Whether it put another table in this one's place."""


def see(table: str, version: int, info: CommitInfo, restores: list[Restore]) -> dict[str, Any] | None:
    """Return a commit's note, None for another writer's. `restores` gets the restore that it made, after
    those that came later. Raises LostCommit if they undid the statement of the source that it followed."""
    note = read_note(info.user_metadata)
    if info.operation == "RESTORE":
        to = (info.operation_parameters or {}).get("version")
        restores.append(Restore(version, -1 if to is None else int(str(to))))
    elif note is None and _MAKES.match(info.operation or ""):
        restores.append(Restore(version, -1, is_other=True))
    elif note is not None and "ddl" in note:  # a table without rows may be replaced
        check_restores(table, version, [each for each in restores if not each.is_other])
    return note


def check_restores(table: str, merged: int, restores: Sequence[Restore]) -> None:
    """Check that the table still has what its version `merged` brought: its newest segments, or a statement.

    `restores`: the restores after it, newest first. Delta's transaction identifiers survive a restore, so
    they still name the lost segments. Raises LostCommit."""
    seen = None  # of the versions before a RESTORE, only those up to the restored one count
    for each in restores:
        if seen is not None and each.version > seen:
            continue
        seen = each.to
        if seen < merged:
            earlier = f"restored to version {seen}" if seen >= 0 else "restored to an earlier time"
            what = "replaced by another table" if each.is_other else earlier
            raise LostCommit(
                f"{table} was {what} by its version {each.version}, but version {merged} had a newer part "
                "of its log, which would be lost. Restore it (RESTORE TABLE delta.`...` TO VERSION AS OF "
                f"{each.version - 1}); or remove the table with its log, and read the source again"
            )
