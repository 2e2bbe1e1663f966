"""How each kind of fault is made, and ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer

from storm.parts.disks import read_only
from storm.parts.load import Table
from storm.parts.workers import StormWorker
from storm.plan import Event

if TYPE_CHECKING:
    from storm.rig import Rig

__all__ = ["FAKE_TIME", "Faults", "Happened"]

FAKE_TIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
_OTHER_TIME = Path(__file__).parent / "parts" / "other_time"
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Happened:
    kind: str
    begun: float
    ended: float
    """Seconds on the machine's monotonic clock."""
    topics: tuple[str, ...]
    """Those whose records may have felt it."""


class Faults:
    """Makes the events of a plan happen, each in a thread of its own: a long one goes on beside the next.

    What two faults would need at once, the later one waits for.
    """

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._brokers = threading.Lock()  # one node at a time may be away
        self._network = threading.Lock()
        self._database = threading.Lock()
        self._disk = threading.Lock()
        self._remaking = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.happened: list[Happened] = []
        self.failed: list[str] = []
        self._do: dict[str, Callable[[Event], None]] = {
            "worker killed": lambda event: self._kill(event, self._mortal(event)),
            "worker restarted": self._restart,
            "worker frozen": self._freeze,
            "worker frozen beyond its session": self._freeze,
            "lane process killed": self._kill_child,
            "lane process stopped": self._stop_child,
            "static member killed": lambda event: self._kill(event, self._rig.static),
            "members come and go": self._members,
            "broker killed": self._kill_broker,
            "leader moved": self._move_leader,
            "leaders elected": lambda event: self._rig.cluster.elect_preferred(),
            "coordinator killed": self._kill_broker,
            "network cut": self._network_fault,
            "network silent": self._network_fault,
            "network slow": self._network_fault,
            "checkpoint disk full": self._full,
            "checkpoint folder read-only": self._read_only,
            "clock jumps": self._clock,
            "offsets expired": self._expire,
            "topic made anew": self._remake,
            "partition added": self._add_partition,
            "database stopped": self._stop_database,
            "target's folder read-only": self._target_read_only,
            "Spark killed": self._kill_spark,
        }

    def play(self, events: list[Event]) -> None:
        """Returns when all have happened, and are over."""
        begin = time.monotonic()
        for event in events:
            if self._over.wait(max(0.0, begin + event.at - time.monotonic())):
                return
            thread = threading.Thread(target=self._happen, args=(event,), name=event.kind, daemon=True)
            self._threads.append(thread)
            thread.start()
        for thread in self._threads:
            thread.join(2 * _PATIENCE)
            if thread.is_alive():
                self.failed.append(f"{thread.name} has not ended after {2 * _PATIENCE:.0f} s")

    def stop(self) -> None:
        """No further one."""
        self._over.set()

    def _happen(self, event: Event) -> None:
        begun = time.monotonic()
        try:
            self._do[event.kind](event)
        except Exception as fault:
            self.failed.append(f"{event.kind}: {type(fault).__name__}: {str(fault)[:500]}")
        self.happened.append(Happened(event.kind, begun, time.monotonic(), self._topics(event)))

    def _topics(self, event: Event) -> tuple[str, ...]:
        rig = self._rig
        alone = {
            "offsets expired": rig.lone.topics if rig.lone else [],
            "topic made anew": [rig.remade],
            "Spark killed": rig.spark.topics if rig.spark else [],
        }
        if event.kind in alone:
            return tuple(alone[event.kind])
        if event.kind.startswith(("broker", "leader", "coordinator", "network")):
            return tuple(rig.topics)
        return tuple(rig.static.topics)

    def _any(self, event: Event) -> StormWorker:
        members = self._rig.members
        return members[event.number % len(members)]

    def _mortal(self, event: Event) -> StormWorker:
        """One that may be ended."""
        rig = self._rig
        members = [each for each in rig.members if not (rig.scale.spare and each is rig.spared)]
        return members[event.number % len(members)]

    # ---- workers

    def _kill(self, event: Event, worker: StormWorker) -> None:
        with worker.held():
            worker.kill()
            time.sleep(event.seconds)

    def _restart(self, event: Event) -> None:
        with self._mortal(event).held() as worker:
            worker.drain()
            time.sleep(event.seconds)

    def _freeze(self, event: Event) -> None:
        with self._any(event).held() as worker:
            worker.freeze(event.seconds)

    def _kill_child(self, event: Event) -> None:
        with self._with_children(event).held() as worker:
            worker.kill_child(event.number)

    def _stop_child(self, event: Event) -> None:
        """Its worker may be ended meanwhile."""
        self._with_children(event).stop_child(event.number, event.seconds)

    def _with_children(self, event: Event) -> StormWorker:
        workers = [each for each in self._rig.members if each.processes]
        return workers[event.number % len(workers)]

    def _members(self, event: Event) -> None:
        """Three that take partitions and never read a record join and leave, one after the other."""
        static = self._rig.static
        properties = static.process.config["kafka"]["properties"]
        kept = {key: value for key, value in properties.items() if key != "group.instance.id"}
        own = {
            "bootstrap.servers": self._rig.cluster.worker_servers,
            "group.id": static.group,
            "log_level": 0,
        }
        manual = {"enable.auto.commit": False, "partition.assignment.strategy": "cooperative-sticky"}
        guests: list[Consumer] = []
        try:
            for _ in range(3):
                guest = Consumer({**kept, **own, **manual})
                guest.subscribe(static.topics)
                guests.append(guest)
                for _ in range(5):
                    for each in guests:
                        each.poll(event.seconds / 15 / len(guests))
        finally:
            for guest in guests:
                guest.close()

    def _clock(self, event: Event) -> None:
        """A worker that starts anew sees the day's time jump two hours ahead, then far back."""
        assert FAKE_TIME is not None
        with self._mortal(event).held() as worker:
            worker.drain()
            offset = worker.state.parent / "clock"
            offset.write_text("+0")
            faked = {"LD_PRELOAD": str(FAKE_TIME), "FAKETIME_TIMESTAMP_FILE": str(offset)}
            more = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}
            usual = dict(worker.process.environment)
            path = f"{_OTHER_TIME}:{usual['PYTHONPATH']}"
            worker.process.environment = {**usual, **faked, **more, "PYTHONPATH": path}
            worker.start_again()
            worker.process.environment = usual
            worker.wait_ready()
            for jump in ("+7200", "-7200"):
                offset.write_text(jump)
                time.sleep(event.seconds)
            worker.drain()

    def _expire(self, event: Event) -> None:
        lone = self._rig.lone
        assert lone is not None
        with lone.held():
            lone.kill()
            time.sleep(event.seconds)
            self._rig.cluster.delete_group(lone.group)

    def _kill_spark(self, event: Event) -> None:
        spark = self._rig.spark
        assert spark is not None
        with spark.held():
            os.kill(spark.process.spark_pid(_PATIENCE), signal.SIGKILL)
            spark.process.wait(_PATIENCE)
            time.sleep(event.seconds)

    # ---- Kafka

    def _kill_broker(self, event: Event) -> None:
        rig = self._rig
        with self._brokers:
            if event.kind == "coordinator killed":
                node = rig.cluster.coordinator(rig.static.group)
            else:
                node = rig.cluster.nodes[event.number % len(rig.cluster.nodes)]
            node.kill()
            time.sleep(event.seconds)
            node.start()
            rig.cluster.wait_in_sync()

    def _move_leader(self, event: Event) -> None:
        """The leader of a partition is stopped, and another one leads; then the first one leads again."""
        rig = self._rig
        with self._brokers:
            node = rig.cluster.leader(rig.static.topics[0], event.number % 3)
            node.stop()
            time.sleep(event.seconds)
            node.start()
            rig.cluster.wait_in_sync()
            rig.cluster.elect_preferred()

    def _network_fault(self, event: Event) -> None:
        """Between all workers and one broker, or all of them."""
        nodes = self._rig.cluster.nodes
        chosen = nodes if event.number % 2 else [nodes[event.number // 2 % len(nodes)]]
        with self._network:
            try:
                for node in chosen:
                    if event.kind == "network cut":
                        node.relay.cut()
                    elif event.kind == "network silent":
                        node.relay.silence()
                    else:
                        node.relay.delay(0.05 + event.number % 10 / 10)
                time.sleep(event.seconds)
            finally:
                for node in chosen:
                    node.relay.mend()

    def _remake(self, event: Event) -> None:
        rig = self._rig
        with self._remaking, ExitStack() as pause:
            with self._brokers:
                pause.enter_context(rig.load.paused(rig.remade))  # sends all that it has
                tables = [table for table in rig.load.tables if table.topic == rig.remade]
                rig.wait(
                    lambda: all(rig.judge.head(t.full_name) >= t.sent for t in tables), "the topic is read"
                )
                time.sleep(event.seconds)
                rig.cluster.delete_topic(rig.remade)
                rig.cluster.create_topic(rig.remade, rig.remade_partitions)
            # Until then one that is longer than what was read would be read from there on first.
            rig.wait(rig.knows_the_remade, "the members know of the new topic")

    def _add_partition(self, event: Event) -> None:
        """And a table whose records are in it."""
        rig = self._rig
        topic = rig.static.topics[0]
        with self._remaking:
            partition = rig.cluster.add_partition(topic)
        rig.load.tables.append(Table(f"c_more{partition}", topic, partition))

    # ---- disks and targets

    def _full(self, event: Event) -> None:
        with self._disk, self._rig.small_disk.full(self._rig.members[0].pid):
            time.sleep(event.seconds)

    def _read_only(self, event: Event) -> None:
        with self._disk, read_only(self._rig.static.state, with_files=False):
            time.sleep(event.seconds)

    def _target_read_only(self, event: Event) -> None:
        with self._disk, read_only(self._any(event).process.folder / "lake", with_files=True):
            time.sleep(event.seconds)

    def _stop_database(self, event: Event) -> None:
        with self._database:
            self._rig.database.stop()
            time.sleep(event.seconds)
            self._rig.database.start()
