"""One run from its seed: workers, records, faults, then peace; and what the oracles say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from handlers import Batch, PartialFailure, TargetUnavailable

from . import faults
from .brokers.logs import Entry
from .ledger import Written
from .machine.child_patching import DEADLY
from .machine.patching import patched
from .machine.scheduler import Process, Scheduler, current, use
from .plan import STANDING, TOPIC, Plan
from .world import SURROUNDINGS, Running, World

__all__ = ["Result", "run", "run_all", "simulating"]

_PEACE_SECONDS = 240.0
"""In which all that is left must be handled and committed once nothing is wrong any more."""
_STOP_SECONDS = 120.0
_MOST_FATAL = 2


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    hash: int
    violations: list[str]
    trace: list[tuple[float, str, str]]
    handled: int
    repeated: int
    seconds: float
    """Of the virtual clock."""
    happened: dict[str, int]
    """How often which fault."""


def simulating() -> Any:
    """Within it the worker's modules have the simulated `threading`, `time` ..."""
    return patched(SURROUNDINGS)


def run(plan: Plan) -> Result:
    """Within `simulating`. Raises nothing for a broken promise: that is in the result."""
    scheduler = Scheduler(plan.seed, switch=plan.switch, delay=plan.delay)
    use(scheduler)
    try:
        world = World(scheduler)
        scenario = _Scenario(world, plan)
        began = scheduler.now
        scenario.play()
        ledger = world.oracles.ledger
        return Result(
            seed=plan.seed,
            hash=scheduler.hash,
            violations=world.oracles.violations,
            trace=world.trace,
            handled=sum(1 for each in ledger.written if each.handled),
            repeated=sum(each.handled - 1 for each in ledger.written if each.handled),
            seconds=scheduler.now - began,
            happened=dict(scenario.faults.happened),
        )
    finally:
        use(None)


def run_all(seeds: Sequence[int], plan_of: Callable[[int], Plan] = Plan.of) -> list[Result]:
    """Runs one after the other, without their traces: whoever wants one replays its seed."""
    with simulating():
        results = [run(plan_of(seed)) for seed in seeds]
    for result in results:
        result.trace.clear()
    return results


class _Scenario:
    def __init__(self, world: World, plan: Plan) -> None:
        self._world, self._plan = world, plan
        self._random = Random(f"run {plan.seed}")
        self._god = Process("world")
        self._configuration = plan.configuration()
        self.faults = faults.Faults(world, plan, self._random, self.start)
        world.answer = self._answer
        world.segment_bytes = plan.segment_bytes
        world.parks = plan.children is not None or bool(
            plan.stands or plan.paused or plan.failing or plan.unavailable or plan.poison
        )
        self._written = False
        self._settled = 0.0
        self._peace = False
        self._stands = bool(plan.stands)
        count = 0 if plan.children is None else plan.children.deadly
        self._fatal: set[Written] = set()
        self._deadly = set(Random(f"deadly {plan.seed}").sample(range(plan.records), count))

    def play(self) -> None:
        world, plan, scheduler = self._world, self._plan, self._world.scheduler
        world.cluster.topics.create(TOPIC, plan.partitions)
        scheduler.spawn("producer", self._god, self._produce)
        for number in range(plan.workers):
            self.start(number)
        scheduler.spawn("faults", self._god, lambda: self.faults.play(plan.events))
        self._until(lambda: self._written and self.faults.over, plan.seconds + 300)
        self._peace = world.peace = True
        # What was sent to brokers that lost it is given up by then.
        self._settled = self._world.scheduler.now + (
            15 if {"commits", "away", "freeze", "unheard", "cut_off"} & self.faults.happened.keys() else 0
        )
        self.faults.heal()
        if plan.stands or plan.paused:
            if plan.others_end:
                self._until(lambda: self.faults.over and not self._others_open(), _PEACE_SECONDS)
                if not self._broken:
                    world.oracles.all_handled(self._others_open())
            self._stands = False
            self.faults.mend()
            self.faults.resume()
        # To find a record that ends its process takes a dozen processes, each some seconds after the last.
        seconds = _PEACE_SECONDS * (1 + len(self._deadly))
        self._until(lambda: self.faults.over and self._is_done(), seconds)
        if not self._broken:
            world.oracles.finally_(world.processes)
        world.over = True
        for process in self.faults.alive():
            world.stop(process)
        self._until(lambda: not self.faults.alive(), _STOP_SECONDS)
        for process in world.processes:
            # What was fetched of a topic since made anew may be lost, and then a stop is not a clean one.
            excused = process.excused or self.faults.happened["remake"] or plan.halts
            if process.exit_code not in (0, None) and not excused and not self._broken:
                world.oracles.broken("drained", f"{process.name} ended with {process.exit_code}")
            if not process.dead:
                world.oracles.broken("drained", f"{process.name} has not ended")
                world.kill(process)
        reader = scheduler.spawn("reader", self._god, world.oracles.journals.finally_)
        self._until(lambda: reader.ended, _STOP_SECONDS)
        scheduler.kill(self._god)

    def start(self, number: int) -> Running:
        count = sum(1 for each in self._world.processes if each.name.startswith(f"w{number}."))
        return self._world.start(f"w{number}.{count}", self._plan.folder(number), self._configuration)

    @property
    def _broken(self) -> bool:
        return bool(self._world.oracles.violations or self._world.scheduler.faults)

    def _until(self, so: Any, seconds: float) -> None:
        scheduler = self._world.scheduler
        scheduler.run(lambda: self._broken or so(), scheduler.now + seconds)
        for fault in scheduler.faults:
            self._world.oracles.broken("no error", fault)
        scheduler.faults.clear()

    def _others_open(self) -> list[Written]:
        """What is not handled of the tables that do not stand still."""
        return [each for each in self._world.oracles.ledger.open() if each.unit.name.split()[0] != STANDING]

    def _is_done(self) -> bool:
        oracles, cluster = self._world.oracles, self._world.cluster
        if not oracles.ledger.is_settled or self._world.scheduler.now < self._settled:
            return False
        return all(
            oracles.is_committed(name, number, log.high)
            for name, topic in cluster.topics.by_name.items()
            for number, log in enumerate(topic.logs)
        )

    def _produce(self) -> None:
        plan, random, scheduler = self._plan, self._random, self._world.scheduler
        left = plan.records
        while left > 0:
            burst = min(left, random.choice((1, 3, 20)))
            left -= burst
            for _ in range(burst):
                self._write(random)
            self._world.cluster.topics.tell()
            scheduler.park(random.random() * 2 * plan.seconds * burst / plan.records)
        self._written = True

    def _write(self, random: Random) -> None:
        plan, cluster, ledger = self._plan, self._world.cluster, self._world.oracles.ledger
        topic = cluster.topics.by_name.get(TOPIC)
        if topic is None:
            return
        number = random.randrange(len(topic.logs))
        log = topic.logs[number]
        while random.random() < plan.holes:
            log.append(None)
        table, key = random.randrange(plan.tables), random.randrange(3)
        unit = (
            f"shop.t{table}" if plan.settings["lanes"]["order_by"] == "table" else f"shop.t{table} row {key}"
        )
        record = ledger.add(ledger.part(topic.id, TOPIC, number), log.high, unit)
        record.poison = bool(plan.poison) and random.random() < plan.poison
        if record.poison and plan.children is not None and len(self._fatal) < _MOST_FATAL:
            self._fatal.add(record)  # each ends a process several times, which takes half a minute
        if record.number in self._deadly:
            record.excused = "deadly"
            record.unit.settle()
            log.append(Entry(b"{" + DEADLY + b"1," + _canal(record, table, key)[1:]))
        elif plan.broken and random.random() < plan.broken:
            record.excused = "undecodable"
            record.unit.settle()
            log.append(Entry(random.choice(_BROKEN) % record.source_ms))
        else:
            value = _canal(record, table, key)
            if "transactions" in plan.settings["batch"]:
                value = value[:-1] + b',"gtid":"g%d"}' % (log.high // 3)
            log.append(Entry(value))

    def _answer(self, process: Running, batch: Batch) -> None:
        plan, scheduler = self._plan, current()
        random = scheduler.random.random
        if plan.handle_seconds:
            scheduler.park(random() * plan.handle_seconds)
        else:
            scheduler.preempt()
        self._world.at_place("within")
        if self._stands and batch.table == STANDING:
            raise TargetUnavailable("it stands") if plan.stands == "blocked" else ValueError("it stands")
        if not (self._peace and plan.halts):
            self._refuse_poison(batch)
        if self._peace:
            return
        kind = random()
        if kind < plan.failing:
            if random() < 0.3 and len(batch.changes) > 1:
                raise PartialFailure(int(random() * len(batch.changes)), ValueError("the rest"))
            raise ValueError("as the plan says")
        kind -= plan.failing
        if kind < plan.unavailable:
            raise TargetUnavailable("down, as the plan says")
        kind -= plan.unavailable
        if kind < plan.hanging:
            self._hang()
        elif kind < plan.hanging + plan.late:
            scheduler.park(random() * 8)

    def _refuse_poison(self, batch: Batch) -> None:
        ledger = self._world.oracles.ledger
        records = [ledger.written[int(change.after["id"])] for change in batch.changes]
        if not any(each.poison for each in records):
            return
        if len(records) == 1 and not self._plan.halts:  # alone it may be passed over
            ledger.excuse(records, "refused")
        if self._fatal.intersection(records):
            self._world.kernel.crash()
        raise ValueError("poison")

    def _hang(self) -> None:
        """Until there is peace."""
        while not self._peace:
            current().park(0.5)


_BROKEN = (
    b'{"es":%d,"database":"shop","table":',
    b'{"es":%d,"database":"shop","table":"t0","type":"INSERT","isDdl":false,"data":17}',
)


def _canal(record: Written, table: int, key: int) -> bytes:
    return (
        f'{{"database":"shop","table":"t{table}","type":"INSERT","isDdl":false,"es":{record.source_ms},'
        f'"data":[{{"id":"{record.number}","k":"{key}"}}],"mysqlType":{{"id":"bigint","k":"bigint"}},"pkNames":["k"]}}'
    ).encode()
