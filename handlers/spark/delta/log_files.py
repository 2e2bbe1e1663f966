"""Reads a Delta table's newest version from its log's files: at once, where Spark would have to start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.spark.delta.log_actions import (
    Action,
    DataFile,
    Metadata,
    Protocol,
    Snapshot,
    read_action,
    read_last_checkpoint,
    read_stats,
)
from handlers.spark.log.stores.interface import Entry, Files, FilesError

_FEATURES = frozenset(
    (
        *("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors"),
        *("allowColumnDefaults", "domainMetadata", "generatedColumns", "identityColumns", "invariants"),
        *("clustering", "rowTracking", "timestampNtz", "typeWidening", "vacuumProtocolCheck", "variantType"),
    )
)
"""Features of Delta's protocol that affect neither the list of files nor their row counts."""
_NAMED = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet)")
_VERSIONED = re.compile(r"\d{20}\.(?:json|checkpoint\.)")
"""Names of commits and checkpoints, including those that only Spark reads."""
_MOST_FILES = 200_000
"""The most files of a table, at some 200 bytes of memory each. Spark counts those of larger tables."""
_MOST_ACTIONS = 1_000_000
"""The most actions of a checkpoint, mainly removals: only VACUUM reads them."""
_MOST_COMMITS = 1_000
_MOST_READER = 3
"""The newest version of Delta's protocol that is supported."""
_READ = [
    *("add.path", "add.size", "add.stats", "add.partitionValues", "add.deletionVector.storageType"),
    *("add.deletionVector.pathOrInlineDv", "add.deletionVector.offset", "add.deletionVector.cardinality"),
    *("protocol", "metaData", "sidecar.path", "txn.appId", "txn.version"),
]
"""The columns that are read from a checkpoint."""
_REMOVED = ["remove.path", "remove.deletionTimestamp"]
_AT_ONCE = 4_096
_BROKEN = (ValueError, TypeError, KeyError, RecursionError)
"""Errors that bytes raise if Delta did not write them."""


class Unknown(Exception):
    """The files do not contain the answer: ask Spark."""


def snapshot_in_files(
    files: Files, path: str, *, with_stats: bool = False, with_removed: bool = False
) -> Snapshot | None:
    """Return the newest version of the table at `path`. None: ask Spark. Raises what `files` raises.
    `with_removed`: with the files of earlier versions, which may be many.

    By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#action-reconciliation"""
    replay = _Replay(with_stats, with_removed)
    try:
        version, commit = replay.all_of(files, f"{path}/_delta_log")
        return replay.snapshot(version, commit)
    except FilesError:
        raise
    except (Unknown, msgspec.DecodeError, pa.ArrowException, OSError, *_BROKEN):
        return None  # or Delta has removed a file since it was listed


def metadata_in_files(files: Files, path: str) -> Metadata | None:
    """The same, for what does not depend on the table's files."""
    folder = f"{path}/_delta_log"
    try:
        checkpoint, commits = found_in(files, folder)
        for version in reversed(commits):
            for line in read_commit(files, folder, version).splitlines():
                if b'"metaData"' in line:
                    action = read_action(line)
                    if action.meta_data is not None:
                        return action.meta_data
        for name in checkpoint:
            with files.open(f"{folder}/{name}") as file:
                found = pq.read_table(file, columns=["metaData"]).column(0).drop_null()
                for row in found.to_pylist(maps_as_pydicts="strict"):
                    return msgspec.convert(_told(row), Metadata)
    except FilesError:
        raise
    except (Unknown, msgspec.DecodeError, pa.ArrowException, OSError, *_BROKEN):
        pass
    return None


def has_commits(files: Files, path: str) -> bool:
    """Whether a table exists at `path`. While its first commit runs, its log's folder contains no commit.
    Raises what `files` raises."""
    # The first look is enough for nearly every table. Listing a long log takes a while.
    first = ("_last_checkpoint", f"{0:020d}.json")
    if any(files.exists(f"{path}/_delta_log/{name}") for name in first):
        return True
    entries = files.list(f"{path}/_delta_log")
    return any(not entry.is_folder and _VERSIONED.match(entry.name) for entry in entries)


@dataclass(slots=True)
class _Replay:
    """Replays the actions of a log, one after the other."""

    with_stats: bool
    with_removed: bool
    added: dict[str, DataFile] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    writers: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    def all_of(self, files: Files, folder: str) -> tuple[int, bytes]:
        """Read the newest checkpoint and the commits since. Returns the last version, with its commit."""
        checkpoint, commits = found_in(files, folder)
        for name in checkpoint:
            with files.open(f"{folder}/{name}") as file:
                self._checkpoint(pq.ParquetFile(file))
        commit = b""
        for version in commits:
            self._commit(commit := read_commit(files, folder, version))
        if commits:
            return commits[-1], commit
        version = int(checkpoint[0][:20])
        with suppress(FileNotFoundError):
            commit = read_commit(files, folder, version)
        return version, commit

    def snapshot(self, version: int, commit: bytes) -> Snapshot:
        if self.metadata is None or self.protocol is None or self.protocol.min_reader_version > _MOST_READER:
            raise Unknown
        if not (self.protocol.features <= _FEATURES and self.metadata.columns):
            raise Unknown
        return Snapshot(version, self.metadata, self.protocol, self.added, self.writers, self.removed, commit)

    def _checkpoint(self, file: pq.ParquetFile) -> None:
        added = file.read(["add.size"]).columns
        is_large = sum(len(column) - column.null_count for column in added) > _MOST_FILES
        if is_large or file.metadata.num_rows > _MOST_ACTIONS:
            raise Unknown
        for batch in file.iter_batches(_AT_ONCE, columns=_READ + _REMOVED * self.with_removed):
            # After many commits, most actions are removals: null, if those are not read.
            is_told = reduce(pc.or_, map(pc.is_valid, batch.columns))
            for row in batch.filter(is_told).to_pylist(maps_as_pydicts="strict"):
                self._take(msgspec.convert(_told(row), Action))

    def _commit(self, commit: bytes) -> None:
        actions = [read_action(line) for line in commit.splitlines()]
        # A file that only gets a deletion vector is removed and added by one commit.
        for action in actions:
            if action.remove is not None:
                gone = self.added.pop(action.remove.path, None)
                if gone is not None and gone.deletion_vector != action.remove.deletion_vector:
                    raise Unknown  # another file is removed
        for action in actions:
            self._take(action)
        if len(self.added) > _MOST_FILES:
            raise Unknown

    def _take(self, action: Action) -> None:
        if action.remove is not None and self.with_removed:
            self.removed[action.remove.path] = action.remove.deletion_timestamp or 0
        if (add := action.add) is not None:
            rows = None
            if add.stats is not None:
                gone = 0 if add.deletion_vector is None else add.deletion_vector.cardinality
                if not 0 <= gone <= (all_rows := read_stats(add.stats).num_records):
                    raise Unknown
                rows = all_rows - gone
            stats = add.stats if self.with_stats else None
            self.added[add.path] = DataFile(add.size, rows, add.partition_values, add.deletion_vector, stats)
        if action.sidecar is not None:
            raise Unknown  # the files are listed elsewhere
        if action.txn is not None:
            self.writers[action.txn.app_id] = action.txn.version
        if action.meta_data is not None:
            self.metadata = action.meta_data
        if action.protocol is not None:
            self.protocol = action.protocol


def read_commit(files: Files, folder: str, version: int) -> bytes:
    """Read a commit's file in the log's folder. Raises what `files` raises, and FilesError if it is empty."""
    if commit := files.read(path := f"{folder}/{version:020d}.json"):
        return commit
    raise FilesError(
        f"{path} is empty, as after a power loss: its rows would be lost or doubled. Restore it. Or if it is "
        "the table's newest, remove it: what it merged is merged again. If it was a statement of the source "
        "(ALTER, TRUNCATE ...), apply that by hand"
    )


def found_in(files: Files, folder: str) -> tuple[Sequence[str], Sequence[int]]:
    """Return the files of the newest complete checkpoint, and the versions of the commits since."""
    # The log of a month is long. The hint may be out of date, or wrong.
    with suppress(Unknown, OSError):
        return _found(files.list_after(folder, f"{hinted_version(files, folder):020d}"))
    return _found(files.list(folder))


def hinted_version(files: Files, folder: str) -> int:
    """Return the newest checkpoint's version, or a former one's. Raises Unknown, and like `Files.read`."""
    try:
        return read_last_checkpoint(files.read(f"{folder}/_last_checkpoint")).version
    except _BROKEN as error:
        raise Unknown from error


def _found(entries: Iterable[Entry]) -> tuple[Sequence[str], Sequence[int]]:
    commits: list[int] = []
    checkpoints: dict[tuple[int, int], list[str]] = {}
    for name in sorted(entry.name for entry in entries):
        if (found := _NAMED.fullmatch(name)) is None:
            continue
        version = int(found[1])
        if name.endswith(".json"):
            commits.append(version)
        else:
            checkpoints.setdefault((version, int(found[2] or 1)), []).append(name)
    whole = [key for key, parts in checkpoints.items() if len(parts) == key[1]]
    newest = max(whole, default=None)
    begin = -1 if newest is None else newest[0]
    since = [version for version in commits if version > begin]
    is_gapless = since == list(range(begin + 1, begin + 1 + len(since)))
    if not is_gapless or len(since) > _MOST_COMMITS or (newest is None and not since):
        raise Unknown
    return () if newest is None else checkpoints[newest], since


def _told(row: Any) -> Any:
    """Remove nulls: each row of a checkpoint has the columns of all kinds of actions."""
    if isinstance(row, dict):
        return {name: _told(value) for name, value in row.items() if value is not None}
    return row
