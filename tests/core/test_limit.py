"""A handler's limit: no more calls at once, no more rows in any time, and no table waits for long."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.attempts.limit import Limit
from worker.configuration import LimitRule


class Waiter:
    """A table, or one of several shards of it."""

    def __init__(self, table: int) -> None:
        self.table = self.account = table
        self.rows = 0


class World:
    """Units that call, wait, end and leave in any order, on a clock that a test moves."""

    def __init__(self, random: Random, rule: LimitRule) -> None:
        self.random = random
        self.rule = rule
        self.limit = Limit(rule)
        self.now = 0.0
        self.idle = [Waiter(table) for table in range(5) for _ in range(random.choice((1, 1, 4)))]
        self.waiting: list[Waiter] = []
        self.calling: list[Waiter] = []
        self.starts: list[tuple[float, int]] = []
        self.passed_by: dict[int, Counter[int]] = {}
        """Table that waits -> how often each other table got a turn meanwhile."""
        self.upcoming: float | None = None

    def serve(self) -> None:
        upcoming = self.limit.grant(self.now)
        self.upcoming = None if upcoming is None or upcoming[1] == math.inf else upcoming[1]
        for unit in list(self.limit.granted):
            assert self.limit.start(unit, unit.rows, self.now)
            self.waiting.remove(unit)
            for table, others in self.passed_by.items():
                others[unit.table] += table != unit.table
                assert others[unit.table] <= 1, "a table has two turns while another one waits"
            self.passed_by.pop(unit.table, None)
            self.began(unit)
        for unit in self.waiting:
            self.passed_by.setdefault(unit.table, Counter())

    def began(self, unit: Waiter) -> None:
        self.calling.append(unit)
        self.starts.append((self.now, unit.rows))
        assert self.rule.calls is None or len(self.calling) <= self.rule.calls

    def call(self) -> None:
        unit = self.idle.pop(self.random.randrange(len(self.idle)))
        unit.rows = self.random.choice((1, 10, 99, 100, 350))
        if self.limit.start(unit, unit.rows, self.now):
            assert not self.waiting, "it came before those that wait"
            self.began(unit)
        else:
            self.limit.wait(unit, unit.rows, self.now)
            self.waiting.append(unit)

    def end(self) -> None:
        self.idle.append(self.calling.pop(self.random.randrange(len(self.calling))))
        self.limit.ended()

    def leave(self) -> None:
        unit = self.waiting.pop(self.random.randrange(len(self.waiting)))
        self.limit.leave(unit)
        self.idle.append(unit)
        if unit.table not in {each.table for each in self.waiting}:
            del self.passed_by[unit.table]

    def step(self) -> None:
        if self.idle and self.random.random() < 0.5:
            self.call()
        elif self.calling and self.random.random() < 0.6:
            self.end()
        elif self.waiting and self.random.random() < 0.1:
            self.leave()
        elif self.upcoming is not None and self.random.random() < 0.5:
            self.now = max(self.now, self.upcoming)
        else:
            self.now += self.random.choice((0.0, 0.01, 0.3))
        self.serve()

    def finish(self) -> None:
        for _ in range(1_000):
            if self.calling:
                self.end()
            elif self.waiting:
                assert self.upcoming is not None, "they wait for nothing"
                self.now = max(self.now, self.upcoming)
            else:
                break
            self.serve()
        assert not self.waiting, "some wait for ever"


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([LimitRule(calls=1), LimitRule(calls=3), LimitRule(rows_per_second=100)])
    | st.just(LimitRule(calls=2, rows_per_second=100)),
)
def test_calls_and_rows_stay_within_it_and_each_table_gets_its_turn(random: Random, rule: LimitRule) -> None:
    world = World(random, rule)
    for _ in range(120):
        world.step()
    world.finish()
    assert (world.limit.waiting, world.limit.granted) == (0, {})
    rate = rule.rows_per_second
    if rate is not None:
        for first, (begin, _) in enumerate(world.starts):
            total = largest = 0
            for end, rows in world.starts[first:]:
                total, largest = total + rows, max(largest, rows)
                assert total <= rate * (end - begin) + max(rate, largest) + 1e-6
    free = [Waiter(-1) for _ in range(rule.calls or 0)]
    assert all(world.limit.start(each, 1, world.now + 1_000.0) for each in free), "a permit is lost"


def test_permission_that_is_not_used_yet_counts() -> None:
    limit = Limit(LimitRule(rows_per_second=100))
    first, units = Waiter(0), [Waiter(table) for table in (1, 2, 3)]
    assert limit.start(first, 100, now=0.0)
    for each in units:
        assert not limit.start(each, 100, now=0.0)
        limit.wait(each, 100, now=0.0)
    assert limit.grant(5.0) == (units[1], math.inf), "though a second's rows would be there for each"
    assert list(limit.granted) == units[:1]
    assert limit.start(units[0], 100, now=5.0)
    assert limit.grant(5.0) == (units[1], 6.0)


def test_a_changed_limit_counts_the_calls_that_run() -> None:
    limit, units = Limit(LimitRule(calls=2)), [Waiter(table) for table in range(4)]
    assert [limit.start(each, 1, now=0.0) for each in units[:2]] == [True, True]
    limit.change(LimitRule(calls=1))
    limit.ended()
    assert not limit.start(units[2], 1, now=0.0)
    limit.change(LimitRule(calls=3))
    assert [limit.start(each, 1, now=0.0) for each in units[:3]] == [True, True, False]
    limit.change(None)
    assert limit.start(units[3], 1, now=0.0)


@pytest.mark.parametrize("rule", [LimitRule(calls=1), LimitRule(rows_per_second=1)])
def test_the_time_that_units_wait_is_summed_up(rule: LimitRule) -> None:
    limit, first, second = Limit(rule), Waiter(0), Waiter(1)
    assert limit.start(first, 1, now=10.0)
    limit.wait(second, 1, now=10.0)
    assert limit.waiting == 1
    limit.ended()
    limit.grant(12.5)
    assert (limit.waiting, limit.waited) == (0, 2.5)
