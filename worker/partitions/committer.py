"""The committer: at each interval, saves finished offsets to the local file, then to Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from handlers.logs import get_logger
from offsets.finished import FinishedMap
from offsets.stores.interface import OwnStore
from offsets.stores.kafka import TopicRefused
from offsets.stores.polled import CommitInterrupted, PolledKafkaStore
from offsets.tracker import checkpoints
from offsets.types import Checkpoint
from worker.attempts.backoff import describe
from worker.observing.metrics import Metrics
from worker.observing.status import CheckpointStatus
from worker.partitions.commit_errors import CommitErrors
from worker.partitions.membership import Membership
from worker.units.assigned_partition import Assignment, Assignments

log = get_logger("committer")

_RETRY_SECONDS = 5.0
_FIRST_SECONDS = 1.0
"""Seconds until a partition's first commit is retried."""
_TRACKER = "tracker"  # beside the stores' names: the finished offsets could not be determined


class Committer(threading.Thread):
    """Commits on its own thread every `interval` seconds, and on any other thread that calls it.

    If one store fails, the other is still written. Failed commits are retried."""

    def __init__(
        self,
        assignments: Assignments,
        local: OwnStore,
        kafka: PolledKafkaStore,
        *,
        interval: float,
        metrics: Metrics,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
        journal: Callable[[Mapping[Assignment, Checkpoint]], None] = lambda saved: None,
        finished_map: FinishedMap | None = None,
        membership: Membership | None = None,
    ) -> None:
        """`journal`: called with what a store has saved; it raises nothing. `membership`: regularly requests
        a commit."""
        super().__init__(name="committer", daemon=True)
        self._assignments = assignments
        self._local = local
        self._kafka = kafka
        self._interval = interval
        self._metrics = metrics
        self._clock = clock
        self._fail = fail
        self._journal = journal
        self._map = finished_map
        self._membership = membership
        # One commit at a time: an older position must not overwrite a newer one.
        self._lock = threading.Lock()
        self._ended = False
        self._woken = threading.Event()
        self._last_success: datetime | None = None
        self._errors = CommitErrors(metrics, clock)
        self._begun = clock()  # time of this thread's last commit
        self._made = 0
        self.beat = clock()
        """Time of the thread's last loop."""

    def run(self) -> None:
        try:
            while not self._ended:
                self._woken.wait(self._pause())
                self._woken.clear()
                self.beat = self._clock()
                again = self._wants_confirmation()
                everything = again or self.beat >= self._due()
                if not self._ended and (everything or self._first()):
                    self._begun = self.beat if everything else self._begun
                    # The fetcher's commit in a rebalance may take long. The thread is then still alive.
                    while not self._lock.acquire(timeout=_RETRY_SECONDS):
                        self.beat = self._clock()
                    try:
                        self._commit(None if everything else self._first(), again=again)
                    finally:
                        self._lock.release()
        except BaseException as error:
            self._fail(error)

    def _due(self) -> float:
        """The time at which everything must be committed again."""
        return self._begun + (min(self._interval, _RETRY_SECONDS) if self._errors else self._interval)

    def _pause(self) -> float:
        # A long interval is slept in pieces, so the thread shows that it is alive.
        now = self._clock()
        left = min(max(self._due() - now, 0.0), _FIRST_SECONDS if self._first() else _RETRY_SECONDS)
        return left if self._membership is None else min(left, self._membership.wait(now))

    def _first(self) -> list[Assignment]:
        """Return the partitions that wait for Kafka to accept their first position."""
        return [
            each
            for each in self._assignments.current()
            if not (each.may_begin or each.closed) and each.tracker.next_offset is not None
        ]

    def _wants_confirmation(self) -> bool:
        return (
            self._membership is not None
            and self._membership.due(self.beat)
            and bool(self._assignments.current())
        )

    def interrupt(self) -> None:
        """A rebalance starts. No answer of Kafka can arrive, so wait for none. The polling thread."""
        self._kafka.interrupt()

    def wake(self) -> None:
        """Commit soon, because partitions wait for their first commit: Kafka must accept their first position
        before their records are handled. Any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread. It commits nothing more."""
        self._ended = True
        self._woken.set()

    def pace(self, interval: float) -> None:
        """Set the interval in seconds, counted from the last commit. Any thread."""
        self._interval = interval
        self._woken.set()

    def commit(self, leaving: Iterable[Assignment] | None = None, *, again: bool = False) -> bool:
        """Commit the finished offsets of `leaving` (None: of all partitions). Returns True if Kafka has them.

        `again`: also commit what Kafka already has (see `Membership`). Raises nothing. An error belongs to
        this commit: it is logged, and the next commit retries."""
        with self._lock:
            these = None if leaving is None else list(leaving)
            return self._commit(these, again=again, leaving=these is not None)

    def _commit(self, these: list[Assignment] | None, *, again: bool, leaving: bool = False) -> bool:
        """`leaving`: the caller gives up these partitions only after this."""
        everything = these is None
        move = everything and self._map is not None and self._map.turn()
        assignments = self._assignments.current() if these is None else these
        found = self._finished(assignments, move=move)
        on_disk = self._save_locally(found, everything=everything)
        if on_disk and everything and self._map is not None:
            self._map.saved()
        # The next owner of a partition that was revoked meanwhile may already have committed more.
        kept = {each: checkpoint for each, checkpoint in found.items() if leaving or not each.closed}
        in_kafka = self._save_in_kafka(kept, everything=everything, again=again)
        if on_disk and in_kafka:
            self._save_locally(found, everything=everything)  # records that Kafka has it
        if on_disk or in_kafka:
            self._journal(found)
        if in_kafka and not self._errors:
            self._last_success = datetime.now(UTC)
        return in_kafka

    @property
    def counted(self) -> tuple[int, int]:
        """Commits that Kafka accepted, and failed commits of any store, so far."""
        return self._made, self._errors.count

    @property
    def in_kafka(self) -> bool:
        """Whether no commit to Kafka waits for a retry."""
        return self._kafka.name not in self._errors

    def status(self) -> CheckpointStatus:
        last = self._last_success
        return CheckpointStatus(
            last_success=last.isoformat(timespec="milliseconds") if last else None,
            last_error=self._errors.text,
        )

    def _finished(self, assignments: list[Assignment], *, move: bool) -> dict[Assignment, Checkpoint]:
        """Return what may be committed of each partition. One that fails does not stop the others.

        `move`: as for `checkpoints`."""
        faults: list[str] = []
        trackers = [each.tracker for each in assignments]
        try:
            told = checkpoints(trackers, move=move)
        except Exception:
            told = [self._alone(each, faults) for each in assignments]
        else:
            if move and self._map is not None:
                self._map.moved()
        for assignment, tracker in zip(assignments, trackers, strict=True):
            # A revoked partition's last checkpoint contains what it has finished.
            assignment.window = None if assignment.closed else tracker.window
        self._errors.replace(_TRACKER, "; ".join(faults))
        return {
            each: checkpoint._replace(topic_id=each.topic_id, began_with=each.began_with)
            for each, checkpoint in zip(assignments, told, strict=True)
            if checkpoint is not None
        }

    def _alone(self, assignment: Assignment, faults: list[str]) -> Checkpoint | None:
        try:
            return assignment.tracker.checkpoint()
        except Exception as error:
            log.exception("checkpoint_failed", partition=str(assignment.partition))
            faults.append(f"{assignment.partition}: {describe(error)}")
            return None

    def _save_locally(self, found: Mapping[Assignment, Checkpoint], *, everything: bool) -> bool:
        """Save to the file unless it has these and Kafka's marks already. Returns whether it has them.

        `everything`: these are all assigned partitions."""
        new = {
            a: (checkpoint, a.mark, a.window)
            for a, checkpoint in found.items()
            if a.on_disk != (checkpoint, a.mark, a.window)
        }
        if new:
            try:
                self._local.save(
                    {a.partition: checkpoint for a, (checkpoint, _, _) in new.items()},
                    {a.partition: mark for a, (_, mark, _) in new.items() if mark is not None},
                    {a.partition: window for a, (_, _, window) in new.items() if window is not None},
                )
            except Exception as error:
                self._errors.failed(self._local.name, error)
                return False
            if any(a.on_disk is None or a.on_disk[0] != saved[0] for a, saved in new.items()):
                self._metrics.commit(self._local.name, "success")
            for assignment, saved in new.items():
                assignment.on_disk = saved
        if new or everything:
            self._errors.works_again(self._local.name)
        return True

    def _save_in_kafka(
        self, found: Mapping[Assignment, Checkpoint], *, everything: bool, again: bool
    ) -> bool:
        """Commit to Kafka what it lacks. Returns whether it has all. `everything`: as above."""
        # `again` sends all of them, because Kafka may reject the commits of some partitions each time.
        new = {a: c for a, c in found.items() if again or a.in_kafka != c}
        if new:
            try:
                self._send(new)
            except CommitInterrupted as error:
                log.debug("commit_interrupted", reason=str(error))
                return False
            except Exception as error:
                self._errors.failed(self._kafka.name, error)
                return False
            self._made += 1
            self._metrics.commit(self._kafka.name, "success")
        if new or everything:
            self._errors.works_again(self._kafka.name)
        return True

    def _send(self, new: Mapping[Assignment, Checkpoint]) -> None:
        """Commit to Kafka. If it rejects a topic, commit the others without it, and raise the error."""
        try:
            marks = self._kafka.save({a.partition: checkpoint for a, checkpoint in new.items()})
        except TopicRefused:
            topics = sorted({a.partition.topic for a in new})
            half = topics[: len(topics) // 2]
            if not half:
                raise
            try:
                self._send({a: checkpoint for a, checkpoint in new.items() if a.partition.topic in half})
            finally:
                self._send({a: checkpoint for a, checkpoint in new.items() if a.partition.topic not in half})
            return
        for assignment, checkpoint in new.items():
            assignment.in_kafka = checkpoint
            assignment.committed = checkpoint.offset
            assignment.mark = marks[assignment.partition]
