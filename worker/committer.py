"""The committer: every interval, what is finished goes to the local file, then to Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from offsets.stores.interface import CheckpointError, CheckpointStore
from offsets.stores.polled import CommitInterrupted
from offsets.types import Checkpoint, TopicPartition
from worker.assignment import Assignment, Assignments
from worker.logs import get_logger
from worker.metrics import Metrics
from worker.status import CheckpointStatus

__all__ = ["Committer", "LocalStore"]

log = get_logger("committer")

_RETRY_SECONDS = 5.0


class LocalStore(CheckpointStore, Protocol):
    """A store beside Kafka, which also remembers what Kafka has acknowledged."""

    def acknowledge(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class Committer(threading.Thread):
    """Commits on its own thread every `interval` seconds, and on any other thread that asks for it.

    A store that fails does not keep the other from being written; what failed is tried again.
    """

    def __init__(
        self,
        assignments: Assignments,
        local: LocalStore,
        kafka: CheckpointStore,
        *,
        interval: float,
        metrics: Metrics,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        super().__init__(name="committer", daemon=True)
        self._assignments = assignments
        self._local = local
        self._kafka = kafka
        self.interval = interval
        self._metrics = metrics
        self._clock = clock
        self._fail = fail
        # One commit at a time: an older position must not overtake a newer one.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._last_success: datetime | None = None
        self._errors: dict[str, str] = {}
        self._due = clock() + interval
        self.beat = clock()
        """When the thread last went round."""

    def run(self) -> None:
        try:
            while not self._ended.wait(self._pause()):
                self.beat = self._clock()
                if self._errors or self.beat >= self._due:
                    self._due = self.beat + self.interval
                    self.commit()
        except BaseException as error:
            self._fail(error)

    def _pause(self) -> float:
        # A long interval is slept in pieces, so that the thread shows that it lives.
        left = self.interval if self._errors else max(self._due - self._clock(), 0.0)
        return min(left, _RETRY_SECONDS)

    def stop(self) -> None:
        """End the thread; it commits nothing more."""
        self._ended.set()

    def commit(self, leaving: Iterable[Assignment] | None = None) -> bool:
        """Commit what is finished of `leaving`, by default of all partitions. True when Kafka has it."""
        with self._lock:
            assignments = self._assignments.current() if leaving is None else list(leaving)
            found = {a: checkpoint for a in assignments if (checkpoint := a.tracker.checkpoint()) is not None}
            on_disk = self._save(self._local, found)
            in_kafka = self._save(self._kafka, found)
            if in_kafka:
                acknowledged = {}
                for assignment in in_kafka:
                    assignment.committed = found[assignment].offset
                    acknowledged[assignment.partition] = assignment.committed
                if on_disk is not None:
                    self._acknowledge(acknowledged)
            if not self._errors:
                self._last_success = datetime.now(UTC)
            return self.in_kafka

    @property
    def in_kafka(self) -> bool:
        """Whether the last commit to Kafka succeeded."""
        return self._kafka.name not in self._errors

    def status(self) -> CheckpointStatus:
        last = self._last_success
        return CheckpointStatus(
            last_success=last.isoformat(timespec="milliseconds") if last else None,
            last_error="; ".join(self._errors.values()) or None,
        )

    def _save(self, store: CheckpointStore, found: dict[Assignment, Checkpoint]) -> list[Assignment] | None:
        """The assignments whose checkpoint was new to the store and is saved now; None when that failed."""
        new = {a: checkpoint for a, checkpoint in found.items() if a.saved.get(store.name) != checkpoint}
        if not new:
            return [] if store.name not in self._errors else None
        try:
            store.save({assignment.partition: checkpoint for assignment, checkpoint in new.items()})
        except CommitInterrupted as error:
            log.debug("commit_interrupted", reason=str(error))
            return None
        except CheckpointError as error:
            self._failed(store.name, error)
            return None
        for assignment, checkpoint in new.items():
            assignment.saved[store.name] = checkpoint
        if self._errors.pop(store.name, None):
            log.info("checkpoint_works_again", store=store.name)
        self._metrics.commit(store.name, "success")
        return list(new)

    def _acknowledge(self, offsets: dict[TopicPartition, int]) -> None:
        try:
            self._local.acknowledge(offsets)
        except CheckpointError as error:
            self._failed(self._local.name, error)

    def _failed(self, store: str, error: CheckpointError) -> None:
        self._errors[store] = str(error)
        self._metrics.commit(store, "failure")
        log.error("checkpoint_failed", store=store, error=str(error))
