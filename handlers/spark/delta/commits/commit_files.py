"""Reads the newest commits of a Delta table from its log's files: at once, where Spark takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from handlers.spark.delta.commits.commit_notes import Restore, brought, check_restores, read_note, see
from handlers.spark.delta.log_actions import Action, CommitInfo, read_action
from handlers.spark.delta.log_files import Unknown, has_commits, hinted_version
from handlers.spark.log.last_seen_table import Held
from handlers.spark.log.stores.interface import Files

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
    """Yield the commits that Delta has not removed yet, with their versions. None without a table."""
    folder = f"{path}/_delta_log"
    since = [] if newest is not None else _since_checkpoint(files, path)
    yield from reversed(since)
    version = since[0][0] - 1 if since else -1 if newest is None else newest
    while version >= 0 and (commit := _commit(files, folder, version)) is not None:
        yield version, commit
        version -= 1


def _since_checkpoint(files: Files, path: str) -> list[tuple[int, bytes]]:
    """Return the commits since the newest checkpoint, and that checkpoint's own, with their versions."""
    folder = f"{path}/_delta_log"
    try:
        checkpoint = hinted_version(files, folder)
    except FileNotFoundError:
        checkpoint = 0
    since: list[bytes] = []
    while (commit := _commit(files, folder, checkpoint + len(since))) is not None:
        since.append(commit)
        if len(since) > _MOST:
            raise Unknown
    if not since and has_commits(files, path):
        raise Unknown
    return [(checkpoint + at, each) for at, each in enumerate(since)]


def _commit(files: Files, folder: str, version: int) -> bytes | None:
    try:
        return files.read(f"{folder}/{version:020d}.json")
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
