"""Which table is merged next, of many."""

from __future__ import annotations

import random
import time

import pytest

from handlers.spark.engine.merge_scheduler import MergeQueue
from handlers.spark.engine.table.waiting import Waiting
from handlers.spark.options import MergeOptions


class Table:
    """One that waits since a moment (seconds since 1970), and counts how often it is asked."""

    def __init__(self, since: float | None, rows: int = 1) -> None:
        self.name = "t"
        self.faults = 0
        self.replaced = 0
        self.fault: str | None = None
        self.asked = 0
        self.since = since
        self.rows = rows

    @property
    def waiting(self) -> Waiting:
        self.asked += 1
        return Waiting(1, self.rows, 1, self.since)

    def merge(self) -> None:
        self.since = None


def queue(threads: int = 2, **options: object) -> MergeQueue:
    return MergeQueue(MergeOptions.model_validate({"max_age": "10s", **options}), threads=threads)


def merge(of: MergeQueue, table: Table, *, seconds: float = 1.0) -> None:
    """As whoever is done with it, and has merged everything."""
    table.since = None
    of.done(table, seconds=seconds)


def put(of: MergeQueue, table: Table, *, age: float = 60.0) -> None:
    table.since = time.time() - age
    of.offer(table)


def heavy(of: MergeQueue) -> Table:
    """A table whose last merge took a minute; it waits again."""
    table = Table(time.time() - 7200)
    of.offer(table)
    of.take(table)
    merge(of, table, seconds=60.0)
    put(of, table, age=3600)
    return table


def test_heavy_tables_leave_a_slot_to_light_ones_that_are_due() -> None:
    tables = queue(threads=2)
    one, two = heavy(tables), heavy(tables)
    light = Table(time.time() - 60)
    tables.offer(light)
    first, wait = tables.first()
    assert wait <= 0
    assert first is one  # the oldest, while both slots are free
    tables.take(one)
    assert tables.first()[0] is light  # though the second heavy one waits for longer
    tables.take(light)
    merge(tables, light)
    first, wait = tables.first()
    assert wait <= 0
    assert first is two  # a slot that no light one needs is not left empty


def test_with_one_slot_heavy_tables_have_their_turn_as_all_others() -> None:
    tables = queue(threads=1)
    one = heavy(tables)
    tables.offer(Table(time.time() - 60))
    assert tables.first()[0] is one


def test_a_table_that_was_merged_quickly_is_not_heavy_any_more() -> None:
    tables = queue(threads=2)
    one, two = heavy(tables), heavy(tables)
    for table in (one, two):
        tables.take(table)
        merge(tables, table, seconds=1.0)
        put(tables, table, age=3600)
    tables.offer(Table(time.time() - 60))
    tables.take(one)
    assert tables.first()[0] is two


def test_a_queue_of_many_asks_no_more_tables_than_one_of_few() -> None:
    """What is offered, begun and ended among 10,000 tables costs what it costs among 100."""

    def asked(count: int) -> int:
        tables = queue()
        all_ = [Table(time.time() - 60 - number) for number in range(count)]
        for table in all_:
            tables.offer(table)
            table.asked = 0
        for _ in range(50):
            first, _ = tables.first()
            assert isinstance(first, Table)
            tables.take(first)
            tables.offer(Table(time.time()))
            merge(tables, first)
            put(tables, first)
        return sum(table.asked for table in all_)

    assert asked(10_000) == asked(100)


@pytest.mark.parametrize("seed", range(20))
def test_the_next_is_the_one_that_waits_longest_whatever_was_offered_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic
    started = clock() - 60 if seed % 2 else 0.0  # rows may have waited for longer than the machine runs
    monkeypatch.setattr(time, "monotonic", lambda: clock() - started)
    chance = random.Random(seed)
    tables = queue(threads=3, max_rows=100)
    all_ = [Table(None) for _ in range(20)]
    running: list[Table] = []
    for _ in range(300):
        table = chance.choice(all_)
        if table in running:
            running.remove(table)
            table.since = chance.choice([None, time.time() - chance.uniform(20, 4000)])
            table.rows = chance.choice([1, 100])
            tables.done(table, seconds=1.0)
        elif table.since is None:
            table.rows = chance.choice([1, 100])
            put(tables, table, age=chance.uniform(20, 4000))
        elif chance.random() < 0.3:
            table.since -= 1000  # it took over what another sink had
            tables.offer(table)
        elif chance.random() < 0.1:
            table.since = None  # its owner merged it for a batch
        else:
            first, wait = tables.first()
            waiting = [each for each in all_ if each.since is not None and each not in running]
            assert first is min(waiting, key=lambda each: each.since - 10 * (each.rows == 100))
            assert wait <= 0
            tables.take(first)
            running.append(first)


@pytest.mark.parametrize(
    ("seconds", "replaced", "expected"),
    [
        (0.0, 0, 2.0),
        (0.05, 0, 2.0),
        (0.2, 0, 4.0),
        (3.0, 0, 10.0),
        (0.05, 3 * 2**20, 6.0),
        (0.05, 2**30, 10.0),
    ],
)
def test_rows_wait_longer_if_their_table_costs_more(seconds: float, replaced: int, expected: float) -> None:
    of, table = queue(max_age=None), Table(None)
    put(of, table, age=0.0)
    assert of.first()[1] == pytest.approx(2.0, abs=0.5)
    table.replaced = replaced
    for _ in range(2):
        of.take(table)
        merge(of, table, seconds=seconds)
        put(of, table, age=0.0)
    assert of.first()[1] == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("seconds", "expected"), [((3.0,), 2.0), ((0.05, 3.0), 2.0), ((3.0, 0.2), 4.0)])
def test_one_slow_merge_does_not_let_rows_wait(seconds: tuple[float, ...], expected: float) -> None:
    of, table = queue(max_age=None), Table(None)
    put(of, table, age=0.0)
    for each in seconds:
        of.take(table)
        merge(of, table, seconds=each)
        put(of, table, age=0.0)
    assert of.first()[1] == pytest.approx(expected, abs=0.5)
