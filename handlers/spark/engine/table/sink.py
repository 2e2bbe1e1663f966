"""One source table on its way into one Spark table: segments at once, the table's commits later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from handlers.api import Batch, Change, PartialFailure, Rejected, TargetUnavailable
from handlers.failures import RowsLost
from handlers.options.templates import place_of
from handlers.progress import MadeAnew
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.engine.table.failures import LogFailure
from handlers.spark.engine.table.log_end import Entry, LogEnd
from handlers.spark.engine.table.merges import Merges
from handlers.spark.engine.table.shared_tail import Handed
from handlers.spark.engine.table.waiting import Waiting
from handlers.spark.engine.table.work import TableWork
from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import Segment
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.rows.pieces import AlonePiece, RowPiece
from handlers.spark.rows.shape import Shape

_ROUNDS = 8
"""The most attempts of one batch while other workers write the same log."""
_FAULTS = 3
"""Number of successive failed merges that holds the table's batches back. Failures because Spark is away do
not count: batches are accepted while there is room."""


class TableSink:
    """Writes one table's batches. Any thread may call any method."""

    def __init__(
        self,
        database: str,
        table: str,
        work: TableWork,
        log: SegmentLog,
        *,
        sign: Callable[[TableSink], None],
        offer: Callable[[TableSink], None],
        look_after: Callable[[TableSink], None],
        forget: Callable[[str, str], None],
    ) -> None:
        """`sign` records the log's owner. `offer` is called when something waits, `look_after` after a load
        or a merge. `forget` gets each table (database, table) that DDL has changed."""
        self.database = database
        self.table = table
        self.log_folder = work.ref.log_folder
        self.upkeep_times = work.upkeep_times
        self._work = work
        self._log = log
        self._forget = forget
        self._handed = Handed()
        self._taking = threading.Lock()  # guards the end of the log: one batch after the other
        self.merges = Merges(self.name, work, log, changed=lambda: look_after(self))
        """Its commits, and their upkeep."""
        self._unmerged = self.merges.unmerged
        self.end = LogEnd(work, log, self.merges, sign=lambda: sign(self), offer=lambda: offer(self))
        """What is known of its log. Another worker may have put more since."""

    @property
    def name(self) -> str:
        return self._work.name

    @property
    def waiting(self) -> Waiting:
        waiting = self._unmerged.waiting()
        return self.end.tail.with_waiting(waiting) if self.end.is_loaded else waiting

    @property
    def last_put(self) -> float:
        """When something was last put, seconds since 1970. 0 if this worker knows of nothing."""
        head = self._log.head
        return max(0.0 if head is None else head.segment.written_ms / 1000, self.end.tail.last_put)

    @property
    def views_wait(self) -> bool:
        """Whether views lack something that was put, because an earlier statement is not followed yet."""
        return self._log.is_behind

    @property
    def fault(self) -> str | None:
        """Why the last merge failed. None if it did not."""
        return self.merges.fault

    @property
    def faults(self) -> int:
        """Number of failed merges since the last success."""
        return self.merges.faults

    @property
    def replaced(self) -> int:
        """Bytes of the files that the last merge replaced, as far as they are known."""
        return self._work.replaced

    # ---- writing

    def take(self, batch: Batch) -> None:
        """Put the part of the batch that the log lacks. Returns when it is durable.

        Raises AskAgain if it is in a pack that is not put yet. Raises Rejected, PartialFailure, StopWorker,
        and what Spark or the store raises."""
        if not self._handed.is_durable(batch):
            self._until_put(lambda: self._take(batch))
            if (ticket := self.end.tail.ticket) is not None:
                self._handed.wait(batch, ticket)

    def _until_put(self, put: Callable[[], None]) -> None:
        """Repeat `put` while others write the log. `put` reads the log first, if its content is unknown."""
        with self._taking:
            for _ in range(_ROUNDS):
                try:
                    put()
                except (MergeConflict, SegmentTaken):
                    self.end.let_go()  # another worker writes this log or table, too
                else:
                    return
        raise self._to_wait(
            LogFailure(
                f"{self.name}: another worker keeps writing {self.log_folder}; do two workers have "
                f"the same handler and table?"
            )
        )

    def put_entry(self, made: Callable[[Shape, Marks], Entry]) -> int:
        """See LogEnd.put_entry. Makes one attempt."""
        with self._taking:
            self._let_go_if_behind()
            try:
                self.end.load_once()
                return self.end.put_entry(made)
            except SegmentTaken:
                self.end.let_go()
                raise

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments that wait for a merge, in order."""
        return self._unmerged.segments()

    def load(self, *, has_grown: bool = True) -> None:
        """Find segments that an earlier run left waiting, or that another worker has put. `has_grown`: False
        if `is_behind` has just returned False."""
        if has_grown:
            with self._taking:
                self._let_go_if_behind()
        self._until_put(self.end.load_once)
        with self._taking:
            self.end.show_on()

    def is_behind(self) -> bool:
        """Whether another worker has put segments since this one looked."""
        return self._log.has_grown()

    def _let_go_if_behind(self) -> None:
        if self.end.is_loaded and self.is_behind():
            self.end.let_go()

    def take_over(self, other: TableSink) -> None:
        """Serve the log instead of another sink of this process. That sink forgets what waits, until it gets
        a batch again."""
        other.let_go()
        self.merges.come_after(other.merges)

    def let_go(self) -> None:
        """Forget what waits, until a batch arrives again: another worker serves the log from now on."""
        with self._taking:
            self.end.let_go()
            self.end.tail.let_go()
            self.merges.let_go()

    @property
    def partitions(self) -> Collection[tuple[str, int]]:
        """The partitions whose records the table contains, as far as this worker knows."""
        return self.end.tail.marks.known.keys()

    def forget(self) -> None:
        """Check the table again before the next rows: another table's DDL changed it."""
        with self._taking:
            self.end.forget_table()

    def _take(self, batch: Batch) -> None:
        places: Sequence[int] = range(len(batch.changes))
        anew: Sequence[MadeAnew] = ()
        done = stop = 0
        try:
            self.end.load_once()
            if self.merges.own_faults >= _FAULTS:
                self.merges.merge()  # raises the fault, if it persists
            # Looking at all changes takes long if their rows are in a child process.
            some = batch.changes[:1] if len(batch.positions) == 1 else batch.changes
            seen, anew = self.end.tail.marks.followed(some, batch.topic_ids, self._work.known_ids)
            found = self._work.cut(batch, seen, self.end.shape, self.end.catch_up)
            places = found.places
            for piece, seen in found.pieces:
                stop = piece.stop
                if isinstance(piece, RowPiece):
                    self.end.put(piece.rows, piece.shape, seen, partial=piece.partial)
                else:
                    self._follow(piece, batch, seen)
                done = stop
            self._work.tell_passed_over(len(batch.changes) - len(places), anew)
        except (MergeConflict, RowsLost, SegmentTaken):
            raise
        except Exception as error:
            told = self._told(error, batch.changes, places, done)
            if isinstance(error, Rejected) and error.at is None and stop > done + 1:
                # Its rows are tried apart, because perhaps only one of them has such columns.
                raise Rejected(str(told)) from error
            if not done or self.end.tail.ticket is not None:
                raise told from error
            first = places[done - 1] + 1
            if isinstance(told, Rejected) and told.at != first:
                raise told from error  # the marks pass over the others; a cause would mean the first one
            self._work.tell_passed_over(first - done, anew)
            raise PartialFailure(first, told) from error

    def _told(
        self, error: Exception, changes: Sequence[Change], places: Sequence[int], done: int
    ) -> Exception:
        """The error with table and offset. `done`: where in `places` the failed part begins."""
        where = place_of(changes[places[done]], self.name) if done < len(places) else self.name
        if not isinstance(error, Rejected):
            told = self._work.explained(error, f"{where} on")
            return self._to_wait(told) if isinstance(told, LogFailure) else told
        if error.at is None:  # it is about the columns of all these rows
            return Rejected(f"{where}: {error}", at=places[done])
        return Rejected(str(error), at=places[error.at])

    def _to_wait(self, error: LogFailure) -> TargetUnavailable:
        """Let the batch wait, but no others: it is not at fault."""
        return TargetUnavailable(str(error), retry_after=self.merges.patience, others_go_on=True)

    def _follow(self, piece: AlonePiece, batch: Batch, marks: Marks) -> None:
        """Put DDL or a truncate as an entry of the log, which is followed in its order. If only Spark can
        judge it, merge everything before, follow it at once, and record it by a segment without rows."""
        change = piece.change
        if not self._work.following.concerns(change):
            return
        if batch.replay_of is not None:  # finished steps are recorded by its own place, not its letter's
            topic, partition, offset = batch.replay_of
            change = replace(change, topic=topic, partition=partition, offset=offset)
        names = marks.names(change)
        if batch.replay_of is None and self.end.put_statement(change, names, marks):
            return  # a letter is followed at once, to report if it failed again
        self.end.settle()
        before = self.end.shape
        key = None if before is None else before.key
        own = self._work.own_columns(before)
        self.end.forget_table()
        with self._work.ddl_lock.statement(self.name):
            # Finished steps are recorded by the place. A statement of a former topic had the same.
            result = self._work.following.follow(change, key, names, self.end.check_alone)
        # Before the mark, which finishes the statement, so that it is not repeated.
        for touched in result.touched:
            if tuple(touched) != (self.database, self.table):
                self._forget(*touched)
        self.end.put_mark(self._work.shape(result.key or (), own), marks)

    def settle(self) -> None:
        """Merge everything that waits, and put a segment without rows.

        When the table is renamed or dropped, its log stays. Whatever is in it would be merged into the next
        table of this name. The segment is always put: if others have put unknown rows, this raises
        SegmentTaken before the table is changed."""
        self._until_put(self.end.settle)

    # ---- merging

    def merge(self) -> None:
        """Merge everything that waits, in the background. Raises SparkStarts if that must wait for Spark, and
        what Spark raises, with the table's name."""
        try:
            if self.end.tail.has_pieces:
                with self._taking, self.merges.failing():
                    self.end.bring_in()
            with self._work.in_background():
                self.merges.merge()
        finally:  # a statement may be followed, and later rows not merged
            if self._log.is_behind:
                with self._taking:
                    self.end.show_on()
