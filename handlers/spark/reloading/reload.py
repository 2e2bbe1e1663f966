"""A Spark table built again beside the one that is there.

The new rows are applied to a table of their own, with a log of its own, as a worker would. Then an entry is
put into the log of the table that is there: from here on its rows are those of that other table, and its
marks are those with which these were built. Of all who put into a log, one puts the next number; so what was
there when the marks were looked at is all there was. Whoever merges the log follows the entry in its place,
in one commit, as a truncate. Until it is put, nothing has changed; then it is followed, by whoever lives.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar

import msgspec
from pyspark.errors import PySparkException

from handlers.api import Batch, HandlerContext, Rejected, StopWorker, TargetUnavailable
from handlers.progress.marks import Partition, Place
from handlers.reloading import CatchUp, Differs, Hindered, Refused, Taken
from handlers.spark.delta.state import TableState, look
from handlers.spark.engine.lake import Lake
from handlers.spark.engine.table.failures import SparkFailure, explained
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.log.last_seen_table import ToldHeld
from handlers.spark.log.segments import BrokenLog, SegmentLog, SegmentTaken
from handlers.spark.log.stores.interface import FilesError
from handlers.spark.options import SparkOptions
from handlers.spark.reloading.entry import NewRows
from handlers.spark.table_ref import TableRef, path_safe

__all__ = ["FOLDER", "SparkReload"]

FOLDER = "_binlane_reload"
"""Of new tables, in the folder of all tables; Spark and Delta pass over names that begin with an
underscore."""

_HOUR_MS = 3_600_000
_LEFT_MS = 24 * _HOUR_MS
_LONGEST_MS = 12 * _HOUR_MS
"""A new table that is older is not put any more, long before the next reload takes it for left over."""
_FOLLOWS = 20
_PAUSE_SECONDS = 0.5

_FAULTS = (SparkFailure, StopWorker, TargetUnavailable, FilesError, BrokenLog, PySparkException)


class SparkReload:
    """One table, between `begin` and `end` (see TableReload). One thread."""

    at_once: ClassVar[int] = 20_000  # each time a file is put

    def __init__(self, options: Mapping[str, Any], context: HandlerContext, database: str, name: str) -> None:
        """`options`, `context`: of the handler that keeps the table of `database.name` of the source."""
        self._given = dict(options)
        self._options = SparkOptions.model_validate(self._given)
        self._context = msgspec.structs.replace(context, partitions=None, stopping=None, stop_worker=None)
        self._database, self._name = database, name
        self._table = f"{database}.{name}"
        self._open = ExitStack()
        self._began_ms = int(time.time() * 1000)
        self._own_name = f"{self._began_ms:015d}-{uuid.uuid4().hex[:8]}"
        self._folder = f"{FOLDER}/{path_safe(database)}/{path_safe(name)}"
        self._number = 0  # of the entry, once it is put
        self._lake: Lake | None = None
        self._new: Lake | None = None

    def begin(self) -> None:
        if self._options.mode == "function":
            raise Refused("an own function keeps it, and would be called for all of it again")
        if self._options.format == "parquet":
            raise Refused("it is plain Parquet files, which are put once and never rewritten")
        with self._told():
            self._lake = self._opened(self._options, self._context)
            self._remove_left()
            if not self.marks():
                raise Refused(f"worker {self._context.worker} has applied nothing of it yet")
            self._new = self._opened(self._new_options(), self._new_context())

    def _opened(self, options: SparkOptions, context: HandlerContext) -> Lake:
        """Not started: nothing goes on in it by itself."""
        try:
            lake = Lake(options, context)
        except Exception as error:
            raise Refused(f"Spark: {error}") from error
        self._open.callback(lake.close)
        lake.check()
        return lake

    def _new_options(self) -> SparkOptions:
        place = f"{self._root}/{self._folder}/{self._own_name}".replace("{", "{{").replace("}", "}}")
        here = {"path": f"{place}/{{database}}/{{table}}", "table": None, "shared_segments": "0s"}
        return SparkOptions.model_validate({**self._given, **here})

    def _new_context(self) -> HandlerContext:
        own = f"{self._context.handler}~reload"
        return msgspec.structs.replace(self._context, handler=own, handles=lambda table: table == self._table)

    def marks(self) -> Mapping[Partition, Place]:
        """Without what is in packs: whoever looks at these ends them."""
        with self._told():
            log = SegmentLog(self._there.world.files, self._ref.log_folder)
            log.load()
            return log.marks.highest()

    def apply(self, batch: Batch) -> None:
        with self._told():
            self._beside.handle(batch)

    def take_over(self, read: Mapping[Partition, int], catch_up: CatchUp | None = None) -> Taken:
        if time.time() * 1000 > self._began_ms + _LONGEST_MS:
            raise Refused("it took more than 12 hours")
        with (
            self._told(),
            self._beside.table(self._database, self._name) as new,
            self._there.table(self._database, self._name) as there,
        ):
            if new.segments:
                new.merge()
            if self._looked(self._ref) is None:
                there.load()
                there.merge()  # its first rows may wait, and no Spark have come to them
            before = self._compared()
            rows = self._new_rows(new, read, catch_up)
            try:
                self._number = there.put_entry(rows.entry)
            except SegmentTaken:
                raise Hindered("a worker puts into its log all the time") from None
            if not self._number:
                there.merge()
                raise Differs("a statement of the source waits in its log")
        return Taken(before, self._followed())

    def _new_rows(self, new: TableSink, read: Mapping[Partition, int], catch_up: CatchUp | None) -> NewRows:
        place = self._beside.world.locations.ref(self._database, self._name).path
        assert place is not None
        return NewRows(
            new,
            place=place.removeprefix(f"{self._root}/"),
            name=f"reload {self._own_name}",
            began_ms=self._began_ms,
            files=self._there.world.files,
            mode=self._options.mode,
            prefix=self._options.prefix,
            read=read,
            catch_up=catch_up,
        )

    def end(self) -> str:
        left = ""
        try:
            if self._lake is not None and self._waits():
                left = "a worker brings the new rows in"
            elif self._lake is not None:
                self._lake.world.files.delete_tree(f"{self._root}/{self._folder}/{self._own_name}")
        except (OSError, *_FAULTS) as error:
            left = f"{self._folder}/{self._own_name} is left, as it could not be removed: {error}"
        with suppress(*_FAULTS):
            self._open.close()
        return left

    # ---- the tables

    def _compared(self) -> int:
        """Rows that are there. Raises Differs and Refused."""
        new = self._looked(self._beside.world.locations.ref(self._database, self._name))
        there = self._looked(self._ref)
        if there is None:
            raise Differs(f"there is no table {self._ref}; the next change that a worker applies makes it")
        if new is None:
            raise Differs(f"by what the topic holds there would be no table {self._ref}")
        if there.properties.get("delta.appendOnly") == "true":
            raise Refused(f"{self._ref} takes no changes of its rows (delta.appendOnly)")
        ours, theirs = _columns(there), _columns(new)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if names:
            told = "; ".join(
                f"{name} is {ours.get(name, 'not there')}, by the topic {theirs.get(name, 'not there')}"
                for name in names[:3]
            )
            raise Differs(f"{self._ref} has other columns than the topic tells: {told}")
        return self._count()

    def _looked(self, ref: TableRef) -> TableState | None:
        return look(self._there.world.spark.session, ref)

    def _count(self) -> int:
        return int(self._there.world.spark.session.table(self._ref.sql).count())

    def _followed(self) -> int:
        """See to it that the entry is followed; returns the rows that are there then. Raises Refused."""
        for left in reversed(range(_FOLLOWS)):
            try:
                with self._told(), self._there.table(self._database, self._name) as sink:
                    sink.load()
                    sink.merge()
                    if not left or not (self._waits() or sink.views_wait):
                        return self._count()
            except Refused as error:
                if not left:
                    raise Refused(f"its new rows are in its log, and wait there: {error}") from error
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError  # the last turn returns or raises

    def _waits(self) -> bool:
        """Whether the entry is put and not followed."""
        if not self._number:
            return False
        return ToldHeld(self._there.world.files, self._ref.log_folder).look().followed < self._number

    def _remove_left(self) -> None:
        """What reloads have left that were killed: long ago, so that none of them goes on."""
        files = self._there.world.files
        log = SegmentLog(files, self._ref.log_folder)
        log.load()
        waiting = [each.statement.sql or "" for each in log.segments if each.statement is not None]
        for entry in files.list(f"{self._root}/{self._folder}"):
            began, _, _ = entry.name.partition("-")
            is_old = began.isdecimal() and int(began) + _LEFT_MS < self._began_ms
            if is_old and not any(each.startswith(f"{self._folder}/{entry.name}/") for each in waiting):
                files.delete_tree(f"{self._root}/{self._folder}/{entry.name}")

    # ----

    @property
    def _there(self) -> Lake:
        assert self._lake is not None  # `begin` was called
        return self._lake

    @property
    def _beside(self) -> Lake:
        assert self._new is not None
        return self._new

    @property
    def _root(self) -> str:
        return self._there.world.locations.root

    @property
    def _ref(self) -> TableRef:
        return self._there.world.locations.ref_to_write(self._database, self._name)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (*_FAULTS, Rejected) as error:
            told = error if self._lake is None else explained(error, self._table, self._lake.world.spark)
            raise Refused(str(told)) from error


def _columns(table: TableState) -> dict[str, str]:
    return {field.name.casefold(): field.dataType.simpleString() for field in table.columns.fields}
