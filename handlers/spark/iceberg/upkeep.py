"""Keeps an Iceberg table's files few and large, and its snapshots few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from handlers.logs import get_logger
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.upkeep import LARGE
from handlers.spark.iceberg.commits import TableCommit

_log = get_logger("spark")
_MOST_SNAPSHOTS = 1_000
"""Each commit writes a list of all snapshots."""


def optimize(commit: TableCommit, note: CommitNote, min_files: int) -> None:
    """Rewrite small files as larger ones, if there are at least `min_files`. Does nothing if another writer
    commits meanwhile: the next run tries again."""
    small = [each for each in commit.files() if each.file.file_size_in_bytes < LARGE // 4]
    if len(small) < max(2, min_files):
        return
    commit.replace(small, map(commit.rows, small), note)
    try:
        commit.commit()
        _log.info("iceberg_optimized", table=str(commit.ref), files=len(small))
    except MergeConflict:
        _log.info("iceberg_optimize_put_off", table=str(commit.ref), files=len(small))


def expire(table: Any, retention: float, load: Callable[[], Any]) -> None:
    """Remove snapshots older than `retention` seconds, and all but the newest 1,000, with files that no other
    snapshot needs. Branches and tags keep theirs."""
    heads = {each.snapshot_id for each in table.refs().values()}
    newest = sorted(table.snapshots(), key=lambda each: each.timestamp_ms, reverse=True)
    oldest = (time.time() - retention) * 1000
    old = [
        each
        for number, each in enumerate(newest)
        if each.snapshot_id not in heads and (number >= _MOST_SNAPSHOTS or each.timestamp_ms < oldest)
    ]
    if not old:
        return
    before = _files(table, old)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    table = load()
    gone = before - _files(table, table.snapshots())
    for path in gone:
        with suppress(OSError):
            table.io.delete(path)
    _log.info("iceberg_snapshots_expired", table=".".join(table.name()), snapshots=len(old), files=len(gone))


def _files(table: Any, snapshots: Iterable[Any]) -> set[str]:
    """Return the files that snapshots need."""
    lists = list(snapshots)
    manifests = {each.manifest_path: each for one in lists for each in one.manifests(table.io)}
    entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io))
    return (
        {entry.data_file.file_path for entry in entries}
        | set(manifests)
        | {one.manifest_list for one in lists}
    )
