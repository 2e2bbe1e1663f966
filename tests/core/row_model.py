"""What must hold of tables with barriers and shards: which rows are to be done, and what may begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from row_building import in_partition, key_change, no_rows, rows, statement

from handlers.rows import shard_of
from worker.formats.interface import Record
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.work import Work

__all__ = ["POLLS", "RULES", "TABLES", "Model"]

RULES: list[dict[str, Any]] = [
    {"match": "shop.t0"},
    {"match": "shop.t1", "batch": {"max_records": 3, "max_wait": 4.0}},
    {"match": "shop.t2", "batch": {"max_bytes": 1200}},
    {"match": "shop.t3", "batch": {"max_wait": 7.0}},
]
TABLES = [f"t{number}" for number in range(len(RULES))]
keys = st.integers(0, 9)
RECORDS = st.one_of(
    *[st.tuples(st.just("row"), st.sampled_from(TABLES), st.lists(keys, min_size=1, max_size=1))] * 3,
    st.tuples(st.just("row"), st.sampled_from(TABLES), st.lists(keys, max_size=4)),
    st.tuples(st.just("keyless"), st.sampled_from(TABLES), st.lists(keys, min_size=1, max_size=2)),
    st.tuples(
        st.just("key change"), st.sampled_from(TABLES), st.lists(keys, min_size=2, max_size=2, unique=True)
    ),
    st.tuples(st.just("ddl"), st.sampled_from(TABLES), st.just([])),
    st.tuples(
        st.just("rename"), st.sampled_from(TABLES), st.permutations(TABLES).map(lambda names: names[:2])
    ),
)
POLLS = st.tuples(st.integers(0, 1), st.lists(RECORDS, min_size=1, max_size=8))


@dataclass(eq=False)
class Item:
    """One row, or one record that is a barrier."""

    of: Assignment
    offset: int
    key: int | str | None
    """None: a barrier."""
    tables: set[str]
    done: bool = False

    def before(self, other: Item) -> bool:
        """Whether this one, queued earlier, must be done first."""
        if self.key is None or other.key is None:
            return True
        return self.key == other.key or "keyless" in (self.key, other.key)


class Model:
    def __init__(self, tables: Iterable[str], *, by_row: bool) -> None:
        self.by_row = by_row
        self.items: dict[tuple[Assignment, int], list[Item]] = {}
        """Of each record, one for each change."""
        self.waiting: dict[str, list[Item]] = {name: [] for name in tables}
        """To be done, in order."""
        self.queues: dict[str, list[Item]] = {name: [] for name in self.waiting}
        """All that ever was, in order."""

    def record(self, of: Assignment, offset: int, kind: str, table: str, values: Sequence[Any]) -> Record:
        """A new record of the partition, and what it asks for."""
        return in_partition(self._record(of, offset, kind, table, values), of.partition.partition)

    def _record(self, of: Assignment, offset: int, kind: str, table: str, values: Sequence[Any]) -> Record:
        place = (of, offset)
        if kind in ("row", "keyless"):
            # In order by table a row goes before all others, as one without a key does.
            all_alike = kind == "keyless" or not self.by_row
            self.items[place] = [Item(*place, "keyless" if all_alike else key, {table}) for key in values]
            made = rows(offset, *values, table=table, key=("id",) if kind == "row" else None)
            return made if values else no_rows(offset, table)
        if kind == "key change":
            self.items[place] = [Item(*place, None if self.by_row else "keyless", {table})] * 2
            return key_change(offset, values[0], values[1], table)
        others = {table} if kind == "ddl" else {table, *values}
        self.items[place] = [Item(*place, None, others)]
        if kind == "ddl":
            return statement(offset, f"ALTER TABLE {table} ADD x int", table)
        names = [name for name in values if name != table]
        renames = [f"{one} TO {other}" for one, other in zip([table, *names], names, strict=False)]
        return statement(offset, f"RENAME TABLE {', '.join(renames)}", table)

    def queued(self, what: Delivery) -> None:
        for to, piece in what.parts:
            queue = self.waiting[to.table.name]
            if not piece.messages:
                assert piece.barrier is not None
                assert piece.barrier.home is not to
                home = self.waiting[piece.barrier.home.table.name]
                queue.append(item := next(each for each in reversed(home) if each.of is piece.assignment))
                self.queues[to.table.name].append(item)
            for message in piece.messages:
                queue += (found := list(dict.fromkeys(self.items[piece.assignment, message.offset()])))
                self.queues[to.table.name] += found

    def finished(self, of: Assignment) -> None:
        """No offset of the partition counts as finished before all its rows are done, nor before an earlier
        record of the same row counts: that one would come again after a crash, and this one would not."""
        checkpoint = of.tracker.checkpoint()
        for queue in self.queues.values():
            unfinished: list[Item] = []
            for item in (item for item in queue if item.of is of):
                assert checkpoint is not None
                counts = item.offset < checkpoint.offset or any(
                    first <= item.offset < end for first, end in checkpoint.ahead
                )
                assert item.done or not counts
                assert not counts or not any(each.before(item) for each in unfinished)
                if not counts:
                    unfinished.append(item)

    def begins(self, work: Work, running: Iterable[Work]) -> None:
        """A decoded batch begins; it is one of those `running`."""
        table, bounds = work.unit.table.name, work.unit.table
        assert work.records <= bounds.max_records
        assert work.bytes <= bounds.max_bytes or work.records == 1
        begun: list[Item] = []
        for item in self.left(work):
            assert table in item.tables
            for name in item.tables:
                queue = self.waiting[name]
                earlier = queue[: queue.index(item)]
                assert not [each for each in earlier if each not in begun and each.before(item)]
            if item not in begun:
                begun.append(item)
        if any(item.key is None for item in begun):
            assert len(begun) == work.records == 1
            assert work.batch(0, work.total, 1).shard is None
            others = [each.unit.table.name for each in running if not each.spreads and each is not work]
            assert not begun[0].tables.intersection(others), "a barrier runs by itself"
        elif work.unit.shard is not None:
            changes = work.batch(0, work.total, 1).changes
            assert {shard_of(change) for change in changes} == {work.unit.shard}

    def left(self, work: Work) -> list[Item]:
        """What is to be done of a decoded batch: without what is finished."""
        assert work.changes is not None
        done = work.ends[work.finished - 1] if work.finished else 0
        partitions = {chunk.assignment.partition.partition: chunk.assignment for chunk in work.chunks}
        return [self.items[partitions[c.partition], c.offset][c.index] for c in work.changes[done:]]

    def finish(self, work: Work, count: int) -> None:
        """Its first so many records are finished."""
        if work.spreads:
            return
        before = self.left(work)
        work.finish_records(count)
        for item in dict.fromkeys(before[: len(before) - len(self.left(work))]):
            assert not item.done
            item.done = True
            for name in item.tables:
                self.waiting[name].remove(item)

    def give_up(self, work: Work, *, but: Work | None = None) -> None:
        """What is left of it of partitions that are gone never runs again; `but`: its head, which runs on."""
        if work.spreads:  # nothing of it has begun
            return
        if work.changes is None:
            work.decode(lambda _record, _fault: False)
        mine = {item for item in self.left(work) if item.of.closed}
        if but is not None:
            mine.difference_update(self.left(but))
        for queue in self.waiting.values():
            queue[:] = [item for item in queue if item not in mine]

    def leaves(self, gone: Assignment, running: Iterable[Work]) -> None:
        """What does not run of a partition is forgotten."""
        begun = {item for work in running if not work.spreads for item in self.left(work)}
        for queue in self.waiting.values():
            queue[:] = [item for item in queue if item.of is not gone or item in begun]
