"""Changes and rows for a log, workers that write one as the handler does, and a store in memory."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from handlers import Change
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files, FilesError

__all__ = [
    "MemoryFiles",
    "Place",
    "after_of",
    "change",
    "names_in",
    "place_of",
    "places_in",
    "places_of",
    "rows",
    "take",
]

Place = tuple[int, int, int]
"""Partition, offset, index."""

SCHEMA = pa.schema(
    [
        ("_op", pa.string()),
        ("_source_time", pa.timestamp("us", tz="UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_index", pa.int32()),
        ("id", pa.int64()),
    ]
)
_ROUNDS = 200
_START = datetime(2026, 11, 21, tzinfo=UTC)


def change(offset: int, *, partition: int = 0, index: int = 0, row: int = 1, ddl: bool = False) -> Change:
    """Of row `row`; a change of the whole table with `ddl`."""
    if ddl:
        return Change(
            "ddl", None, None, None, "ALTER ...", offset, "cdc", partition, offset, index, None, None
        )
    after = {"id": row}
    return Change("update", None, after, ("id",), None, offset, "cdc", partition, offset, index, None, None)


def place_of(one: Change) -> Place:
    return one.partition, one.offset, one.index


def rows(changes: Sequence[Change]) -> pa.Table:
    """One row a change, with its place."""
    return pa.table(
        {
            "_op": [one.op for one in changes],
            "_source_time": [_START + timedelta(milliseconds=one.source_time_ms) for one in changes],
            "_partition": [one.partition for one in changes],
            "_offset": [one.offset for one in changes],
            "_index": [one.index for one in changes],
            "id": [(one.after or {}).get("id") for one in changes],
        },
        schema=SCHEMA,
    )


def take(log: SegmentLog, changes: Sequence[Change], shard: int | None = None) -> None:
    """What the handler does with a batch: put what is beyond the marks, and look again when it was late."""
    for _ in range(_ROUNDS):
        beyond, _ = log.marks.beyond(changes, shard)
        if not beyond:
            return
        try:
            log.append(rows(beyond), log.marks.advanced(changes, shard), key=["id"])
        except SegmentTaken:
            log.load()
        else:
            return
    raise AssertionError(f"{log.folder}: late {_ROUNDS} times in a row")


@lru_cache(maxsize=256)
def places_in(data: bytes) -> list[Place]:
    """Which changes a segment's file holds, in order."""
    table = pq.read_table(io.BytesIO(data), columns=["_partition", "_offset", "_index"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def places_of(files: Files, log: SegmentLog) -> list[Place]:
    """Which changes the log's segments hold, in order."""
    return [place for segment in log.segments for place in places_in(files.read(segment.path))]


def after_of(log: SegmentLog) -> tuple[pa.Schema, tuple[str, ...]] | None:
    """The columns and the key that hold behind the log's last segment."""
    return None if log.head is None else log.head.segment.after


def names_in(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


class MemoryFiles:
    """A store that forgets nothing: what was put first under each path is told even after its removal."""

    def __init__(self) -> None:
        self.first_put: dict[str, bytes] = {}
        self.fails_after_put = False
        """The next put is done, and then its answer is lost."""
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()  # guards the dictionaries

    def list(self, folder: str) -> Sequence[Entry]:
        with self._lock:
            files = {path: len(data) for path, data in self._files.items() if path.startswith(f"{folder}/")}
        found: dict[str, Entry] = {}
        for path, size in files.items():
            name, _, deeper = path.removeprefix(f"{folder}/").partition("/")
            found[name] = Entry(name, 0 if deeper else size, 0, bool(deeper))
        return [*found.values()]

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        found = (entry for entry in self.list(folder) if entry.name > name)
        yield from sorted(found, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        with self._lock:
            if path not in self._files:
                raise FileNotFoundError(path)
            return self._files[path]

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        with pa.BufferReader(self.read(path)) as file:
            yield file

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._lock:
            if path in self._files:
                raise AlreadyThere(path)
            self._files[path] = bytes(data)
            self.first_put.setdefault(path, bytes(data))
            fails, self.fails_after_put = self.fails_after_put, False
        if fails:
            raise FilesError(f"cannot write {path}: connection reset")

    def replace(self, path: str, data: bytes) -> None:
        with self._lock:
            self._files[path] = data

    def delete(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def delete_tree(self, folder: str) -> None:
        with self._lock:
            for path in [path for path in self._files if path.startswith(f"{folder}/")]:
                del self._files[path]

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            for path in [path for path in self._files if path.startswith(f"{source}/")]:
                self._files[target + path.removeprefix(source)] = self._files.pop(path)

    def exists(self, path: str) -> bool:
        with self._lock:
            return any(each == path or each.startswith(f"{path}/") for each in self._files)
