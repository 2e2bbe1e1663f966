"""What must hold in each run, watched from outside: by what handlers are given and brokers are told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from handlers import Batch
from offsets import metadata
from offsets.types import Checkpoint
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.delivery import Delivery

from .brokers.group import Place
from .children.oracle import ChildOracle
from .ledger import Ledger, Part, Unit, Written
from .memory import Journals, Memory
from .ownership import Ownership

if TYPE_CHECKING:
    from .world import Running, World

__all__ = ["Oracles"]


@dataclass(slots=True, eq=False)
class _Begun:
    units: list[Unit]
    owned: dict[Part, Assignment]
    """Of the partitions that nobody else was given since: the assignments under which it has them."""
    limited: tuple[Running, str, str]


class Oracles:
    """Told of everything that handlers, brokers and disks see. The first violation ends the run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ledger = Ledger()
        self.violations: list[str] = []
        self._in_handlers: dict[Running, set[Unit]] = {}
        self._calls: Counter[tuple[Running, str, str]] = Counter()
        """Calls that run, by process, rule and handler: each rule's handler has a limit of its own, and so
        has the one that a reload puts in its place."""
        self._remembered: dict[Assignment, tuple[Part, Checkpoint]] = {}
        self._applied = 0
        self._ownership = Ownership(world.scheduler)
        self._highest: dict[Part, int] = {}
        self.children = ChildOracle(world)
        self.memory = Memory(world, self.ledger)
        self.journals = Journals(world, self.ledger)
        self.repeated = 0
        """Records that were handled again."""
        self.moved: set[Part] = set()
        """Partitions whose position somebody set back, or whose end was cut off."""

    def broken(self, oracle: str, text: str) -> None:
        self.violations.append(f"{oracle}: {text}")
        self._world.note("ORACLE", f"{oracle}: {text}")

    def watch(self, process: Running) -> None:
        """Look into a worker where the rules speak of what is inside."""
        components = process.worker.components
        self._watch_lanes(process, components.lanes)
        self._ownership.watch(components.lanes)
        self._watch_assignments(process, components.assignments)
        self._watch_file(components.local)

    # -- handlers

    def begin(
        self, process: Running, handler: str, batch: Batch, numbers: list[int], looked: float | None
    ) -> _Begun:
        """A handler is given these records: `order`, `no overlap` and `limit`. `looked`: when a child process
        found that the call may begin."""
        table, shard = batch.table, batch.shard
        rule = process.worker.components.handlers.configuration.rule_for(table)
        assert rule is not None  # one matches all tables
        limited = process, rule.match, handler
        self._calls[limited] += 1
        limit, calls = rule.handlers[0].limit, self._calls[limited]
        if limit is not None and limit.calls is not None and calls > limit.calls:
            self.broken("limit", f"{calls} calls of {rule.match} run at once in {process.name}")
        records = [self.ledger.written[number] for number in numbers]
        reached: dict[Unit, int] = {}
        for record in records:
            unit = record.unit
            reach = reached.setdefault(unit, unit.head)
            if record.place > reach and not record.excused and not record.part.anew:
                waiting = unit.records[reach]
                self.broken(
                    "order",
                    f"{unit.name}: offset {record.offset} of {record.part} is handled "
                    f"before {waiting.offset} ({process.name})",
                )
            reached[unit] = unit.open_from(max(reach, record.place + 1))
        running = self._in_handlers.setdefault(process, set())
        for unit in reached:
            if unit in running:
                self.broken("no overlap", f"{unit.name} is in two handlers of {process.name} at once")
        running.update(reached)
        first = records[0] if records else None
        where = "" if first is None else f" {first.part} {first.offset}+{len(records)}"
        self._world.note(process.name, f"handles {table}{'' if shard is None else f'/{shard}'}{where}")
        parts = dict.fromkeys(record.part for record in records)
        owned = {p: a for p in parts if (a := self._owned(process, p)) is not None}
        for part in parts:
            if part not in owned and self._ownership.begun_after_another(part, process, looked):
                self.broken("another's", f"{process.name} begins {table} of {part} since another has it")
        return _Begun(list(reached), owned, limited)

    def end(self, process: Running, begun: _Begun, done: list[int]) -> None:
        self._calls[begun.limited] -= 1
        self._in_handlers[process].difference_update(begun.units)
        self._applied += 1
        for number in done:
            record = self.ledger.written[number]
            self.repeated += record.handled > 0
            record.handled += 1
            held = begun.owned.get(record.part)
            if held is not None and held is self._owned(process, record.part):
                record.applied = self._applied
            record.unit.settle()
        self._world.note(process.name, f"handled {len(done)} of {begun.units[0].name if begun.units else ''}")

    # -- commits

    def committed(self, member: str, place: Place, offset: int, text: str) -> None:
        """The group's coordinator takes a commit: `commit`."""
        checkpoint = metadata.decode(text, offset) or Checkpoint(offset)
        part = self._part(place)
        self._world.note(
            member, f"commits {place[0]}[{place[1]}] {offset} and {len(checkpoint.ahead)} ranges"
        )
        if part is None or checkpoint.topic_id not in (None, part.topic_id):
            return
        self._all_done(part, checkpoint, f"{member} commits")
        if offset < self._highest.get(part, 0) and part not in self.moved:
            self.broken("commit", f"{member} sets {place} back from {self._highest[part]} to {offset}")
        self.moved.discard(part)
        self._highest[part] = offset

    def _all_done(self, part: Part, checkpoint: Checkpoint, who: str) -> None:
        first = part.first_open()
        if first is not None and first.offset < checkpoint.offset:
            self.broken("commit", f"{who} {checkpoint.offset} of {part}, past {first.offset}")
        for begin, end in checkpoint.ahead:
            for record in part.between(begin, end):
                if not record.settled:
                    self.broken(
                        "commit", f"{who} {begin}-{end} as finished ahead, and {record.offset} is not"
                    )

    def _watch_file(self, store: Any) -> None:
        save = store.save

        def saved(checkpoints: Any, *more: Any) -> None:
            for place, checkpoint in checkpoints.items():
                part = self.ledger.parts.get((checkpoint.topic_id, place.partition))
                if part is not None:
                    self._all_done(part, checkpoint, "a file says")
            save(checkpoints, *more)

        store.save = saved

    # -- what is fetched

    def _watch_assignments(self, process: Running, assignments: Assignments) -> None:
        add = assignments.add

        def added(new: list[Assignment]) -> None:
            add(new)
            group = self._world.cluster.group
            for each in new:
                part = self._part(each.partition)
                known = group.committed.get(tuple(each.partition))
                if part is not None:
                    # A member that was expelled may still be told of what others have by now.
                    if any(own.member.name in group.members for own in process.consumers):
                        self._ownership.given(process, part, each)
                    self.memory.assigned(process, each, part, known)
                if part is None or known is None or each.topic_id not in (None, part.topic_id):
                    continue
                checkpoint = metadata.decode(known[1], known[0]) or Checkpoint(known[0])
                if each.before is None and checkpoint.topic_id in (None, part.topic_id):
                    self._remembered[each] = part, checkpoint

        assignments.add = added  # type: ignore[method-assign]

    def _watch_lanes(self, process: Running, lanes: Lanes) -> None:
        offer = lanes.offer

        def offered(delivery: Delivery) -> bool:
            taken = offer(delivery)
            if taken:
                self._nothing_again(process, delivery)
                self._bounds(process, lanes)
            return taken

        lanes.offer = offered  # type: ignore[method-assign]

    def _nothing_again(self, process: Running, delivery: Delivery) -> None:
        """`remembered`: what Kafka knew to be finished when the partition came is not handled again."""
        for _, chunk in delivery.parts:
            for message in getattr(chunk, "messages", ()):
                if self.memory.knows(chunk.assignment, message.offset()):
                    self.broken(
                        "kill",
                        f"{process.name} is to handle {message.offset()} of {chunk.assignment.partition} "
                        "again, which was finished when its worker was killed",
                    )
                    return
            known = self._remembered.get(chunk.assignment)
            if known is None or known[0] in self.moved:
                continue
            checkpoint = known[1]
            for message in getattr(chunk, "messages", ()):
                at = message.offset()
                if at < checkpoint.offset or any(first <= at < end for first, end in checkpoint.ahead):
                    self.broken(
                        "remembered",
                        f"{process.name} is to handle {at} of {chunk.assignment.partition} again",
                    )
                    return

    def _bounds(self, process: Running, lanes: Lanes) -> None:
        """`bounds`: records of each lane, bytes of all, but for one record that is larger than that."""
        rule = process.configuration.lanes
        # A standing table's batch counts again when it is retried.
        again = self._world.parks * len(self.ledger.units())
        most = process.most_records + again * min(process.configuration.batch.max_records, rule.max_records)
        for lane in lanes.lanes:
            if lane.records > most:
                self.broken("bounds", f"lane {lane.number} of {process.name} holds {lane.records} records")
        held = sum(lane.bytes for lane in lanes.lanes)
        if held > rule.max_bytes * (1 + self._world.parks) and sum(lane.records for lane in lanes.lanes) > 1:
            self.broken("bounds", f"the lanes of {process.name} hold {held} bytes")

    # -- processes

    def ended(self, process: Running) -> None:
        """The process is gone, by itself or not: `drained`."""
        self._in_handlers.pop(process, None)
        self.children.ended(process)
        if process.late:
            self.broken("drained", f"{process.name} did not end in time")

    def all_handled(self, still: list[Written]) -> None:
        """`progress`: there was time, and these are not handled."""
        if still:
            first = still[0]
            self.broken(
                "progress",
                f"{len(still)} records are not handled, the first is offset {first.offset} of "
                f"{first.part} ({first.unit.name})",
            )

    def finally_(self, processes: list[Running]) -> None:
        """Nothing is wrong any more, and there was time: `progress` and `nothing lost`."""
        still = self.ledger.open()
        self.all_handled(still)
        for unit in self.ledger.units():
            if (stale := unit.first_stale()) is not None and not still:
                later, earlier = stale
                self.broken(
                    "replay", f"{unit.name}: {earlier.offset} was handled again, and {later.offset} was not"
                )
        group = self._world.cluster.group
        for name, topic in self._world.cluster.topics.by_name.items():
            for number, log in enumerate(topic.logs):
                offset = group.committed.get((name, number), (0, ""))[0]
                if offset != log.high and not still:
                    self.broken("progress", f"{name}[{number}] ends at {log.high}, committed is {offset}")

    def is_committed(self, name: str, number: int, end: int) -> bool:
        """Whether the group's position is this end of the topic as it is today, not of one before it."""
        known = self._world.cluster.group.committed.get((name, number), (0, ""))
        return known[0] == end and self.is_of_today(name, known)

    def is_of_today(self, name: str, committed: tuple[int, str]) -> bool:
        """Whether a commit is of the topic that has this name now, as far as it tells."""
        known = metadata.decode(committed[1], committed[0])
        topic_id = None if known is None else known.topic_id
        return topic_id in (None, self._world.cluster.topics.by_name[name].id)

    def _owned(self, process: Running, part: Part) -> Assignment | None:
        """The assignment under which the process has the partition; None: another was given it since."""
        assignment = process.worker.components.assignments.get(part.topic, part.number)
        return assignment if assignment is self._ownership.holder(part) else None

    def _part(self, place: Any) -> Part | None:
        topic = self._world.cluster.topics.by_name.get(place[0])
        return None if topic is None else self.ledger.parts.get((topic.id, place[1]))
