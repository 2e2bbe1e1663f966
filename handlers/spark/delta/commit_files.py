"""How far a log is merged, by the newest files of the Delta log: at once, where Spark takes seconds."""

from __future__ import annotations

import msgspec

from handlers.spark.log.files import Files

__all__ = ["merged_in_files"]

_MOST = 50
"""Commits that are looked into: Delta writes a checkpoint after every ten."""


class _Checkpoint(msgspec.Struct):
    version: int


class _Txn(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _Action(msgspec.Struct):
    txn: _Txn | None = None


def merged_in_files(files: Files, path: str, app_id: str) -> int | None:
    """The last segment that the table at `path` holds of a log (`TableRef.app_id`); 0: there is no table;
    None: the commits since Delta's last checkpoint do not tell, so that Spark is to be asked.

    By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
    Raises what `files` raises.
    """
    folder = f"{path}/_delta_log"
    try:
        first = _first(files, folder)
        commits = _since(files, folder, first)
    except msgspec.DecodeError:
        return None
    if commits is None:
        return None if files.exists(folder) else 0
    return next((found for commit in reversed(commits) if (found := _txn(commit, app_id)) is not None), None)


def _first(files: Files, folder: str) -> int:
    """The version of the last checkpoint."""
    try:
        return msgspec.json.decode(files.read(f"{folder}/_last_checkpoint"), type=_Checkpoint).version
    except FileNotFoundError:
        return 0


def _since(files: Files, folder: str, first: int) -> list[bytes] | None:
    """The commits from this version on; None: there are none, or too many."""
    commits: list[bytes] = []
    for version in range(first, first + _MOST):
        try:
            commits.append(files.read(f"{folder}/{version:020d}.json"))
        except FileNotFoundError:
            return commits or None
    return None


def _txn(commit: bytes, app_id: str) -> int | None:
    for line in commit.splitlines():
        if b'"txn"' in line:
            action = msgspec.json.decode(line, type=_Action)
            if action.txn is not None and action.txn.app_id == app_id:
                return action.txn.version
    return None
