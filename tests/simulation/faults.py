"""What goes wrong in a run, and how it is mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Literal

from worker.observing.unblock_messages import PauseRequest

from .brokers.logs import Topic
from .children.faults import ChildFaults
from .children.plan import CHILD_FAULTS
from .machine.scheduler import Process, current
from .plan import STANDING, TOPIC, Event, Plan
from .world import Running, World

__all__ = ["Faults"]

_LANES = (1, 2, 3, 5)
"""How many a worker has after a reload."""
_NAMES = ("checkpoint.json", "checkpoint.json.previous")


class Faults:
    """Each `Event` of the plan is a method of its name. What takes long goes on beside the next events."""

    def __init__(self, world: World, plan: Plan, random: Random, start: Callable[[int], Running]) -> None:
        self._world, self._plan, self._random, self._start = world, plan, random, start
        self._god = Process("faults")
        self._children = ChildFaults(world, plan, start, self._running)
        self._pending = 0
        self._backup: dict[str, bytes] = {}
        self._done = False
        self.happened: Counter[str] = Counter()

    @property
    def over(self) -> bool:
        return self._done and not self._pending

    def alive(self) -> list[Running]:
        return [each for each in self._world.processes if not each.dead]

    def play(self, events: list[Event]) -> None:
        began = current().now
        for event in events:
            current().park(max(0.0, began + event.at - current().now))
            self.happened[event.what] += 1
            self._world.note("world", f"{event.what} {event.who} {event.seconds:.2f}")
            self._beside(event)
        self._done = True

    def resume(self) -> None:
        """No table is paused any more."""
        if self._plan.paused:
            self._beside(Event(0.0, "resume"))

    def heal(self) -> None:
        """Nothing is wrong any more."""
        world, cluster = self._world, self._world.cluster
        world.note("world", "peace")
        cluster.away = world.disk.full = False
        cluster.commits_lost = cluster.commits_late = 0.0
        cluster.answer_seconds = 0.004
        cluster.cut_off.clear()
        cluster.group.refuses_first.clear()
        self._children.heal()
        for process in self.alive():
            world.unsilence(process)
            if process.frozen:
                world.thaw(process)
        if self._plan.halts:
            self.mend()
        else:
            self._start_missing()

    def mend(self) -> None:
        """What was wrong with records is mended; halted tables need a start for that."""
        if self._plan.halts:
            self._beside(Event(0.0, "all_anew"))

    def _start_missing(self) -> None:
        for number in range(self._plan.workers):
            if self._running(number) is None:
                self._start(number)

    def _all_anew(self, event: Event) -> None:
        former = self.alive()
        while any(not each.dead for each in former):
            for process in former:
                self._world.stop(process)
            self._wait(0.5)
        self._start_missing()

    def _beside(self, event: Event) -> None:
        def do() -> None:
            if event.what in CHILD_FAULTS:
                getattr(self._children, event.what)(event)
            else:
                getattr(self, f"_{event.what}")(event)
            self._pending -= 1

        self._pending += 1
        current().spawn(event.what, self._god, do)

    def _running(self, number: int) -> Running | None:
        return next((each for each in self.alive() if each.name.startswith(f"w{number}.")), None)

    def _wait(self, seconds: float) -> None:
        current().park(seconds)

    # -- processes

    def _kill(self, event: Event) -> None:
        """And another begins in its place."""
        process = self._running(event.who)
        if process is not None:
            self._world.kill(process)
        self._again(event)

    def _restart(self, event: Event) -> None:
        process = self._running(event.who)
        while process is not None and not process.dead:
            self._world.stop(process)
            self._wait(0.5)
        self._again(event)

    def _freeze(self, event: Event) -> None:
        process = self._running(event.who)
        if process is None or process.frozen:
            return
        self._world.freeze(process)
        self._wait(event.seconds)
        if process.frozen and not process.dead:
            self._world.thaw(process)

    def _replace(self, event: Event) -> None:
        """Another one begins beside it, which is told to stop: a rolling update."""
        process = self._running(event.who)
        self._start(event.who)
        if process is not None:
            self._world.stop(process)

    def _again(self, event: Event) -> None:
        self._wait(event.seconds)
        if self._running(event.who) is None:
            self._start(event.who)

    def _reload(self, event: Event) -> None:
        process = self._running(event.who)
        if process is None or process.worker is None:
            return
        configuration = self._plan.configuration(lanes=self._random.choice(_LANES))
        process.next_configuration = self._world.placed(process.folder, configuration)
        # A lane may have what others held that were given up.
        process.most_records = configuration.lanes.max_records * max(_LANES)
        process.worker._reloader.want()

    def _pause(self, event: Event) -> None:
        """Somebody pauses a table at the workers that run now."""
        for process in self.alive():
            self._order(process, "pause")

    def _resume(self, event: Event) -> None:
        """Until all workers run, and none has a pause."""
        while self._pending > 1 or any(map(self._may_pause, self.alive())):
            for process in self.alive():
                self._order(process, "resume")
            self._wait(0.5)

    def _may_pause(self, process: Running) -> bool:
        worker = process.worker
        return worker is None or worker.started() is not None or bool(worker.components.table_pauses.given)

    def _order(self, process: Running, action: Literal["pause", "resume"]) -> None:
        worker = process.worker
        if worker is not None:
            asked = PauseRequest(table=STANDING, action=action, by="somebody")
            order = current().spawn(action, process, lambda: worker._change(asked, "somewhere"))
            while not (order.ended or process.dead):
                self._wait(0.01)

    # -- disks

    def _power(self, event: Event) -> None:
        """Every process ends at once, and what was not flushed is gone."""
        for process in self.alive():
            self._world.kill(process)
        self._world.disk.lose_power()
        self._other_files(None)
        self._wait(event.seconds)
        self._start_missing()

    def _torn(self, event: Event) -> None:
        """The checkpoint file is cut off while the worker is down."""
        process = self._running(event.who)
        if process is not None:
            self._world.kill(process)
        folder = self._plan.folder(event.who)
        self._world.disk.tear(f"{folder}/{_NAMES[0]}")
        if self._random.random() < 0.3:
            self._world.disk.tear(f"{folder}/{_NAMES[1]}")
        self._other_files(folder)
        self._again(event)

    def _old_files(self, event: Event) -> None:
        """A backup of the checkpoint folder comes back while the worker is down."""
        folder = self._plan.folder(event.who)
        backup = self._world.disk.keep(folder)
        self._wait(event.seconds)
        process = self._running(event.who)
        if process is not None:
            self._world.kill(process)
        self._world.disk.put_back(folder, backup)
        self._other_files(folder)
        self._again(event)

    def _no_files(self, event: Event) -> None:
        """The folder is gone, as with another pod's emptyDir."""
        process = self._running(event.who)
        if process is not None:
            self._world.kill(process)
        self._world.disk.remove(self._plan.folder(event.who))
        self._other_files(self._plan.folder(event.who))
        self._again(event)

    def _full(self, event: Event) -> None:
        self._world.disk.full = True
        self._wait(event.seconds)
        self._world.disk.full = False

    def _other_files(self, folder: str | None) -> None:
        """What is in this folder, by default in all, is not what was written there last."""
        self._world.oracles.memory.forget(folder)
        self._world.oracles.journals.forget(folder)

    # -- brokers

    def _away(self, event: Event) -> None:
        self._world.cluster.away = True
        self._wait(event.seconds)
        self._world.cluster.away = False
        self._world.cluster.topics.tell()

    def _commits(self, event: Event) -> None:
        cluster = self._world.cluster
        cluster.commits_lost, cluster.commits_late = 0.4, 0.4
        self._wait(event.seconds)
        cluster.commits_lost = cluster.commits_late = 0.0

    def _usurped(self, event: Event) -> None:
        """A worker is killed, and some first commits of those that take over are refused. They are killed
        when they have repeated something, or else after a time, and the former owner comes back."""
        process, group = self._running(event.who), self._world.cluster.group
        if process is not None:
            self._world.kill(process)
        if not self.alive():
            self._start(event.who + 1)
        every = range(len(self._topic().logs))
        group.refuses_first.update(self._random.sample(every, self._random.randint(1, len(every))))
        end, repeated = current().now + event.seconds, self._world.oracles.repeated
        while self._world.oracles.repeated == repeated and current().now < end:
            self._wait(0.01)
        for each in self.alive():
            self._world.kill(each)
        group.refuses_first.clear()
        self._again(event)
        self._start_missing()

    def _slow(self, event: Event) -> None:
        self._world.cluster.answer_seconds = 1.0
        self._wait(event.seconds)
        self._world.cluster.answer_seconds = 0.004

    def _unheard(self, event: Event) -> None:
        """A worker does not reach its group's coordinator, but the brokers that have its records."""
        process = self._running(event.who)
        if process is not None:
            self._world.silence(process)
            self._wait(event.seconds)
            self._world.unsilence(process)

    def _cut_off(self, event: Event) -> None:
        """A worker reaches no broker. Which it reaches first again, the network decides."""
        process = self._running(event.who)
        if process is None:
            return
        cluster = self._world.cluster
        cluster.cut_off.add(process)
        self._world.silence(process)
        self._wait(event.seconds)
        cluster.cut_off.discard(process)
        self._wait(self._random.random() ** 2 * 3)
        if process not in cluster.cut_off:
            self._world.unsilence(process)

    def _expire(self, event: Event) -> None:
        """Retention takes the beginning of a partition."""
        topic = self._topic()
        number = event.who % len(topic.logs)
        log = topic.logs[number]
        log.expire(self._random.randint(0, log.high))
        part = self._world.oracles.ledger.part(topic.id, topic.name, number)
        self._world.oracles.ledger.excuse(part.between(0, log.low), "expired")

    def _grow(self, event: Event) -> None:
        """The topic gets another partition, which the group sees when metadata are asked for again."""
        topic = self._topic()
        topic.logs.append(type(topic.logs[0])())
        self._wait(event.seconds)
        self._world.cluster.group.look_again()

    def _remake(self, event: Event) -> None:
        """The topic is deleted and made anew with as many partitions."""
        topic, cluster, ledger = self._topic(), self._world.cluster, self._world.oracles.ledger
        for number in range(len(topic.logs)):
            ledger.excuse(ledger.part(topic.id, topic.name, number).records, "deleted with its topic")
        cluster.group.forget(topic.name)
        cluster.topics.create(topic.name, len(topic.logs))

    def _rewind(self, event: Event) -> None:
        """All workers are down while somebody sets a partition's position back."""
        cluster, oracles = self._world.cluster, self._world.oracles
        while cluster.group.members or self.alive():
            for process in self.alive():
                self._world.kill(process)
            self._wait(0.5)
        topic = self._topic()
        place = TOPIC, event.who % len(topic.logs)
        known = cluster.group.committed.get(place)
        if known is not None and oracles.is_of_today(TOPIC, known):
            low = topic.logs[place[1]].low
            cluster.group.committed[place] = (self._random.randint(min(low, known[0]), known[0]), "")
            oracles.moved.add(oracles.ledger.part(topic.id, TOPIC, place[1]))
        self._start_missing()

    def _topic(self) -> Topic:
        return self._world.cluster.topics.by_name[TOPIC]
