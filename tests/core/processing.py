"""Processors as threads on real lanes, over one partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import ClassVar
from weakref import WeakSet

from building import assignment, chunk, delivery, record
from prometheus_client import generate_latest

from handlers import Batch
from offsets.types import Checkpoint
from worker.attempts.table_pauses import TablePauses
from worker.configuration import LanesRule
from worker.configuration.table_rules import OnFailure
from worker.dead_letters.writing import DeadLetters
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.processing.failures import FailureRules
from worker.processing.processor import Processor
from worker.processing.slow_calls import RunningCalls
from worker.units.assigned_partition import Assignment
from worker.units.unit import Unit, UnitState

__all__ = ["BAD", "NOW", "Stage", "raising"]

BAD = b'{"database":"shop","table":"orders","type":"INSERT","es":1,"data":"no rows"}'
NOW = {"initial_delay": 0.0, "jitter": 0.0}


class Stage:
    """Lanes with their processors, as threads, over one partition."""

    processor: Callable[..., Processor] = Processor
    """What makes its processors."""
    made: ClassVar[WeakSet[Stage]] = WeakSet()
    patience: ClassVar[float] = 10.0
    """Seconds."""

    def __init__(
        self,
        lanes: int = 1,
        *,
        on_undecodable: OnFailure = "halt",
        letters: DeadLetters | None = None,
        pauses: TablePauses | None = None,
    ) -> None:
        self.lanes = Lanes(
            LanesRule(count=lanes, max_records=10**6, max_bytes=10**9, work_stealing=True), time.monotonic
        )
        self.metrics = Metrics()
        self.partition = assignment()
        self.errors: list[BaseException] = []
        self.calls = RunningCalls()
        rules = FailureRules(
            on_undecodable=on_undecodable, dead_letters=letters, calls=self.calls, pauses=pauses
        )
        self.processors = [
            type(self).processor(
                number,
                self.lanes,
                self.metrics,
                rules=rules,
                clock=time.monotonic,
                random=lambda: 0.5,
                fail=self.errors.append,
            )
            for number in range(lanes)
        ]
        self.made.add(self)

    def start(self) -> None:
        for processor in self.processors:
            processor.start()

    def run(self, *units: Unit, until: Callable[[], object] | None = None, seconds: float = 10.0) -> None:
        """Start, and stop when nothing moves any more (or `until` says so)."""
        still = (UnitState.IDLE, UnitState.HALTED, UnitState.WAITING_FOR_OTHERS)
        self.start()
        end = time.monotonic() + seconds
        while not self.errors and (not until() if until else any(each.state not in still for each in units)):
            assert time.monotonic() < end, [each.state for each in units]
            time.sleep(0.001)
        self.stop()

    def wait(self, until: Callable[[], object]) -> None:
        """While the processors run."""
        end = time.monotonic() + self.patience
        while not until():
            assert not self.errors, self.errors
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.001)

    def end(self) -> None:
        """Let no processor go on, also after a failed test: it would take the time of all later ones."""
        for processor in self.processors:
            processor.call_off()
        self.lanes.stop()

    def stop(self) -> None:
        self.end()
        for processor in self.processors:
            processor.join(10)
            assert not processor.is_alive()

    def offer(self, *parts: tuple[Unit, Iterable[int | bytes]], of: Assignment | None = None) -> None:
        """Offsets, or the value of the record that takes the next offset, for each table."""
        made = []
        for to, wanted in parts:
            records = []
            for each in wanted:
                if isinstance(each, int):
                    records.append(record(each, to.table.name))
                else:
                    records.append(record(records[-1].offset() + 1 if records else 0, value=each))
            made.append((to, chunk(of or self.partition, records)))
        assert self.lanes.offer(delivery(*made))

    def checkpoint(self) -> Checkpoint | None:
        return self.partition.tracker.checkpoint()

    def counted(self, line: str) -> bool:
        return f"\n{line}\n" in generate_latest(self.metrics.registry).decode()


def raising(error: BaseException, times: int = 10**9) -> Callable[[Batch], None]:
    left = [times]

    def script(batch: Batch) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return script
