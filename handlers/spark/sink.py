"""One source table on its way into one Spark table: segments at once, the table's commits behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from handlers.api import Batch, Change, PartialFailure, Rejected, TargetUnavailable
from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import BrokenLog, SegmentLog, SegmentTaken
from handlers.spark.pieces import AlonePiece, RowPiece
from handlers.spark.shape import Shape
from handlers.spark.table_work import MergeConflict, TableWork
from handlers.spark.waiting import Unmerged, Waiting
from handlers.templates import place_of

__all__ = ["TableSink"]

_ROUNDS = 8
"""Of one batch or merge, while other workers write the same log or table."""
_FAULTS = 3
"""So many merges that failed, one after the other, hold the table's batches back. Those that failed because
Spark is away do not count: as long as there is room, batches are taken."""


class TableSink:
    """Takes one table's batches. Any thread may call any method."""

    def __init__(
        self,
        database: str,
        table: str,
        work: TableWork,
        log: SegmentLog,
        *,
        sign: Callable[[TableSink], None],
        offer: Callable[[TableSink], None],
        forget: Callable[[str, str], None],
    ) -> None:
        """`sign` writes down whose log it is; `offer` is told when something waits; `forget`, which tables
        (database, table) DDL has changed.
        """
        self.database = database
        self.table = table
        self._work = work
        self._log = log
        self._sign = sign
        self._offer = offer
        self._forget = forget
        self._taking = threading.Lock()  # the log's end, and all that is found out before it grows
        self._shape: Shape | None = None
        self._is_loaded = False
        self._is_fitted = False  # the table was seen to hold the shape
        self._merging = threading.Lock()  # the table's commits: one at a time
        self._unmerged = Unmerged()
        self._faults = 0
        self._own_faults = 0  # without those for which the table can do nothing
        self._fault: str | None = None

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def log_folder(self) -> str:
        return self._work.ref.log_folder

    @property
    def waiting(self) -> Waiting:
        return self._unmerged.waiting()

    @property
    def merged_source_ms(self) -> int | None:
        """The source time of the newest change that this worker brought into the Spark table."""
        return self._unmerged.merged_source_ms

    @property
    def fault(self) -> str | None:
        """Why the last merge failed; None: it did not."""
        return self._fault

    @property
    def faults(self) -> int:
        """How many merges failed since the last that did not."""
        return self._faults

    # ---- taking

    def take(self, batch: Batch) -> None:
        """Put what the log does not hold of the batch; returns when that is durable.

        Raises Rejected, PartialFailure, StopWorker, and what Spark or the file system raises.
        """
        with self._taking:
            for _ in range(_ROUNDS):
                try:
                    self._take(batch)
                except SegmentTaken:
                    self._load()  # another worker writes this log, too: look again what it holds
                else:
                    return
        raise RuntimeError(
            f"{self.name}: another worker keeps writing {self._work.ref.log_folder}; do two workers have "
            f"the same handler and table?"
        )

    def load(self) -> None:
        """Find what an earlier run left waiting."""
        with self._taking:
            self._load_once()

    def unload(self) -> None:
        """Another sink of this process serves the log from now on: forget what waits; returns when no commit
        runs. It is looked for again when a batch comes."""
        with self._taking, self._merging:
            self._is_loaded = False
            self._unmerged.clear()
            self._faults = self._own_faults = 0
            self._fault = None

    def forget(self) -> None:
        """DDL of another table changed this one's: look anew before the next rows."""
        with self._taking:
            self._is_fitted = False

    def _take(self, batch: Batch) -> None:
        changes: Sequence[Change] = batch.changes
        places: Sequence[int] = range(len(changes))
        done = 0
        try:
            self._load_once()
            if self._own_faults >= _FAULTS:
                self.merge()  # raises what is wrong, if it still is
            changes, places = self._log.marks.beyond(batch.changes, batch.shard)
            for piece in self._work.pieces(changes, self._shape):
                marks = self._log.marks.advanced(changes[piece.start : piece.stop], batch.shard)
                if isinstance(piece, RowPiece):
                    self._put(piece.table(), piece.shape, marks, partial=piece.partial)
                elif self._work.keeps_ddl:
                    shape = self._shape or Shape(pa.schema([]), ())
                    self._put(piece.table(shape), shape, marks)
                else:
                    self._follow(piece, batch, marks)
                done = piece.stop
        except SegmentTaken:
            raise
        except Exception as error:
            told = self._told(error, changes, places, done)
            if done:
                raise PartialFailure(places[done - 1] + 1, told) from error
            raise told from error

    def _told(
        self, error: Exception, changes: Sequence[Change], places: Sequence[int], done: int
    ) -> Exception:
        """The error with table and offset; `done`: where in `changes` the part begins that failed."""
        where = place_of(changes[done], self.name) if done < len(changes) else self.name
        if not isinstance(error, Rejected):
            return self._work.explained(error, f"{where} on")
        if error.at is None:  # it is about the columns of all these rows
            return Rejected(f"{where}: {error}", at=places[done])
        return Rejected(str(error), at=places[error.at])

    def _put(self, rows: pa.Table, shape: Shape, marks: Marks, *, partial: bool = False) -> None:
        is_other = shape != self._shape
        if self._work.merges:
            is_new = is_other or not self._is_fitted
            most = self._work.options.merge.max_waiting
            # Segments of one schema wait together, those with rows that lack columns alone: what waits can
            # be read as one table then, and one look at the newest row of a key is enough.
            if is_new or partial or self._unmerged.has_partial or self.waiting.bytes > most:
                self.merge()
            if is_new:
                self._work.fit(shape, is_first=self._log.last == 0)
                self._is_fitted = True
        segment = self._log.append(rows, marks, key=shape.key, partial=partial)
        self._shape = shape
        if self._work.merges:
            self._unmerged.add(segment, shape)
            self._offer(self)
            if is_other:
                self._log.remove(segment.number - 1)

    def _follow(self, piece: AlonePiece, batch: Batch, marks: Marks) -> None:
        """DDL and truncates: when all before is merged, at once, and remembered by a segment without rows."""
        if not self._work.concerns(piece.change):
            return
        self._settle()
        key = None if self._shape is None else self._shape.key
        result = self._work.follow(piece.change, batch, key)
        self._is_fitted = False
        self._put_mark(self._work.shape(result.key or ()), marks)
        for touched in result.touched:
            if tuple(touched) != (self.database, self.table):
                self._forget(*touched)

    def settle(self) -> None:
        """Bring all that waits into the table, and leave a segment without rows.

        When the table gets another name, or is dropped, its log stays: what is in it would be brought into
        the next table of this name.
        """
        with self._taking:
            self._load_once()
            self._settle()

    def _settle(self) -> None:
        self.merge()
        segments = self._log.after(self._log.last - 1)
        if self._shape is not None and any(segment.rows for segment in segments):
            self._put_mark(self._shape, self._log.marks)

    def _put_mark(self, shape: Shape, marks: Marks) -> None:
        segment = self._log.append(self._work.no_rows(shape), marks, key=shape.key)
        self._shape = shape
        self._unmerged.add(segment, shape)
        self._log.remove(segment.number - 1)

    def _load_once(self) -> None:
        if not self._is_loaded:
            self._sign(self)
            self._load()
            self._is_loaded = True

    def _load(self) -> None:
        self._log.load()
        self._is_fitted = False
        if self._log.schema is None:
            self._shape = None
            return
        self._shape = self._work.shape_of_log(self._log.schema, self._log.key)
        if self._work.merges:
            merged = self._work.merged()
            if merged > self._log.last:
                raise BrokenLog(
                    f"{self._work.ref} holds segment {merged}, and its log {self._work.ref.log_folder} ends "
                    f"with {self._log.last}: how far the source was read is lost. Restore the log; or remove "
                    f"the table with it, and read the source anew"
                )
            self._unmerged.replace(self._log.after(merged), self._shape)
            if self._unmerged.waiting().rows:
                self._offer(self)

    # ---- merging

    def merge(self) -> None:
        """Bring all that waits into the table. Raises what Spark raises, with the table's name."""
        with self._merging:
            try:
                for _ in range(_ROUNDS):
                    try:
                        self._merge()
                    except MergeConflict:
                        self._unmerged.merged(self._work.merged())  # another worker was faster
                    else:
                        break
                else:
                    self._merge()
            except Exception as error:
                told = self._work.explained(error, self._received())
                self._faults += 1
                self._own_faults += not isinstance(told, TargetUnavailable)
                self._fault = str(told)
                raise told from error
            self._faults = self._own_faults = 0
            self._fault = None

    def _received(self) -> str:
        """The table, and how far it is received: what a merge that fails could not bring in."""
        marks = sorted(self._log.marks.highest().items())
        shown = [f"{topic}[{partition}] offset {offset}" for (topic, partition), (offset, _) in marks[:3]]
        more = ", ..." if len(marks) > len(shown) else ""
        return f"{self.name}, up to {', '.join(shown)}{more}" if shown else self.name

    def _merge(self) -> None:
        for segments, shape in self._unmerged.groups():
            rows = [segment for segment in segments if segment.rows]
            if rows:
                self._work.apply(rows, shape)
            self._unmerged.merged(segments[-1].number)

    def optimize(self, min_files: int) -> None:
        """Rewrite small files as larger ones, if the table has so many."""
        with self._merging:
            self._work.optimize(min_files)

    def vacuum(self, retention: float) -> None:
        """Remove files that no version of the last `retention` seconds needs."""
        self._work.vacuum(retention)

    def tidy(self, now: float) -> None:
        """Remove segments that were merged a while ago (`now`: monotonic seconds)."""
        number = self._unmerged.merged_before(now - self._work.options.merge.keep)
        if number is not None:
            self._log.remove(number)
