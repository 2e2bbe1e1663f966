"""Several workers with packs and the same tables: each change lands once, in order, whatever ends where."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from pack_lab import Fault, Killed, Lake, Worker, row

from handlers import Change, PartialFailure

_TABLES = ("orders", "items")
_CHANGES = 24
_FAULTS: tuple[Fault, ...] = (
    *("die before", "die after", "lose answer", "refuse", "arrive late", "arrive late"),
    *("freeze before", "freeze after", "freeze before", "freeze after"),
)


@dataclass
class _Member:
    """A worker, and what it has to handle; after its tables were given to others, what it still has."""

    worker: Worker
    position: dict[str, int] = field(default_factory=dict)
    running: dict[str, list[Change]] = field(default_factory=dict)
    is_busy: bool = False


class _Run:
    """One run, by its seed."""

    def __init__(self, seed: int, mode: str) -> None:
        self.random = random.Random(seed)
        self.lake = Lake(mode)
        self.source = {
            table: [row(offset, self.random.randint(1, 4)) for offset in range(_CHANGES)] for table in _TABLES
        }
        self.committed = dict.fromkeys(_TABLES, 0)
        self.members: list[_Member] = []
        self.owner: dict[str, _Member] = {}
        self.frozen = 0
        for table in _TABLES:
            self.give(table)

    def step(self) -> None:
        random = self.random
        alive = [each for each in self.members if not each.is_busy and not each.worker.is_dead]
        for member in self.members:
            if random.random() < 0.1:
                member.worker.files.arrive()
        for table in _TABLES:
            if self.owner[table].worker.is_dead or random.random() < 0.03:
                self.give(table)
        if not alive:
            return
        member = random.choice(alive)
        if random.random() < 0.15:
            member.worker.files.fault = random.choice(_FAULTS)
            member.worker.files.left = random.randint(1, 6)
        member.is_busy = True
        try:
            with suppress(Killed):
                self.act(member)
        finally:
            member.is_busy = False

    def act(self, member: _Member) -> None:
        what, table = self.random.random(), self.random.choice(_TABLES)
        with suppress(Exception):
            if what < 0.1:
                member.worker.sink(table).merge()
            elif what < 0.2:
                member.worker.sink(table).load()
            elif what < 0.25:
                member.worker.remove()
            elif what < 0.35 and table in member.position:
                member.worker.tidy(table)
            else:
                for _ in range(self.random.randint(1, 4)):
                    self.go_on(member)

    def go_on(self, member: _Member) -> None:
        if self.random.random() < 0.3:
            member.worker.put()
        elif member.position:
            self.take(member, self.random.choice(sorted(member.position)))

    def take(self, member: _Member, table: str) -> None:
        begin = member.position[table]
        batch = member.running.get(table)
        if batch is None:
            batch = self.source[table][begin : begin + self.random.randint(1, 3)]
        if not batch:
            return
        member.running[table] = batch
        try:
            done = len(batch) if member.worker.take(table, batch) else 0
        except PartialFailure as failure:
            done = failure.done
        except Exception:
            return
        member.position[table] += done
        rest = batch[done:]
        if rest:
            member.running[table] = rest
        else:
            del member.running[table]
        if self.owner[table] is member:
            self.committed[table] = member.position[table]

    def give(self, table: str) -> None:
        """To another worker, which the one before may know or not."""
        before = self.owner.get(table)
        if before is not None and not before.is_busy and self.random.random() < 0.5:
            before.position.pop(table, None)
            before.running.pop(table, None)
            if not before.worker.is_dead:
                before.worker.sink(table).let_go()
        free = [each for each in self.members if not (each.is_busy or each.worker.is_dead or each is before)]
        if len(free) < 2 or self.random.random() < 0.3:
            shares = self.random.random() < 0.9
            free = [_Member(Worker(self.lake, self.meanwhile, shares=shares))]
            self.members += free
        self.owner[table] = owner = self.random.choice(free)
        owner.position[table] = max(0, self.committed[table] - self.random.randint(0, 2))
        owner.running.pop(table, None)

    def meanwhile(self) -> None:
        """What others do while one is frozen."""
        if self.frozen < 2:
            self.frozen += 1
            for _ in range(self.random.randint(1, 8)):
                self.step()
            self.frozen -= 1

    def finish(self) -> None:
        """All are dead; one takes what is left, and brings all in."""
        last = Worker(self.lake)
        for member in self.members:
            member.worker.files.arrive()
        for table, changes in self.source.items():
            for begin in range(self.committed[table], len(changes), 5):
                last.take_and_put(table, *changes[begin : begin + 5])
            last.sink(table).load()
            last.sink(table).merge()
        self.last = last


def _check(seeds: range, mode: str) -> None:
    for seed in seeds:
        run = _Run(seed, mode)
        for _ in range(60):
            run.step()
        run.finish()
        for table, changes in run.source.items():
            if mode == "changelog":
                assert run.lake.offsets[table] == [change.offset for change in changes], f"seed {seed}"
            else:
                newest = {change.after["id"]: change.after["name"] for change in changes if change.after}
                assert run.lake.rows[table] == newest, f"seed {seed}"


@pytest.mark.parametrize("mode", ["changelog", "replica"])
def test_each_change_is_in_its_table_once_and_in_order_whatever_ends_where(mode: str) -> None:
    _check(range(10), mode)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["changelog", "replica"])
def test_each_change_is_in_its_table_once_in_hundreds_of_runs(mode: str) -> None:
    _check(range(10, 500), mode)
