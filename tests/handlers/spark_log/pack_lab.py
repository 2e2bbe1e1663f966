"""Workers that share packs, on one store in memory, without Spark: killed, frozen and cut off at any request.

Logs, packs and sinks are the handler's own; the Spark table is a list that refuses what it holds already.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from log_lab import MemoryFiles

from handlers import Batch, Change, HandlerContext
from handlers.failures import AskAgain
from handlers.logs import get_logger
from handlers.progress import KnownIds, PassingOver
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.engine.table.work import TableWork
from handlers.spark.engine.table.world import World
from handlers.spark.locations import Locations
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import AlreadyThere, Entry, FilesError
from handlers.spark.log.streams import Packs
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.rows.shape import Shape

__all__ = ["Fault", "Killed", "Lake", "Worker", "row"]

Fault = Literal[
    "die before", "die after", "lose answer", "refuse", "arrive late", "freeze before", "freeze after"
]
_TYPES = {"id": "int", "name": "varchar(20)"}


class Killed(BaseException):
    """The process is gone."""


def row(offset: int, key: int) -> Change:
    after = {"id": key, "name": f"at {offset}"}
    moment = 1_790_000_000_000 + offset
    return Change("update", None, after, ("id",), None, moment, "cdc", 0, offset, 0, None, _TYPES)


class Lake:
    """What outlives workers: the store, and Spark's tables."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.files = MemoryFiles()
        self.held: dict[str, Held] = {}
        self.offsets: dict[str, list[int]] = {}
        """Of a changelog: all rows, as they came."""
        self.rows: dict[str, dict[int, str]] = {}
        """Of a replica."""

    def commit(self, table: str, segments: Sequence[Segment], files: StoreOfOne) -> None:
        found = [pq.read_table(io.BytesIO(files.read(segment.path))).to_pylist() for segment in segments]
        held = self.held.get(table, Held())
        if held.last >= segments[0].number:
            raise MergeConflict(f"{table} holds {held.last}")
        for rows in found:
            if self.mode == "replica":
                keys = [each["id"] for each in rows]
                assert len(keys) == len(set(keys)), "a segment of a replica has each key once"
                self.rows.setdefault(table, {}).update({each["id"]: each["name"] for each in rows})
            else:
                self.offsets.setdefault(table, []).extend(each["_offset"] for each in rows)
        self.held[table] = Held(segments[0].number, segments[-1].number)


class StoreOfOne:
    """The store as one worker reaches it."""

    def __init__(self, files: MemoryFiles, meanwhile: Callable[[], None]) -> None:
        """`meanwhile`: what others do while this worker is frozen."""
        self._files = files
        self._meanwhile = meanwhile
        self.is_dead = False
        self.fault: Fault | None = None
        self.left = 0
        """Requests until the fault."""
        self._late: list[Callable[[], object]] = []

    def list(self, folder: str) -> Sequence[Entry]:
        return self._asked(lambda: self._files.list(folder))

    def read(self, path: str) -> bytes:
        return self._asked(lambda: self._files.read(path))

    def open(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        @contextmanager
        def opened(data: bytes) -> Iterator[pa.NativeFile]:
            with pa.BufferReader(data) as file:
                yield file

        return opened(self.read(path))

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self._asked(lambda: self._files.put(path, data))

    def delete(self, path: str) -> None:
        self._asked(lambda: self._files.delete(path))

    def retire(self, path: str) -> None:
        """This store keeps no times."""

    def exists(self, path: str) -> bool:
        return self._asked(lambda: self._files.exists(path))

    def _asked(self, do: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise Killed
        self.left -= 1
        fault = self.fault if self.left == 0 else None
        if fault == "refuse":
            raise FilesError("cannot reach the store")
        if fault == "arrive late":
            self._late.append(do)
            raise FilesError("the store has not answered in time")
        if fault == "die before":
            self.die()
        if fault == "freeze before":
            self._meanwhile()
        answer = do()
        if fault == "die after":
            self.die()
        if fault == "freeze after":
            self._meanwhile()
        if fault == "lose answer":
            raise FilesError("the connection was reset")
        return answer

    def arrive(self) -> None:
        """What was given up comes to the store now."""
        late, self._late = self._late, []
        for do in late:
            with suppress(AlreadyThere, FileNotFoundError):
                do()

    def die(self) -> None:
        self.is_dead = True
        raise Killed


class _Work(TableWork):
    def __init__(self, table: str, world: World, lake: Lake) -> None:
        super().__init__("shop", table, world)
        self._lake = lake

    def held(self) -> Held:
        return self._lake.held.get(self.table, Held())

    def apply(self, segments: Sequence[Segment], shape: Shape, *, after: int) -> None:
        files: Any = self._world.files
        self._lake.commit(self.table, segments, files)

    def fit(self, shape: Shape, look_again: Callable[[], None], *, is_first: bool = False) -> None:
        return None


class Worker:
    """One process. `shares`: whether it puts packs."""

    def __init__(
        self, lake: Lake, meanwhile: Callable[[], None] = lambda: None, *, shares: bool = True
    ) -> None:
        self.lake = lake
        self.files = StoreOfOne(lake.files, meanwhile)
        merge = {"keep": "0s", "max_age": "1h"}
        options = SparkOptions.model_validate({"mode": lake.mode, "merge": merge})
        section = SparkSection.model_validate({"warehouse": "/lake"})
        context = HandlerContext(worker="test", handler="spark", folder=Path("/"))
        locations = Locations(options, section, Path("/"))
        files: Any = self.files
        nobody: Any = SimpleNamespace(
            stop_worker_if_gone=lambda error: None, section=SimpleNamespace(conf={})
        )
        self.packs = Packs(files, locations.logs, every=1.0 if shares else 0.0)
        self.world = World(
            options=options,
            context=context,
            spark=nobody,
            locations=locations,
            files=files,
            packs=self.packs,
            without_spark=nobody,
            iceberg=None,
            overrides={},
            settle=lambda name: None,
            leaving=lambda name: None,
            databases_of=lambda table: [],
            own=threading.local(),
            passing_over=PassingOver(context, get_logger("spark")),
            known_ids=KnownIds(),
        )
        self._sinks: dict[str, TableSink] = {}

    @property
    def is_dead(self) -> bool:
        return self.files.is_dead

    def sink(self, table: str) -> TableSink:
        if table not in self._sinks:
            work = _Work(table, self.world, self.lake)
            log = SegmentLog(self.world.files, work.ref.log_folder)
            nothing: Any = lambda *_: None  # noqa: E731 (it merges when it is told to)
            self._sinks[table] = TableSink(
                *("shop", table, work, log), sign=nothing, offer=nothing, look_after=nothing, forget=nothing
            )
        return self._sinks[table]

    def take(self, table: str, changes: Sequence[Change]) -> bool:
        """Whether the batch is done; False: it is to be asked for again."""
        batch = Batch(f"shop.{table}", changes, database="shop", name=table)
        try:
            self.sink(table).take(batch)
        except AskAgain:
            return False
        return True

    def put(self) -> None:
        """What the thread does in its turn."""
        if self.packs.writer is not None:
            self.packs.writer.put()

    def take_and_put(self, table: str, *changes: Change) -> None:
        """A batch, until it is done."""
        while not self.take(table, changes):
            self.put()

    def tidy(self, table: str) -> None:
        """Merge, and remove what is merged, here and in the streams of others."""
        self.sink(table).merge()
        self.sink(table).merges.tidy(1e12)
        self.remove()

    def remove(self) -> None:
        if self.packs.writer is not None:
            self.packs.writer.remove()
            own = self.packs.writer.stream()
            self.packs.look_through(10**15, own=own)
