"""Checkpoints of a Delta log, and its cleaning, for the tables to which binlane itself commits.

By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.logs import get_logger
from handlers.spark.delta.log_files import Unknown, found_in, read_commit
from handlers.spark.log.stores.interface import AlreadyThere, Files, is_temporary

CHECKPOINT_EVERY = 10
"""Number of versions, as in Spark."""
_CLEAN_EVERY = 100
_DAY_MS = 86_400_000
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": _DAY_MS, "week": 7 * _DAY_MS}
_INTERVAL = re.compile(r"(?i)(?:interval )?(\d+) (second|minute|hour|day|week)s?")
_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.field("element", pa.string()))
_FILE = [("path", pa.string()), ("partitionValues", _TEXTS), ("size", pa.int64()), ("dataChange", pa.bool_())]
_FORMAT = pa.struct([("provider", pa.string()), ("options", _TEXTS)])
_KINDS = {
    "txn": [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())],
    "add": [*_FILE, ("modificationTime", pa.int64()), ("stats", pa.string()), ("tags", _TEXTS)],
    "remove": [*_FILE, ("deletionTimestamp", pa.int64()), ("extendedFileMetadata", pa.bool_())],
    "metaData": [
        *((name, pa.string()) for name in ("id", "name", "description", "schemaString")),
        *(("format", _FORMAT), ("partitionColumns", _LIST), ("configuration", _TEXTS)),
        ("createdTime", pa.int64()),
    ],
    "protocol": [
        *(("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())),
        *(("readerFeatures", _LIST), ("writerFeatures", _LIST)),
    ],
}
_SCHEMA = pa.schema([(kind, pa.struct(parts)) for kind, parts in _KINDS.items()])
_REMOVED = pc.field("remove", "path").is_valid()
_NAMES = {"txn": "appId", "add": "path", "remove": "path"}
"""What tells one action from another of its kind. Of the other kinds, only the last one counts."""
_PASSING = {"commitInfo", "cdc"}
_DERIVED = {"add": {"stats_parsed"}, "remove": {"stats", "tags"}}
"""Parts of Spark's actions that a checkpoint does not need: they repeat others, or only a commit has them."""

_log = get_logger("spark")


def duration_ms(interval: str) -> int | None:
    """Return an interval of a table property in milliseconds. None if only Spark reads it."""
    found = _INTERVAL.fullmatch(interval.strip())
    return None if found is None else int(found[1]) * _UNITS_MS[found[2].lower()]


def keep_house(
    files: Files, path: str, version: int, properties: Mapping[str, str], is_same: Callable[[], bool]
) -> None:
    """Write a checkpoint after some commits, as Spark does. Without it, each reader reads all commits.
    `is_same`: whether the table that is there is still this one.

    Raises nothing: the commit stays valid."""
    if not version or version % CHECKPOINT_EVERY:
        return
    try:
        kept = duration_ms(properties.get("delta.deletedFileRetentionDuration", "7 days"))
        if kept is not None:
            write_checkpoint(files, path, version, int(time.time() * 1000) - kept, is_same)
        kept = duration_ms(properties.get("delta.logRetentionDuration", "30 days"))
        is_cleaned = properties.get("delta.enableExpiredLogCleanup", "true").lower() != "false"
        if kept is not None and is_cleaned and not version % _CLEAN_EVERY:
            clean_log(files, path, int(time.time() * 1000) - kept, is_same)
    except Exception as error:
        _log.warning("delta_checkpoint_failed", table=path, error=str(error))


def write_checkpoint(
    files: Files, path: str, version: int, expired_ms: int, is_same: Callable[[], bool] = lambda: True
) -> None:
    """Write the checkpoint of a version, unless there is a newer one. It has no removals before `expired_ms`,
    which is in milliseconds since 1970. `is_same`: see `keep_house`. Raises Unknown if the log has actions
    that it cannot contain, and what Arrow and the store raise."""
    folder = f"{path}/_delta_log"
    before, commits = found_in(files, folder)
    if before and int(before[0][:20]) >= version:
        return  # it begins where another writer's ends, and would be the state of that version
    state: dict[tuple[str, str], dict[str, Any]] = {}
    removals = [_SCHEMA.empty_table()]
    for name in before:
        with files.open(f"{folder}/{name}") as file:
            found = pq.read_table(file)
        if found.schema.equals(_SCHEMA):  # binlane's own. Removals may be many: they stay in Arrow
            removals.append(found.filter(_REMOVED & (pc.field("remove", "deletionTimestamp") > expired_ms)))
            found = found.filter(~_REMOVED)
        for row in found.to_pylist(maps_as_pydicts="strict"):
            _take(state, row)
    for commit in commits:
        if commit <= version:
            actions = map(json.loads, read_commit(files, folder, commit).splitlines())
            # A file may be removed and added by one commit.
            for action in sorted(actions, key=lambda each: "add" in each):
                _take(state, action)
    rows = [
        {kind: {**action, "dataChange": False} if kind in ("add", "remove") else action}
        for (kind, _), action in state.items()
        if kind != "remove" or (action.get("deletionTimestamp") or 0) > expired_ms
    ]
    later = pc.field("remove", "path").isin([name for kind, name in state if kind != "txn"])
    table = pa.concat_tables([pa.Table.from_pylist(rows, _SCHEMA), pa.concat_tables(removals).filter(~later)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    data = sink.getvalue()
    if not is_same():
        return
    with suppress(AlreadyThere):  # another writer's is the same
        files.put(f"{folder}/{version:020d}.checkpoint.parquet", data)
    adds = sum("add" in row for row in rows)
    last = {"version": version, "size": len(table), "sizeInBytes": data.size, "numOfAddFiles": adds}
    files.replace(f"{folder}/_last_checkpoint", json.dumps(last).encode())


def _take(state: dict[tuple[str, str], dict[str, Any]], row: Mapping[str, Any]) -> None:
    for kind, action in row.items():
        if action is None or kind in _PASSING:
            continue
        known = {name for name, _ in _KINDS.get(kind, ())}
        passed = _DERIVED.get(kind, set()) if kind == "remove" or action.get("stats") else set()
        told = {name: value for name, value in action.items() if value is not None and name not in passed}
        if not told.keys() <= known:
            raise Unknown(f"{kind} with {', '.join(sorted(told.keys() - known))}")
        name = str(told[_NAMES[kind]]) if kind in _NAMES else ""
        if kind in ("add", "remove"):
            state.pop(("add" if kind == "remove" else "remove", name), None)
        state[kind, name] = told


def clean_log(files: Files, path: str, expired_ms: int, is_same: Callable[[], bool] = lambda: True) -> None:
    """Remove the commits before the newest checkpoint that is older than `expired_ms`. `is_same`: see
    `keep_house`. It is asked again after each pause."""
    folder = f"{path}/_delta_log"
    old: list[str] = []
    for one in files.list_after(folder, ".binlane-"):  # temporary files, then versions
        is_version = one.name[:20].isdigit()
        if is_version and one.modified_ms >= expired_ms:
            break  # the next versions are younger
        if 0 < one.modified_ms < expired_ms and (is_version or is_temporary(one.name)):
            old.append(one.name)
    newest = max((name[:20] for name in old if name.endswith(".checkpoint.parquet")), default="")
    looked = 0.0
    for name in old:
        if name[:20] < newest:
            if not 0 <= time.time() - looked < 0.2:
                looked = time.time()
                if not is_same():
                    return
            files.delete(f"{folder}/{name}")
