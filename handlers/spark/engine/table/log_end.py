"""The end of one table's log: what is known of it, and what is put behind it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from handlers.spark.delta.commits.exactly_once import check_goes_on
from handlers.spark.engine.table.merges import Merges
from handlers.spark.engine.table.work import TableWork
from handlers.spark.log.last_seen_table import Held, Told
from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.rows.shape import Shape

__all__ = ["LogEnd"]


class LogEnd:
    """Where one table's log grows. The caller holds the table's lock (see TableSink)."""

    def __init__(
        self,
        work: TableWork,
        log: SegmentLog,
        merges: Merges,
        *,
        sign: Callable[[], None],
        offer: Callable[[], None],
    ) -> None:
        """`sign` writes down whose log it is; `offer` tells that something waits."""
        self.shape: Shape | None = None
        """Of the last segment's rows; None: the log is empty, or was not looked at."""
        self.is_loaded = False
        """Whether what the log holds is known."""
        self.is_fitted = False
        """Whether the table was seen to hold the shape."""
        self._work = work
        self._log = log
        self._merges = merges
        self._unmerged = merges.unmerged
        self._sign = sign
        self._offer = offer

    def put(self, rows: pa.Table, shape: Shape, marks: Marks, *, partial: bool = False) -> None:
        """Put the next segment, when the table holds what has to be in it before.

        Raises Rejected, SegmentTaken, and what Spark or the file system raises."""
        is_other = shape != self.shape
        if self._work.merges:
            is_new = is_other or not self.is_fitted
            most = self._work.options.merge.max_waiting
            # Segments of one schema wait together, those with rows that lack columns alone: what waits can
            # be read as one table then, and one look at the newest row of a key is enough.
            if is_new or partial or self._unmerged.has_partial or self._unmerged.waiting().bytes > most:
                self._merges.merge()
            if is_new:
                self._work.fit(shape, is_first=self._log.last == 0)
                self.is_fitted = True
        segment = self._log.append(rows, marks, key=shape.key, partial=partial)
        self.shape = shape
        if self._work.merges:
            self._unmerged.add(segment, shape)
            self._offer()
            if is_other:
                self._merges.remove(segment.number - 1)

    def put_mark(self, shape: Shape, marks: Marks) -> None:
        """Put a segment without rows. Raises as `put`."""
        segment = self._log.append(self._work.no_rows(shape), marks, key=shape.key)
        self.shape = shape
        self._unmerged.add(segment, shape)
        self._merges.remove(segment.number - 1)

    def settle(self) -> None:
        """Bring all that waits into the table, and put a mark. Raises as `put`."""
        self.is_loaded = self.is_loaded and self.shape is not None  # nothing can be put: look instead
        self.load_once()
        self._merges.merge()
        if self.shape is not None:
            self.put_mark(self.shape, self._log.marks)

    def load_once(self) -> None:
        """Look what the log and the table hold, if that is not known.

        Raises BrokenLog, and what Spark or the file system raises."""
        if not self.is_loaded:
            self._sign()
            self._load()

    def _load(self) -> None:
        # Until all of it is known: what the log says is applied must not stand without what of it waits.
        self.is_loaded = False
        # Each of these may only be ahead of the one before, whatever other workers do meanwhile.
        told = self._work.told_held.look() if self._work.merges else Told()
        held = self._work.held() if self._work.merges else Held()
        self._log.load()
        self._log.marks.teach(self._work.known_ids)
        # Rows were put when the table was seen to hold them, and nobody waits for it to be seen again: that
        # takes Spark, and a worker that was killed is to take batches again at once.
        self.is_fitted = self._log.has_rows_last
        schema = self._log.schema
        self.shape = None if schema is None else self._work.shape_of_log(schema, self._log.key)
        check_goes_on(self._work.ref, held, told.held, self._log)
        if self._work.merges:
            self._merges.holds(held, told=told.held)
        if self.shape is not None and self._work.merges:
            self._unmerged.replace(self._log.after(held.last), self.shape)
            if self.is_fitted:
                self._merges.fit_first()
            if self._unmerged.waiting().rows:
                self._offer()
        self.is_loaded = True
