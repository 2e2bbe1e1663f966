"""Rebuilds a Spark table beside the existing one.

The new rows are applied to a separate table with its own log, as a worker would do it. Then an entry is put
into the log of the existing table. From there on, its rows are those of the other table, and its marks are
those with which these rows were built. Only one writer can put each number of a log. So nothing was added
after the marks were read. Whoever merges the log follows the entry in its order, in one commit, like a
truncate. Until the entry is put, nothing has changed. After that, any worker can follow it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import msgspec

from handlers.api import Batch, HandlerContext, Rejected, StopWorker, TargetUnavailable
from handlers.progress import Partition, Place
from handlers.reloading import CatchUp, Differs, Hindered, Refused, Taken
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.evolving import look
from handlers.spark.engine.lake import Lake
from handlers.spark.engine.table.failures import SparkFailure, explained
from handlers.spark.engine.table.log_end import Entry
from handlers.spark.engine.table.sink import TableSink
from handlers.spark.log.beside import ToldHeld
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.options import SparkOptions
from handlers.spark.reloading import new_rows
from handlers.spark.rows.shape import Shape
from handlers.spark.runtime.errors import SPARK_ERRORS
from handlers.spark.table_ref import TableRef

_PUTS = 20
_FOLLOWS = 20
_ROUNDS = 2
_PAUSE_SECONDS = 0.5

_FAULTS = (
    *(SparkFailure, StopWorker, TargetUnavailable, BrokenLog, MergeConflict),
    *(*SPARK_ERRORS, OSError, EOFError),  # and errors of a Java that is gone
)


class SparkReload:
    """Reloads one table, between `begin` and `end` (see TableReload). One thread."""

    at_once: ClassVar[int] = 20_000  # a file is put each time

    def __init__(
        self,
        options: Mapping[str, Any],
        context: HandlerContext,
        database: str,
        name: str,
        *,
        say: Callable[[str], None] = lambda _: None,
        is_alone: bool = False,
    ) -> None:
        """`options`, `context`: of the handler that keeps the source table `database.name`. `say` receives
        progress messages. `is_alone`: no worker writes the table meanwhile."""
        self._given = dict(options)
        self._options = SparkOptions.model_validate(self._given)
        self._context = context
        self._database, self._name = database, name
        self._table = f"{database}.{name}"
        self._open = ExitStack()
        self._say = say
        self._is_alone = is_alone
        self._began_ms = int(time.time() * 1000)
        self._own_name = f"{self._began_ms:015d}-{uuid.uuid4().hex[:8]}"
        self._attempts = 0
        self._may_be_put = False  # the answer was lost, or the process is ending
        self._number = 0  # of the entry, when it is known to be put
        self._lake: Lake | None = None
        self._new: Lake | None = None

    def begin(self) -> None:
        if self._options.mode == "function":
            raise Refused("your own function maintains it, and would be called again for all its changes")
        if self._options.format == "parquet":
            raise Refused("it consists of plain Parquet files, which are never rewritten")
        if self._options.format == "iceberg":
            raise Refused("it is an Iceberg table: remove it with its log, and read the source again")
        self._say("starting Spark")
        with self._told():
            self._lake = self._opened(self._options, self._context)
            if not self._is_alone:
                new_rows.check_place(self._root, self._there.world.spark)
            new_rows.remove_left(
                self._there.world.files, self._root, self._folder, self._log(), self._began_ms
            )
            if not self.marks():
                raise Refused(f"worker {self._context.worker} has applied no change of it yet")
            name, handles = f"{self._context.handler}~reload", lambda table: table == self._table
            context = msgspec.structs.replace(self._context, handler=name, handles=handles)
            self._new = self._opened(self._new_options(), context)

    def _opened(self, options: SparkOptions, context: HandlerContext) -> Lake:
        """The lake is not started: it does nothing by itself."""
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

    def marks(self) -> Mapping[Partition, Place]:
        """Without pieces in packs: reading those would end their streams."""
        with self._told():
            return self._log().marks.highest()

    def _log(self) -> SegmentLog:
        log = SegmentLog(self._there.world.files, self._ref.log_folder)
        log.load()
        return log

    def apply(self, batch: Batch) -> None:
        with self._told():
            self._beside.handle(batch)

    def take_over(self, read: Mapping[Partition, int], catch_up: CatchUp | None = None) -> Taken:
        if time.time() * 1000 > self._began_ms + new_rows.LONGEST_MS:
            raise Refused("it took more than 12 hours")
        with (
            self._told(),
            self._beside.table(self._database, self._name) as new,
            self._there.table(self._database, self._name) as there,
        ):
            if new.segments:
                new.merge()
            there.load()
            has_statements = any(each.statement is not None for each in there.segments)
            if has_statements or look(self._there.world.spark.session, self._ref) is None:
                there.merge()  # no worker may exist to merge them
            new_rows.check_alike(self._there.world.spark.session, there=self._ref, new=self._new_ref)
            before = self._count(self._ref)
            self._put(new, there, read, catch_up)
            self._say("its new rows are written, and replace the old ones")
        self._see_followed()
        with self._told(), self._beside.table(self._database, self._name) as new:
            if new.segments:  # they are in the entry, too
                new.merge()
            return Taken(before, self._count(self._new_ref))

    def _put(
        self, new: TableSink, there: TableSink, read: Mapping[Partition, int], catch_up: CatchUp | None
    ) -> None:
        """Put the entry. Raises Behind, Differs and Hindered if it is not put. After others, it may be."""
        for _ in range(_PUTS):
            if catch_up is not None:  # before the log is read: a worker may put all the time
                read = catch_up(self.marks())
            self._attempts += 1
            rows = self._new_rows(new, read, catch_up)
            try:
                self._number = there.put_entry(partial(self._made, rows))
            except SegmentTaken:
                # It may be our own entry, whose answer was lost.
                self._number = new_rows.number_of(there, rows.name)
                self._may_be_put = False
            except _FAULTS:
                with suppress(SegmentTaken, *_FAULTS):
                    self._number = new_rows.number_of(there, rows.name)
                if not self._number:
                    raise  # and the entry may still arrive
                self._may_be_put = False
            else:
                self._may_be_put = False
                if not self._number:
                    raise Differs("a statement of the source waits in its log")
            if self._number:
                return
        raise Hindered("workers keep writing to its log: try again when they write less, or stop them")

    def _made(self, rows: new_rows.NewRows, shape: Shape, marks: Marks) -> Entry:
        entry = rows.entry(shape, marks)
        self._may_be_put = True
        return entry

    def _new_rows(
        self, new: TableSink, read: Mapping[Partition, int], catch_up: CatchUp | None
    ) -> new_rows.NewRows:
        place = self._new_ref.path
        assert place is not None
        return new_rows.NewRows(
            new,
            place=place.removeprefix(f"{self._root}/"),
            # Finished steps of an entry are recorded by its name.
            name=f"reload {self._own_name} {self._attempts}",
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
            if self._may_be_put:
                left = (
                    "it is unknown whether its new rows are in the log; if they are, a worker merges them: "
                    f"{self._folder}/{self._own_name} is left for that"
                )
            elif self._new is not None and self._waits():
                left = "its new rows are in the log, and a worker merges them"
            elif self._new is not None:
                self._there.world.files.delete_tree(f"{self._root}/{self._folder}/{self._own_name}")
        except _FAULTS as error:
            left = f"{self._folder}/{self._own_name} is left, because it could not be removed: {error}"
        with suppress(*_FAULTS):
            self._open.close()
        return left

    # ---- tables

    def _count(self, ref: TableRef) -> int:
        return int(self._there.world.spark.session.table(ref.sql).count())

    def _see_followed(self) -> None:
        """Raise Refused if the entry could not be followed."""
        followed, fault = 0, "Spark had no time for it"
        for _ in range(_FOLLOWS):
            try:
                with self._told(), self._there.table(self._database, self._name) as sink:
                    sink.load()
                    sink.merge()
                    followed += not self._waits()
                    # A worker that puts all the time updates its views itself.
                    if followed and (not sink.views_wait or followed == _ROUNDS):
                        return
            except Refused as error:
                fault = str(error)
            time.sleep(_PAUSE_SECONDS)
        raise Refused(f"its new rows are in its log, and wait there: {fault}")

    def _waits(self) -> bool:
        """Whether the entry is put and not followed."""
        if not self._number:
            return False
        return ToldHeld(self._there.world.files, self._ref.log_folder).look().followed < self._number

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
    def _folder(self) -> str:
        return new_rows.folder_of(self._there.world.locations.logs, self._ref.log_folder)

    @property
    def _new_ref(self) -> TableRef:
        return self._beside.world.locations.ref(self._database, self._name)

    @property
    def _ref(self) -> TableRef:
        return self._there.world.locations.ref_to_write(self._database, self._name)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (*_FAULTS, Rejected) as error:
            told = error if self._lake is None else explained(error, self._table, self._lake.world.spark)
            raise Refused(str(told).removeprefix(f"{self._table}: ")) from error
