"""Records count as finished in an order that a crash may cut anywhere."""

from __future__ import annotations

from building import assignment, chunk, record
from hypothesis import given
from hypothesis import strategies as st
from row_building import in_partition

from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.finish_order import FinishOrder, SharedRecord
from worker.units.sharding import ShardChunk

SHARDS = range(4)
RECORDS = st.lists(
    st.tuples(st.integers(0, 1), st.sets(st.sampled_from(SHARDS), min_size=1, max_size=3)),
    min_size=1,
    max_size=12,
)
"""(partition, the shards that have a part of it)."""


class Stage:
    """Records of two partitions whose parts are done shard by shard, each shard in its order."""

    def __init__(self, records: list[tuple[int, set[int]]]) -> None:
        self.order = FinishOrder()
        self.partitions = [assignment(0), assignment(1)]
        self.records = records
        offsets = [0, 0]
        self.chunks: list[Chunk] = []
        self.shared: list[dict[int, SharedRecord]] = []
        self.left: list[list[int]] = [[] for _ in SHARDS]
        for number, (partition, shards) in enumerate(records):
            one = in_partition(record(offsets[partition]), partition)
            piece = chunk(self.partitions[partition], [one])
            parts = SharedRecord(piece, one.offset(), parts=len(shards), changes=len(shards))
            self.shared.append({one.offset(): parts} if len(shards) > 1 else {})
            self.chunks.append(piece)
            offsets[partition] += 1
            for shard in shards:
                self.left[shard].append(number)
        self.done: list[set[int]] = [set() for _ in records]

    def step(self, shard: int) -> int:
        """The shard does its next part. How many records count as finished by it."""
        if not self.left[shard]:
            return 0
        number = self.left[shard].pop(0)
        self.done[number].add(shard)
        return self.part(number, shard).finish(self.chunks[number].messages)

    def part(self, number: int, shard: int) -> ShardChunk:
        """What the shard has of the record."""
        whole = self.chunks[number]
        return ShardChunk(
            whole,
            whole.messages,
            [],
            [0],
            table=None,
            shard=shard,
            shared=self.shared[number],
            order=self.order,
        )

    def finished(self, of: Assignment | None = None) -> set[int]:
        return {
            n for n, piece in enumerate(self.chunks) if piece.run.complete and of in (None, piece.assignment)
        }

    def expected(self, gone: set[int]) -> set[int]:
        """Those that are done, and no record before them in a shard of theirs is unfinished."""
        found: set[int] = set()
        for number, (partition, shards) in enumerate(self.records):
            before = [
                earlier
                for earlier in range(number)
                if self.records[earlier][1] & shards and self.records[earlier][0] not in gone
            ]
            if partition not in gone and self.done[number] == shards and found.issuperset(before):
                found.add(number)
        return found


@given(records=RECORDS, steps=st.lists(st.sampled_from(SHARDS), max_size=40))
def test_a_record_counts_when_all_its_parts_and_all_before_it_in_their_shards_do(
    records: list[tuple[int, set[int]]], steps: list[int]
) -> None:
    stage = Stage(records)
    counted = 0
    for shard in steps:
        counted += stage.step(shard)
        assert stage.finished() == stage.expected(set())
        assert counted == len(stage.finished())
    for shard in SHARDS:
        while stage.left[shard]:
            counted += stage.step(shard)
    assert counted == len(records)
    assert stage.order.held_back == 0
    assert not any(stage.order.holds(shard) for shard in SHARDS)


@given(
    records=RECORDS,
    steps=st.lists(st.sampled_from(SHARDS), max_size=40),
    later=st.lists(st.sampled_from(SHARDS), max_size=40),
)
def test_a_partition_that_left_holds_nobody_back_and_nothing_of_it_counts_any_more(
    records: list[tuple[int, set[int]]], steps: list[int], later: list[int]
) -> None:
    stage = Stage(records)
    for shard in steps:
        stage.step(shard)
    before = stage.finished(stage.partitions[0])
    others = stage.finished(stage.partitions[1])
    stage.partitions[0].forgotten = True
    counted = stage.order.forget({stage.partitions[0]})
    assert stage.finished(stage.partitions[1]) == stage.expected({0})
    assert counted == len(stage.expected({0}) - others)
    for shard in later:
        stage.step(shard)
        assert stage.finished(stage.partitions[1]) == stage.expected({0})
    for shard in SHARDS:
        while stage.left[shard]:
            stage.step(shard)
    assert stage.finished(stage.partitions[0]) == before
    assert stage.order.held_back == 0


class ForgottenAtTheLastMoment:
    """In place of the lock: the partition is forgotten by the fetcher's thread just before it is had."""

    def __init__(self, of: Assignment) -> None:
        self._of = of

    def __enter__(self) -> None:
        self._of.forgotten = True

    def __exit__(self, *_: object) -> None:
        pass


def test_a_part_that_is_done_while_its_partition_is_forgotten_holds_nothing_back() -> None:
    """It would hold back all that its shard does from then on: nobody waits for the record's other part."""
    stage = Stage([(0, {0, 1}), (1, {0})])
    stage.order._lock = ForgottenAtTheLastMoment(stage.partitions[0])  # type: ignore[assignment]
    assert stage.step(0) == 0
    assert not stage.order.holds(0)
    assert stage.order.held_back == 0
    assert stage.step(0) == 1
