"""Two workers with the same changes, whatever they do: each change lands in one segment, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_lab import MemoryFiles, Place, change, place_of, places_in, take

from handlers import Change
from handlers.rows import shard_of
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import FilesError

FOLDER = "/lake/orders/_binlane/pending"
PARTITIONS = (0, 1)


@dataclass
class Worker:
    """Reads its partitions from a position on and hands on batches of the table, or of its shards."""

    log: SegmentLog
    by_shard: bool
    left: list[Change]
    """What it has still to hand on, in source order of each partition."""
    retries: tuple[list[Change], int | None] | None = field(default=None)
    """A batch that failed: it comes again, first."""

    def next_batch(self, size: int, pick: int) -> tuple[list[Change], int | None]:
        if self.retries is not None:
            batch, self.retries = self.retries, None
            return batch
        if not self.by_shard:
            return self.left[:size], None
        # In row order a change of the whole table waits for all before it, and all after it waits.
        end = next((at for at, one in enumerate(self.left) if shard_of(one) is None), len(self.left))
        if end == 0:
            return self.left[:1], None
        shards = sorted({shard for one in self.left[:end] if (shard := shard_of(one)) is not None})
        shard = shards[pick % len(shards)]
        return [one for one in self.left[:end] if shard_of(one) == shard][:size], shard


class TwoWorkers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.source: list[Change] = []
        self.workers: list[Worker] = []

    @initialize(
        source=st.lists(
            st.tuples(
                st.sampled_from(PARTITIONS),
                st.integers(1, 3),
                st.integers(1, 4),
                st.booleans(),
                st.booleans(),
            ),
            min_size=1,
            max_size=30,
        ),
        by_shard=st.booleans(),
    )
    def begin(self, source: list[tuple[int, int, int, bool, bool]], by_shard: bool) -> None:
        ends = dict.fromkeys(PARTITIONS, (0, 0))
        for partition, gap, row, is_same_record, is_ddl in source:
            offset, index = ends[partition]
            ends[partition] = (offset, index + 1) if is_same_record else (offset + gap, 0)
            offset, index = ends[partition]
            one = change(offset, partition=partition, index=index, row=row, ddl=is_ddl and row == 1)
            self.source.append(one)
        for _ in range(2):
            self.workers.append(Worker(SegmentLog(self.files, FOLDER), by_shard, list(self.source)))
            self.workers[-1].log.load()

    @rule(who=st.integers(0, 1), size=st.integers(1, 6), pick=st.integers(0, 63))
    def hand_on_a_batch(self, who: int, size: int, pick: int) -> None:
        self._hand_on(self.workers[who], size, pick)

    @rule(who=st.integers(0, 1), size=st.integers(1, 6), pick=st.integers(0, 63))
    def hand_on_a_batch_while_the_store_loses_its_answer(self, who: int, size: int, pick: int) -> None:
        self.files.fails_after_put = True
        self._hand_on(self.workers[who], size, pick)
        self.files.fails_after_put = False

    @rule(who=st.integers(0, 1), back=st.integers(0, 30), by_shard=st.booleans())
    def start_again_from_an_earlier_position(self, who: int, back: int, by_shard: bool) -> None:
        """Positions are committed up to where all before is finished."""
        applied = set(self._applied())
        first = next((at for at, one in enumerate(self.source) if place_of(one) not in applied), None)
        start = max(0, (len(self.source) if first is None else first) - back)
        worker = Worker(SegmentLog(self.files, FOLDER), by_shard, self.source[start:])
        worker.log.load()
        self.workers[who] = worker

    @precondition(lambda self: any(worker.log.last > 1 for worker in self.workers))
    @rule(who=st.integers(0, 1), number=st.integers(1, 30))
    def remove_merged_segments(self, who: int, number: int) -> None:
        self.workers[who].log.remove(number)

    @rule(who=st.integers(0, 1), batches=st.integers(2, 4))
    def run_ahead_and_remove(self, who: int, batches: int) -> None:
        """So the other worker knows only numbers that were used up long ago."""
        for _ in range(batches):
            if self.workers[who].left:
                self._hand_on(self.workers[who], 2, 0)
        self.workers[who].log.remove(self.workers[who].log.last - 1)

    @invariant()
    def each_change_is_in_one_segment(self) -> None:
        applied = self._applied()
        assert len(applied) == len(set(applied))

    @invariant()
    def changes_of_a_row_are_in_source_order(self) -> None:
        at = {place: number for number, place in enumerate(self._applied())}
        for partition in PARTITIONS:
            last: dict[int | None, int] = {}
            for one in self.source:
                if one.partition != partition or place_of(one) not in at:
                    continue
                shard = shard_of(one)
                # A change of the whole table comes after all before it, and before all after it.
                before = [last.get(shard, -1), last.get(None, -1)] if shard is not None else [*last.values()]
                assert all(each < at[place_of(one)] for each in before)
                last[shard] = at[place_of(one)]

    @invariant()
    def a_log_looks_the_same_to_whoever_loads_it(self) -> None:
        log = SegmentLog(self.files, FOLDER)
        log.load()
        applied = set(self._applied())
        assert log.last == len(self._numbered())
        for one in self.source:
            for shard in (None, shard_of(one)):
                assert (not log.marks.beyond([one], shard)[0]) == (place_of(one) in applied)

    def teardown(self) -> None:
        for worker in self.workers:
            while worker.left:
                self._hand_on(worker, 7, 0)
        assert sorted(self._applied()) == sorted(map(place_of, self.source))

    def _hand_on(self, worker: Worker, size: int, pick: int) -> None:
        batch, shard = worker.next_batch(size, pick)
        try:
            take(worker.log, batch, shard)
        except FilesError:
            worker.retries = batch, shard
            return
        self._what_was_removed_stays_removed()  # before anybody loads the log, which clears up
        done = set(map(place_of, batch))
        assert done <= set(self._applied())
        worker.left = [one for one in worker.left if place_of(one) not in done]

    def _what_was_removed_stays_removed(self) -> None:
        names = {entry.name for entry in self.files.list(FOLDER)} - {"_removed"}
        used_up = [int(entry.name) for entry in self.files.list(f"{FOLDER}/_removed")]
        there = range(max(used_up, default=0) + 1, len(self._numbered()) + 1)
        assert names == {f"{number:020d}.parquet" for number in there}

    def _numbered(self) -> list[str]:
        return sorted(path for path in self.files.first_put if path.endswith(".parquet"))

    def _applied(self) -> list[Place]:
        """The changes in all segments that there ever were; a number counts once."""
        return [place for path in self._numbered() for place in places_in(self.files.first_put[path])]


TestTwoWorkers = TwoWorkers.TestCase
TestTwoWorkers.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
