"""The user metadata of each commit of a Delta table: its worker, and the segments that it merges.

The newest commits are read from the files of the table's log: at once, where Spark takes seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from handlers.spark.delta.log_actions import Action, CommitInfo, read_action
from handlers.spark.delta.log_files import Unknown, found_in, has_commits, read_commit
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import Files

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


class LostCommit(BrokenLog):
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


_MOST = 50
"""The most commits that are read. Delta writes a checkpoint after every ten."""
_MOST_NOTES = 1_000


def held_in_files(files: Files, path: str, app_id: str, newest: int | None = None) -> Held | None:
    """Return which segments of a log (`TableRef.app_id`) the table at `path` contains. None if the newest
    commits' files do not show it: ask Spark. `newest`: the table's version, if it is known.

    By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
    Raises LostCommit if a RESTORE undid the newest of them or a later statement, and what `files` raises."""
    version = 0 if newest is None else -1  # without a table, none is read
    restores: list[Restore] = []
    try:
        for version, commit in islice(_newest_first(files, path, newest), _MOST):
            notes = [see(path, version, info, restores) for info in _infos(commit)]
            for action in _actions(commit, b'"txn"'):
                if action.txn is not None and action.txn.app_id == app_id:
                    check_restores(path, version, restores)
                    held = brought(next(iter(notes), None), app_id)
                    return held if held is not None and held.first == action.txn.version else None
    except Unknown:
        return None
    return None if version else Held()  # all commits were read


def note_of_version(files: Files, path: str, version: int) -> dict[str, Any] | None:
    """Return the note of one commit. None if the commit is not binlane's.

    Raises LookupError if the commit's file is missing or unreadable, and what `files` raises."""
    commit = _commit(files, f"{path}/_delta_log", version)
    if commit is None:
        raise LookupError(f"the file of commit {version} of {path} is gone")
    try:
        return next((read_note(info.user_metadata) for info in _infos(commit)), None)
    except Unknown as error:
        raise LookupError(f"the file of commit {version} of {path} cannot be read") from error


def notes_in_files(files: Files, path: str, most: int, newest: int | None = None) -> list[str] | None:
    """Return the user metadata of the newest `most` commits that have any, newest first, and of those before
    them back to a merge. None: ask Spark. `newest`: as in `held_in_files`. Raises what `files` raises."""
    notes: list[str] = []
    has_merge = False
    try:
        for number, (_, commit) in enumerate(_newest_first(files, path, newest)):
            if number >= (most if has_merge else _MOST_NOTES):
                break
            found = [info.user_metadata for info in _infos(commit) if info.user_metadata is not None]
            has_merge = has_merge or any((read_note(each) or {}).get("segment") for each in found)
            notes += found
    except Unknown:
        return None
    return notes


def _newest_first(files: Files, path: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the commits that Delta has not removed yet, with their versions. None without a table. Raises
    Unknown if even the newest is gone, as with a checkpoint alone."""
    folder = f"{path}/_delta_log"
    if newest is None:
        if not has_commits(files, path):
            return
        checkpoint, commits = found_in(files, folder)
        newest = commits[-1] if commits else int(checkpoint[0][:20])
    for version in range(newest, -1, -1):
        if (commit := _commit(files, folder, version)) is None:
            if version == newest:
                raise Unknown
            return
        yield version, commit


def _commit(files: Files, folder: str, version: int) -> bytes | None:
    try:
        return read_commit(files, folder, version)
    except FileNotFoundError:
        return None


def _infos(commit: bytes) -> list[CommitInfo]:
    infos = (action.commit_info for action in _actions(commit, b'"commitInfo"'))
    return [info for info in infos if info is not None]


def _actions(commit: bytes, kind: bytes) -> Iterator[Action]:
    """Yield the actions of one kind, by its name in JSON."""
    for line in commit.splitlines():
        if kind in line:
            try:
                yield read_action(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Unknown from error
