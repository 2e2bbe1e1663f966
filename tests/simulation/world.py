"""What surrounds a worker in a simulation, and how it is started, stopped, killed and frozen."""

from __future__ import annotations

import fcntl
import types
from collections.abc import Callable, Sequence
from typing import Any

from offsets.finished import FinishedMap
from offsets.journal import Journal
from offsets.run import Run
from offsets.stores.file import FileStore
from offsets.tracker import OffsetTracker
from worker.configuration import Configuration
from worker.partitions.own_store import journal_of
from worker.running.worker import Worker

from .brokers.cluster import Admin, Cluster
from .brokers.consumer import Consumer
from .handlers import Apart, Simulated
from .machine.disk import Disk
from .machine.disk_calls import DiskFcntl, DiskMmap, DiskOs, DiskPath
from .machine.kernel import Child, Kernel
from .machine.scheduler import Killed, Process, Scheduler, current
from .oracles import Oracles

__all__ = ["SURROUNDINGS", "Running", "World", "world"]


_FEW = 1000
_UNITS_PER_FILE = 30
"""Of the journal."""
_register, _finish = OffsetTracker.register, Run.finish


class Running(Process):
    """One process of a worker, from its start to its end."""

    def __init__(self, name: str, folder: str, configuration: Configuration) -> None:
        super().__init__(name)
        self.folder = folder
        self.configuration = configuration
        self.next_configuration = configuration
        """What it reads when it reloads."""
        self.consumers: list[Consumer] = []
        self.worker: Worker | None = None
        self.exit_code: int | None = None
        self.most_records = configuration.lanes.max_records
        """Of each lane."""
        self.wanted = False
        """It was told to stop, though it may not have heard it yet."""
        self.excused = False
        """It may end with an error: it was told to stop while something was wrong."""
        self.lost_files = False
        """Somebody has removed or replaced files that it has mapped."""
        self.late = False
        """It did not end by itself."""


class World:
    """One simulated machine room."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        scheduler.world = self
        self.cluster = Cluster(scheduler)
        self.disk = Disk(scheduler)
        self.kernel = Kernel(scheduler)
        self.trace: list[tuple[float, str, str]] = []
        self.oracles = Oracles(self)
        self.cluster.group.on_commit = self.oracles.committed
        self.processes: list[Running] = []
        self.peace = False
        """Nothing is wrong any more."""
        self.over = False
        """Nothing is started any more."""
        self.answer: Callable[[Running, Any], None] = lambda process, batch: None
        """What a handler does with a batch."""
        self.at_place: Callable[[str], None] = lambda place: None
        """Called by a handler in a child process, with the place where that may end."""
        self.ended: Callable[[Running], None] = lambda process: None
        """Told when a process has ended, by itself or not."""
        self.segment_bytes = 4096
        """Of the map of finished offsets."""
        self.parks = False
        """A table may stand still, so that its records are parked."""

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append((self.scheduler.now, who, what))
        self.scheduler.digest(what)

    def start(self, name: str, folder: str, configuration: Configuration) -> Running:
        process = Running(name, folder, self.placed(folder, configuration))
        self.processes.append(process)
        self.note(name, "starts")
        self.scheduler.spawn(f"{name} main", process, lambda: self._main(process))
        return process

    def placed(self, folder: str, configuration: Configuration) -> Configuration:
        """With the checkpoint folder on this disk."""
        rule = configuration.checkpoint.model_copy(update={"directory": DiskPath(self.disk, folder)})
        return configuration.model_copy(update={"checkpoint": rule})

    def stop(self, process: Running) -> None:
        """SIGTERM."""
        if process.dead:
            return
        process.excused = process.excused or not self.peace
        self.note(process.name, "is told to stop")
        process.wanted = True
        if process.worker is not None:
            self.scheduler.spawn(f"{process.name} signal", process, process.worker.stop)

    def kill(self, process: Running) -> None:
        """SIGKILL: the group finds out by itself."""
        if process.dead:
            return
        self.note(process.name, "is killed")
        self.oracles.memory.killed(process)
        self._end(process)

    def freeze(self, process: Running) -> None:
        self.note(process.name, "is frozen")
        self.scheduler.freeze(process)
        for consumer in process.consumers:
            consumer.member.frozen()

    def thaw(self, process: Running) -> None:
        self.note(process.name, "is thawed")
        self.scheduler.thaw(process)
        for consumer in process.consumers:
            consumer.member.thawed()

    def caller(self) -> Running:
        """The worker whose handler is called. Raises Killed."""
        task = self.scheduler.task
        assert task is not None
        process = task.process
        if process.dead:  # the worker took Killed for an error of the last call
            raise Killed
        if isinstance(process, Child):
            process = process.parent
        assert isinstance(process, Running)
        return process

    def silence(self, process: Running) -> None:
        """The group's coordinator is out of its reach."""
        for consumer in process.consumers:
            consumer.member.silenced()

    def unsilence(self, process: Running) -> None:
        for consumer in process.consumers:
            consumer.member.heard_again()

    def _main(self, process: Running) -> None:
        process.worker = worker = Worker(process.configuration)
        self.oracles.watch(process)
        if process.wanted:
            worker.stop()
        process.exit_code = worker.run()
        self.note(process.name, f"ends with {process.exit_code}")
        self.scheduler.at(self.scheduler.now, lambda: self._end(process))

    def _end(self, process: Running) -> None:
        if process.dead:
            return
        self.scheduler.kill(process)
        for consumer in process.consumers:
            consumer.member.vanished()
        self.disk.died(process)
        self.kernel.died(process)
        self.oracles.ended(process)
        self.ended(process)


def world() -> World:
    """The one that is simulated now."""
    return current().world


def _process() -> Running:
    task = current().task
    assert task is not None
    assert isinstance(task.process, Running)
    return task.process


class _LastResort:
    def __init__(self, code: int) -> None:
        self._code = code
        self._armed = False

    def exit_with(self, code: int) -> None:
        self._code = code

    def arm(self, seconds: float) -> None:
        if self._armed:
            return
        self._armed = True
        process, of = _process(), world()

        def late() -> None:
            process.late = True
            of.note(process.name, "did not end in time")
            of.kill(process)

        current().later(process, seconds, late)


def _consumer(settings: dict[str, Any], **callbacks: Any) -> Consumer:
    process, of = _process(), world()
    consumer = Consumer(of.cluster, process, settings, **callbacks)
    process.consumers.append(consumer)
    return consumer


def _own_store(configuration: Configuration, *, alone: bool) -> FileStore:
    return FileStore(DiskPath(world().disk, _process().folder), configuration.kafka.group_id)


def _handler(entry: Any, folder: Any) -> Simulated:
    task = current().task
    assert task is not None
    process = task.process.parent if isinstance(task.process, Child) else _process()
    return Apart() if process.configuration.lanes.processes else Simulated()


def _finished_map(directory: DiskPath, group: str) -> FinishedMap:
    return FinishedMap(directory, group, segment_bytes=world().segment_bytes)  # type: ignore[arg-type]


def _journal_of(configuration: Configuration) -> Journal | None:
    journal = journal_of(configuration)
    if journal is not None:
        journal.units_per_file = _UNITS_PER_FILE
        world().oracles.journals.watch(_process(), journal)
    return journal


def _registered(tracker: OffsetTracker, offsets: Sequence[int]) -> Run:
    process, oracles = _process(), world().oracles
    most = process.configuration.max_ahead
    if most < _FEW and tracker.ahead(most) >= most:
        oracles.broken("bounds", f"{process.name} reads on beyond max_ahead, {offsets[0]}")
    run = _register(tracker, offsets)
    oracles.memory.registered(tracker, run)
    return run


def _finished(run: Run, offsets: Sequence[int]) -> None:
    current().preempt()
    _finish(run, offsets)
    world().oracles.memory.finished(run, list(offsets))


def _finished_records(run: Run, records: Sequence[Any], offset_of: Callable[[Any], int]) -> None:
    _finished(run, [offset_of(each) for each in records])


def _logged(_logger: object, level: str, event: dict[str, Any]) -> str:
    """A processor of structlog, the last one."""
    task = current().task
    told = [
        f"{name}={event[name]}" for name in ("partition", "table", "error", "found", "start") if name in event
    ]
    who = "world" if task is None else task.process.name
    if task is not None and isinstance(task.process, Child):
        if task.process.program is not None:
            task.process.program.events.send("log", "child", level, dict(event))
        return ""
    world().note(who, f"log {level}: {event['event']} {' '.join(told)}"[:200])
    if event["event"] == "standstill":
        # Whatever explains that nothing comes is no standstill to the worker; and its cure is no excuse.
        world().oracles.broken("standstill", f"{who} has not read {event['partition']} for a minute")
    return ""


SURROUNDINGS = types.SimpleNamespace(
    Consumer=_consumer,
    AdminClient=lambda settings, logger=None: Admin(world().cluster, _process()),
    LastResort=_LastResort,
    take_signals=lambda takers: None,
    own_store=_own_store,
    journal_of=_journal_of,
    FinishedMap=_finished_map,
    boot_id=lambda: world().disk.boot,
    finish=_finished,
    finish_records=_finished_records,
    register=_registered,
    create_handler=_handler,
    load_configuration=lambda path: _process().next_configuration,
    Os=DiskOs(lambda: world().disk),
    Fcntl=DiskFcntl(fcntl, lambda: world().disk),
    Mmap=DiskMmap(lambda: world().disk),
    logged=_logged,
)
