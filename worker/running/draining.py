"""The steps of a stop, one by one: the lanes, the last commit, the handlers, the group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from handlers.hanging_calls import Bounded
from handlers.logs import get_logger
from offsets.stores.interface import CheckpointError
from worker.configuration import Configuration
from worker.fetching.routing import UndecodableHalt
from worker.running.components import Components
from worker.running.process import COMMIT_SECONDS, KAFKA_SECONDS, LANES_SECONDS

log = get_logger("worker")

_LOOK_SECONDS = 0.01
_MAP_SECONDS = 2.0
_CANCEL_SECONDS = 2.0
_TRACING_SECONDS = 4.0

Answer = TypeVar("Answer")


class LateStop(Exception):
    """A step of the stop took too long."""


@dataclass(frozen=True)
class Draining:
    """Each step has a time limit, and a failed step does not prevent the next one. The main thread's own."""

    components: Components
    _: KW_ONLY
    clock: Callable[[], float]
    fail: Callable[[BaseException], None]
    """Called with a step's error."""
    error: Callable[[], BaseException | None]
    """The error that stopped the worker."""

    def run(self, configuration: Configuration, *, began: bool) -> tuple[bool, list[str]]:
        """Finish running batches, commit, leave the group, close the handlers. Returns whether everything
        succeeded, and the halted tables. `began`: the threads were started."""
        timeout = configuration.shutdown_timeout
        clean = True
        halted: list[str] = []
        if began:
            finished = self._part("lanes", timeout + LANES_SECONDS, lambda: self.finish(timeout))
            clean, halted = finished if finished is not None else (False, [])
            self._part("commit", COMMIT_SECONDS, self._commit)
            # While the partitions are still this worker's: handlers' work behind their batches must end
            # before the partitions' next owner starts.
            clean = self._close_handlers() and clean
            fetcher = self.components.fetcher
            fetcher.close()
            fetcher.join(KAFKA_SECONDS + configuration.revoke_timeout)
            # Leaving the group commits once more. Kafka may then accept what it rejected in a rebalance.
            clean = clean and self.components.committer.in_kafka and not fetcher.is_alive()
        self._part("map", _MAP_SECONDS, self._close_map)
        if (tracing := self.components.tracing) is not None:
            with contextlib.suppress(Exception):  # spans must not change the exit code
                Bounded("stop-tracing", tracing.close).within(_TRACING_SECONDS)
        return self._close_handlers() and clean, halted

    def finish(self, seconds: float) -> tuple[bool, list[str]]:
        """Fetch no more, and wait for running batches. Returns whether all ended in time; halted tables."""
        end = self.clock() + seconds
        if isinstance(self.error(), UndecodableHalt):
            self._work_off(end)
        self.components.former.work_off(self.components.assignments.current(), end - self.clock())
        self.components.fetcher.drain()
        for processor in self.components.processors:
            processor.call_off()
        self.components.lanes.stop()
        self._join(end)
        drained = self._drained()
        if not drained and self.components.calls.cancel(f"shutdown_timeout of {seconds:g} s is over"):
            self._join(self.clock() + _CANCEL_SECONDS)
        # Leaving the group forgets the records of its partitions.
        self.components.former.tell(self.components.assignments.current())
        return drained and not self.components.former.lost, self.components.lanes.seen.halted()

    def _join(self, end: float) -> None:
        for processor in self.components.processors:
            processor.join(max(0.0, end - self.clock()))

    def _commit(self) -> None:
        self.components.committer.stop()
        self.components.committer.commit()

    def _close_map(self) -> None:
        with contextlib.suppress(CheckpointError):
            entries = self.components.local.entries().values()
            self.components.finished_map.close(each.window for each in entries if each.window)
        self.components.starts.remove_old_maps()

    def _close_handlers(self) -> bool:
        """Close the handlers, unless one still handles a batch. Returns whether none failed. Repeatable."""
        if any(processor.is_alive() for processor in self.components.processors):
            return True
        return self.components.handlers.close()

    def _work_off(self, end: float) -> None:
        """Finish the records before one that stops the worker. A checkpoint that is set behind that record
        then skips nothing else."""
        while self.clock() < end and not self.components.lanes.worked_off():
            time.sleep(_LOOK_SECONDS)

    def _drained(self) -> bool:
        running = [work.unit.table.label for work in self.components.lanes.seen.running()]
        if running:
            log.error(
                "shutdown_timeout",
                tables=running,
                hint="their handlers did not return; their unfinished records are read again",
            )
        return not running

    def _part(self, name: str, seconds: float, do: Callable[[], Answer]) -> Answer | None:
        """Run a step of the stop. None: it failed, or is not finished."""
        try:
            return Bounded(f"stop-{name}", do).within(seconds)
        except TimeoutError as error:
            self.fail(LateStop(f"stopping, {name}: {error}"))
        except BaseException as error:
            self.fail(error)
        return None
