"""Keeps an Iceberg table's snapshots few, and removes files that none needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots

from handlers.logs import get_logger
from handlers.spark.iceberg.commits import held_in, noted_again
from handlers.spark.table_ref import TableRef

_log = get_logger("spark")
_MOST_SNAPSHOTS = 1_000  # each commit writes a list of all


def expire(table: Any, retention: float, load: Callable[[], Any], ref: TableRef) -> None:
    """Remove snapshots older than `retention` seconds, and all but the newest 1,000, with files that no other
    snapshot needs. Branches and tags keep theirs. With `gc.enabled` false, nothing is removed."""
    heads = {each.snapshot_id for each in table.refs().values()}
    times = sorted(one.timestamp_ms for one in table.snapshots() if one.snapshot_id not in heads)[::-1]
    oldest = max((time.time() - retention) * 1000, *times[_MOST_SNAPSHOTS : _MOST_SNAPSHOTS + 1], 0)
    if not times or times[-1] >= oldest or _is_shared(table):
        return
    before, found = _files(table), load()  # with branches and tags made meanwhile, or another table
    held_in(ref, found)
    known = set() if found is None else {each.snapshot_id for each in found.snapshots()}
    if not known.issuperset(each.snapshot_id for each in table.snapshots()) or _is_shared(found):
        return
    refs = [{"ref": name, "snapshot-id": each.snapshot_id} for name, each in found.refs().items()]
    with found.transaction() as change:  # `found` becomes what was committed
        ExpireSnapshots(change).older_than(datetime.fromtimestamp(oldest / 1000, UTC)).commit()
        change.set_properties(noted_again(ref, change.table_metadata))
        change._stage((), tuple(map(AssertRefSnapshotId.model_validate, refs)))  # none may be set back now
    for path in (gone := before - _files(found)):
        with suppress(OSError):
            found.io.delete(path)
    _log.info("iceberg_snapshots_expired", table=".".join(found.name()), files=len(gone))


def _is_shared(table: Any) -> bool:
    return bool(table.properties.get("gc.enabled", "").lower() == "false")


def _files(table: Any) -> set[str]:
    """Return the files that snapshots need."""
    manifests = {each.manifest_path: each for one in table.snapshots() for each in one.manifests(table.io)}
    entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io))
    files = {entry.data_file.file_path for entry in entries}
    return {*manifests, *files, *(one.manifest_list for one in table.snapshots())}
