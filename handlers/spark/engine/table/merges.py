"""The commits of one Spark table: merges the waiting segments of its log, one commit at a time.

Locks are taken in this order: `taking` of the sink, the DDL lock, `merging`, a slot of Spark. `taking` lets
one batch at a time grow the log. The DDL lock is for statements, or for OPTIMIZE and VACUUM. `merging` allows
one commit of a table at a time. Each thread that writes has its own Spark session, because a commit's note
and transaction are configuration of a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from handlers.api import Rejected, TargetUnavailable
from handlers.failures import pause_after
from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.engine.table.failures import LogFailure, SparkFailure
from handlers.spark.engine.table.foreseen import SeenTable
from handlers.spark.engine.table.waiting import Unmerged
from handlers.spark.engine.table.work import TableWork
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import Segment, Statement
from handlers.spark.log.segments import SegmentLog
from handlers.spark.rows.shape import Shape
from handlers.spark.runtime.start import SparkStarts

_ROUNDS = 8
"""The most attempts of one merge while other workers write the same table."""
_PATIENCE = 60.0


class Merges:
    """One table's waiting segments, and the results of its merges. Any thread may call any method."""

    def __init__(
        self, name: str, work: TableWork, log: SegmentLog, *, changed: Callable[[], None] = lambda: None
    ) -> None:
        """`changed` is called when the table's content was read: there may be files to tidy."""
        self.unmerged = Unmerged()
        self.faults = 0
        """Number of failed merges since the last success."""
        self.own_faults = 0
        """The same, without failures that are not the table's fault."""
        self.fault: str | None = None
        """Why the last merge failed. None if it did not."""
        self._name = name
        self._changed = changed
        self._work = work
        self._log = log
        self._merging = threading.Lock()  # the table's commits: one at a time
        self._earlier: tuple[Merges, ...] = ()
        self._size = work.merge_size()
        self._telling = threading.Lock()  # guards the two below, and their record in the store
        self._held = Held()
        self._told = Held()
        self._handed_over = False  # to another sink, or another worker
        self.fits = True
        """Whether no reason is known why the table would refuse the rows after the last statement."""
        self._is_doubtful = False  # the last commit failed, for whatever reason
        self.seen: SeenTable | None = None
        """The table as seen between two commits, if its columns are known: before a statement, until that is
        followed. Any thread may clear it."""

    def let_go(self) -> None:
        """Forget the waiting segments. A running commit continues, but none begins after it."""
        self._handed_over = True
        self._work.forget_declared()
        self.unmerged.clear()
        with self._telling:
            self._held = self._told = Held()
        self._good()

    def come_after(self, other: Merges) -> None:
        """Begin no commit before a running one of `other`, for the same table, has ended."""
        self._earlier = tuple(each for each in (*other._earlier, other) if each is not self)

    def holds(self, held: Held, *, told: Held | None = None) -> None:
        """The table was seen to contain this. `told`: what was recorded before, as read by the sink that
        serves the log from now on."""
        with self._telling:
            self._held = max(self._held, held, key=lambda each: each.last)
            if told is not None:
                self._told = told
                self._handed_over = False
        self._changed()

    def ended(self) -> None:
        """Wait for a running commit."""
        with self._merging:
            pass

    def leaves(self) -> None:
        """The table is about to be dropped or renamed: the next one need not contain what this one does."""
        with self._telling:
            self._held = self._told = Held()
            # Rows that were put since everything was merged are the next table's.
            later = next((each.number for each in self.unmerged.segments() if each.rows), self._log.last + 1)
            if later > 1:
                self._work.told_held.tell_left(later - 1)

    @property
    def patience(self) -> float:
        """Seconds until a batch that waits because of the failure should try again."""
        return pause_after(self.faults, first=2.0, longest=_PATIENCE)

    def fit_first(self) -> None:
        """Check the table before the next commit, because somebody may have changed it."""
        self.fits = False
        self.seen = None

    def fit(self, shape: Shape, look_again: Callable[[], None], *, is_first: bool) -> None:
        """Make the table hold this shape: see TableWork.fit."""
        self.seen = self._work.fit(shape, look_again, is_first=is_first)

    def forget_table(self) -> None:
        """Look at the table again before it is foreseen: DDL changes it."""
        self.seen = None

    def merge(self) -> None:
        """Merge everything that waits. Raises SparkStarts, and what Spark raises, with the table's name."""
        earlier = self._earlier
        for other in earlier:
            with other._merging:
                pass
        # A statement that is put after this is followed by the next call.
        follows = self.unmerged.has_statements
        lock = self._work.ddl_lock.statement(self._name) if follows else nullcontext()
        with lock, self._merging:
            self._earlier = tuple(other for other in self._earlier if other not in earlier)
            with self.failing():
                for left in reversed(range(_ROUNDS + 1)):
                    try:
                        self._merge(follows=follows)
                    except SparkStarts:
                        raise
                    except Exception as error:
                        self.seen = None
                        if not left or not self._look_anew(error):
                            raise
                    else:
                        break
            self._good()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Count an error raised inside as a failed merge, and raise it with the table's name."""
        try:
            yield
        except SparkStarts:
            raise
        except Exception as error:
            told = self._work.explained(error, self._received())
            if isinstance(told, SparkFailure):  # whatever it is, the next batch is not at fault
                told = LogFailure(str(told))
            self.faults += 1
            self.own_faults += not isinstance(told, TargetUnavailable)
            self.fault = str(told)
            raise told from error

    def _good(self) -> None:
        self.faults = self.own_faults = 0
        self.fault = None

    def _merge(self, *, follows: bool) -> None:
        for segments, shape in self.unmerged.groups(self._size.limit):
            rows = [segment for segment in segments if segment.rows]
            if self._handed_over:
                return
            if segments[0].statement is not None:
                if not follows:
                    return
                self._follow(segments[0], segments[0].statement, shape)
            if rows:
                if self._is_doubtful or not self.fits:
                    self._fit(shape, segments[-1].number)
                try:
                    with self._size.attempt(sum(segment.bytes for segment in rows)):
                        self._work.apply(rows, shape, after=self._held.last)
                except SparkStarts:
                    raise
                except Exception:
                    self._is_doubtful = True  # the next attempt corrects wrong columns of the table
                    raise
                self.holds(Held(rows[0].number, rows[-1].number))
            self.unmerged.merged(segments[-1].number)
            self._changed()
        self._size.done()

    def _follow(self, segment: Segment, statement: Statement, shape: Shape) -> None:
        """Follow a statement between the rows before and after it, unless another worker has."""
        held, told = self._work.held(), self._work.told_held.look()
        if held.last > segment.number:
            raise MergeConflict(f"{self._name}: another worker has merged the rows after a statement")
        if told.followed >= segment.number:
            self.fit_first()
            return
        # And yet `seen` is kept: lanes predict further statements while this one is followed.
        self.fits = False
        # A view shows everything before the statement from the table alone: other rows would become visible
        # again. It needs a file, which still has the earlier columns.
        self._log.show(segment.number - 1, segment.number)
        self.remove(segment.number - 1)
        self._work.following.follow_entry(statement, lambda: self._check_not_followed(segment.number))
        self._work.told_held.tell_followed(segment.number)
        try:
            self._fit(shape, segment.number)
        except LogFailure:
            self.seen = None  # it is reported when there are rows

    def _check_not_followed(self, number: int) -> None:
        """Raise MergeConflict if another worker has followed this statement, or a later one."""
        if self._work.told_held.look().followed >= number:
            raise MergeConflict(f"{self._name}: another worker has applied a statement")

    def _fit(self, shape: Shape, number: int) -> None:
        """Check that the table can contain the rows up to this segment. Raises LogFailure, because it is not
        the batch's fault, and MergeConflict."""
        # The columns of rows before a later statement must not be added again.
        self._check_not_followed(number + 1)
        try:
            self.seen = self._work.fit(shape, lambda: self._check_not_merged(number))
        except Rejected as error:
            raise LogFailure(f"{self._received()}: {error}") from error
        self.fits, self._is_doubtful = True, False

    def _check_not_merged(self, number: int) -> None:
        """Raise MergeConflict if another worker may have followed a statement after this segment."""
        self._check_not_followed(number + 1)
        if self._work.held().last >= number:
            raise MergeConflict(f"{self._name}: another worker has merged segment {number}")

    def _look_anew(self, error: Exception) -> bool:
        """Drop what other workers have merged meanwhile. Returns whether to try again.

        A worker that has lost its partition still knows the segments that it put. The partition's next worker
        merges them, and then removes the files."""
        if isinstance(error, MergeConflict):
            held = self._work.held()
            self.holds(held)
            self.unmerged.merged(max(held.last, self._log.removed()))
            self._changed()
            return True
        if isinstance(error, LostCommit):
            return self._table_is_gone()
        try:
            is_merged = self.unmerged.merged(self._log.removed())
        except Exception:
            return False  # the first error is raised
        self._changed()
        return is_merged

    def _table_is_gone(self) -> bool:
        """Whether another worker's DDL has dropped or renamed the table, so that it may contain less."""
        if not 0 < self._held.last <= self._work.told_held.look().left:
            return False
        with self._telling:
            self._held = self._told = Held()
        return True

    def _received(self) -> str:
        """The table, and its last received offsets: those that a failed merge could not merge."""
        marks = sorted(self._log.marks.highest().items())
        shown = [f"{topic}[{partition}] offset {offset}" for (topic, partition), (offset, _) in marks[:3]]
        more = ", ..." if len(marks) > len(shown) else ""
        return f"{self._name}, up to {', '.join(shown)}{more}" if shown else self._name

    # ---- upkeep

    def optimize(self, min_files: int) -> None:
        """Rewrite small files as larger ones, if the table has at least `min_files`."""
        with self._work.ddl_lock.upkeep(f"OPTIMIZE of {self._name}"), self._merging:
            self._work.optimize(min_files)

    def vacuum(self, retention: float) -> None:
        """Remove files that no version of the last `retention` seconds needs."""
        with self._work.ddl_lock.upkeep(f"VACUUM of {self._name}"):
            self._work.vacuum(retention)

    @property
    def has_to_tidy(self) -> bool:
        """Whether `tidy` has something to do, now or later."""
        return self._held != self._told or self.unmerged.keeps

    def tidy(self, now: float) -> None:
        """Retire segments that were merged a while ago, and remove those that were retired a while ago.

        `now`: monotonic seconds. A query resolves the table first and lists the segments afterwards. So a
        query that is about to list them may need segments that were merged since. Later it reads those that
        it listed."""
        keep = self._work.options.merge.keep
        before = self.unmerged.retired
        self._tell()
        if (number := self.unmerged.to_retire(now, keep)) is not None:
            self._log.retire(number, after=before)
        if (number := self.unmerged.to_remove(now, keep)) is not None:
            self._log.remove(number)

    def remove(self, up_to: int) -> None:
        """Remove segments at once, because the table contains them."""
        self._tell()
        self._log.remove(up_to)

    def _tell(self) -> None:
        """Record what the table contains, before the segments are removed and before Delta forgets it."""
        with self._telling:
            if self._held != self._told:
                self._work.told_held.tell(self._held)
                self._told = self._held
