"""The end of one table's log: what is known about it, and what is put after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as with_first
from typing import Any

import pyarrow as pa

from handlers.api import Change
from handlers.spark.delta.commits.exactly_once import check_goes_on
from handlers.spark.engine.table.foreseen import SeenTable
from handlers.spark.engine.table.merges import Merges
from handlers.spark.engine.table.shared_tail import SharedTail
from handlers.spark.engine.table.work import TableWork
from handlers.spark.log.beside import Held, Told
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import Segment, Statement
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.rows.shape import Shape

Entry = tuple[Statement, pa.Table, bool, Marks]
"""A statement, rows that come right after it, whether these lack columns, and the marks with both."""

_MOST_SHOWN = 16 * 2**20
"""The most bytes of segments that are copied at once for views, because a lane waits meanwhile."""


class LogEnd:
    """The end at which one table's log grows. The caller holds the table's lock (see TableSink)."""

    def __init__(
        self,
        work: TableWork,
        log: SegmentLog,
        merges: Merges,
        *,
        sign: Callable[[], None],
        offer: Callable[[], None],
    ) -> None:
        """`sign` records the log's owner. `offer` reports that something waits."""
        self.shape: Shape | None = None
        """Shape of the last segment's rows. None if the log is empty, or not read yet."""
        self.is_loaded = False
        """Whether the log's content is known."""
        self.is_fitted = False
        """Whether the table was seen to have the shape."""
        self.tail = SharedTail(log, work.packs, work.options.mode)
        """The pieces in packs after the last segment."""
        self._work = work
        self._log = log
        self._merges = merges
        self._unmerged = merges.unmerged
        self._sign = sign
        self._offer = offer
        # Segment of a statement that was put here -> the shapes before and after it.
        self._put_here: dict[int, tuple[Shape, Shape]] = {}
        self._is_sure = True  # whether the waiting segments are certain to lead to the shape

    def put(self, rows: pa.Table, shape: Shape, marks: Marks, *, partial: bool = False) -> None:
        """Put the next segment, when the table contains what must be merged before it. Or add few rows to the
        next pack: then `tail.ticket` reports when they are durable.

        After a statement that is not followed yet, rows of the shape that it leads to wait for nothing.
        Raises Rejected, LogFailure, and what Spark or the store raises. Raises SegmentTaken also if the
        table's declarations have changed, so that it may refuse the rows."""
        declared = self._work.declared()
        is_other = shape != self.shape
        most = self._work.options.merge.max_waiting
        is_free = self._is_sure and not is_other and not partial
        if is_free and self.tail.takes(rows, shape) and self._may_share():
            if self.tail.is_full:
                self.flush()
            self.tail.put(rows, marks)
            self._offer()
            return
        self.flush()
        if not self.show() and not (is_free and self._unmerged.waiting().bytes <= most):
            self.catch_up()
        if self._work.merges and not self._log.is_behind:
            is_new = is_other or not self.is_fitted
            # Segments of one schema wait together. Segments with rows that lack columns wait alone. So all
            # waiting segments can be read as one table, and one look at the newest row of a key is enough.
            if is_new or partial or self._unmerged.has_partial or self._unmerged.waiting().bytes > most:
                self._merges.merge()
            if is_new:
                self._merges.fit(shape, self.check_alone, is_first=self._log.last == 0)
                self.is_fitted = True
        if self._work.declared() != declared:
            raise SegmentTaken(self._log.folder)
        stream = None
        if self._work.merges and rows.num_rows and not partial and not self._log.is_behind:
            stream = self.tail.stream_for(shape)
        segment = self._append(rows, marks, shape, partial=partial, stream=stream)
        self.shape = shape
        if self._work.merges:
            self._unmerged.add(segment, shape)
            self._offer()
            if is_other:
                self._merges.remove(segment.number - 1)

    def _may_share(self) -> bool:
        """Whether rows of the same shape wait for nothing."""
        if not self._work.merges or not self.is_fitted or self._log.is_behind or self._unmerged.has_partial:
            return False
        return self._unmerged.waiting().bytes <= self._work.options.merge.max_waiting

    def flush(self) -> None:
        """Put the pieces in packs as the next segment. Raises SegmentTaken, and what the store raises."""
        shape = self.shape
        if shape is not None:
            self.tail.flush(shape, with_first(self._append_shared, shape))

    def bring_in(self) -> None:
        """The same, unless another worker may have the table. Then the next batch reads the log again. Raises
        what the store raises."""
        if self.is_loaded:
            self._if_not_taken(self._flush_what_is_there)

    def _flush_what_is_there(self) -> None:
        self.load_once()  # the last pack may not have been put, and no batch may arrive to check
        self.flush()

    def show_on(self) -> None:
        """`show`, unless another worker writes this log, too. Raises what the store raises."""
        self._if_not_taken(self.show)

    def let_go(self) -> None:
        """Look at the log again before the next rows: another worker has written it."""
        self.is_loaded = False

    def _if_not_taken(self, put: Callable[[], object]) -> None:
        try:
            put()
        except SegmentTaken:
            self.let_go()

    def _append(self, rows: pa.Table, marks: Marks, shape: Shape, **more: Any) -> Segment:
        return self.tail.append(lambda: self._log.append(rows, marks, key=shape.key, **more))

    def _append_shared(self, shape: Shape, rows: pa.Table, marks: Marks) -> Segment:
        segment = self._log.append(rows, marks, key=shape.key, stream=self.tail.stream_for(shape))
        self._unmerged.add(segment, shape)
        return segment

    def put_statement(self, change: Change, topics: Sequence[str], marks: Marks) -> bool:
        """Put a statement, to be followed when everything before it is merged. Returns False if that needs a
        look at the table. `topics`: `Marks.names`. Raises like `put`."""
        before = self.shape
        if before is None or not before.schema.names:
            return False
        known = self._known(before)
        if known is None and not self.is_fitted:
            return False
        foreseen = self._work.foreseen(None if known is None else known.fixed)
        statement = foreseen.statement(change, before, topics)
        if statement is None:
            return False
        self.flush()
        if self._unmerged.waiting().bytes > self._work.options.merge.max_waiting:
            self._merges.merge()
        self._put_entry(statement, self._work.no_rows(before), marks, before)
        return True

    def put_entry(self, made: Callable[[Shape, Marks], Entry]) -> int:
        """Put an entry that is no statement of the source. Returns its number, 0 if an earlier statement is
        not followed yet or the log is empty. `made` is called with the shape and the marks of the whole log.
        Raises what it raises, SegmentTaken if another worker has put something meanwhile, and like `put`."""
        self.flush()
        shape = self.shape
        if shape is None or self._unmerged.has_statements or not self.show():
            return 0
        statement, rows, is_partial, marks = made(shape, self.tail.marks)
        return self._put_entry(statement, rows, marks, shape, partial=is_partial)

    def _put_entry(
        self, statement: Statement, rows: pa.Table, marks: Marks, before: Shape, *, partial: bool = False
    ) -> int:
        segment = self._append(rows, marks, before, statement=statement, partial=partial)
        self.shape = self._work.shape_of_log(*segment.after)
        self._put_here[segment.number] = before, self.shape
        self._unmerged.add(segment, self.shape)
        self._offer()
        return segment.number

    def _known(self, shape: Shape) -> SeenTable | None:
        """Return the table as it will be when all waiting segments are merged, if it then has just the
        columns of this shape. None if only a look at the table could tell."""
        known = self._merges.seen
        waiting = [each.number for each in self._unmerged.segments() if each.statement is not None]
        self._put_here = {number: self._put_here[number] for number in waiting if number in self._put_here}
        if known is None:
            return None
        leads_to = known.shape
        for number in waiting:
            shapes = self._put_here.get(number)
            if shapes is None or leads_to not in shapes:
                return None
            leads_to = shapes[1]
        return known if leads_to == shape else None

    def show(self) -> bool:
        """If all statements are followed, let views read what is hidden, and what is put from now on. Returns
        whether they do. Raises SegmentTaken, and what the store raises."""
        if not self._log.is_behind:
            return True
        if not self.is_loaded or self.shape is None or self._unmerged.has_statements:
            return False
        waiting = self._unmerged.segments()
        if sum(each.bytes for each in waiting) > _MOST_SHOWN:
            return False
        # Segments without rows have earlier columns.
        last = next((each.number for each in waiting if each.rows), self._log.last + 1) - 1
        self._log.show(last, self._log.last)
        rows = self._work.no_rows(self.shape)
        mark = self._append(rows, self._log.marks, self.shape, shows=True)
        self._unmerged.add(mark, self.shape)
        self.is_fitted = self._merges.fits
        self._is_sure = True
        # Their columns differ, and rows that a statement removed must not be visible again.
        self._merges.remove(last)
        return True

    def forget_table(self) -> None:
        """Check the table again before the next rows, because DDL changes it."""
        self.is_fitted = False
        self._merges.forget_table()

    def check_alone(self) -> None:
        """Raise SegmentTaken if another worker has put something since this one looked. It follows a
        statement, or has, and perhaps put rows that a repetition would change."""
        if self._log.has_grown():
            raise SegmentTaken(self._log.folder)

    def catch_up(self) -> None:
        """Wait until all statements are followed and everything is merged. Raises like `put`."""
        self.flush()
        self._merges.merge()
        if not self.show():
            raise SegmentTaken(self._log.folder)  # another worker has taken the table: read the log again

    def put_mark(self, shape: Shape, marks: Marks) -> None:
        """Put a segment without rows when nothing waits. Raises like `put`."""
        segment = self._append(self._work.no_rows(shape), marks, shape, shows=True)
        self.shape = shape
        self._unmerged.add(segment, shape)
        self._merges.remove(segment.number - 1)

    def settle(self) -> None:
        """Merge everything that waits, and put a mark. Raises like `put`."""
        self.is_loaded = self.is_loaded and self.shape is not None  # no put is possible without it: load
        self.load_once()
        self.flush()
        self._merges.merge()
        if self.shape is not None:
            self.put_mark(self.shape, self._log.marks)

    def load_once(self) -> None:
        """Read what the log and the table contain, unless it is known.

        Raises BrokenLog, and what Spark or the store raises."""
        self.is_loaded = self.is_loaded and not self.tail.is_lost
        if not self.is_loaded:
            self._sign()
            self._load()

    def _load(self) -> None:
        # Not loaded until all of it is known: marks must not be valid without the segments that wait.
        self.is_loaded = False
        # Each of these may only be ahead of the previous one, whatever other workers do meanwhile.
        told = self._work.told_held.look() if self._work.merges else Told()
        held = self._work.held() if self._work.merges else Held()
        self._log.load()
        self.tail.load()
        self.tail.marks.teach(self._work.known_ids)
        # The table was checked before these rows were put. Nobody waits for another check: it needs Spark,
        # and a worker that was killed must accept batches again at once.
        head = self._log.head
        self.is_fitted = head is not None and head.segment.rows > 0
        self._put_here = {}
        self._merges.forget_table()
        if self._log.is_behind:
            self._merges.fit_first()
        self.shape = None if head is None else self._work.shape_of_log(*head.segment.after)
        check_goes_on(self._work.ref, held, told.held, self._log)
        if self._work.merges:
            self._merges.holds(held, told=told.held)
        if self.shape is not None and self._work.merges:
            waiting = [
                (each, self._work.shape_of_log(*each.after))
                for each in self._log.after(held.last)
                if each.statement is None or each.rows or each.number > told.followed
            ]
            self._unmerged.replace(waiting)
            self._is_sure = all(self._work.is_foreseen(each, after) for each, after in waiting)
            if self.is_fitted or any(each.rows for each, _ in waiting):
                self._merges.fit_first()
        self.is_loaded = True
        if self._work.merges and self.tail.with_waiting(self._unmerged.waiting()).rows:
            self._offer()
