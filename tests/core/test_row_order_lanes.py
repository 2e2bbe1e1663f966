"""Tables in row order in the lanes: rows spread over shards, barriers of the table, bounds."""

from __future__ import annotations

import pytest
from building import Clock, assignment, ddl
from lane_building import lanes_of, offsets
from row_building import key_change, no_rows, row_unit, rows, truncate
from row_stepping import decoded, dispatched, done, handled, keys, offered, stepped

from handlers.rows import SHARDS, shard_of
from offsets.types import Checkpoint
from worker.formats.interface import Record
from worker.units.chunk import RECORD_OVERHEAD
from worker.units.unit import UnitState


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_rows_of_different_keys_run_side_by_side_and_those_of_one_key_in_order(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock, count=3), row_unit(batch={"max_records": 1}), assignment()
    offered(lanes, table, *(rows(n, n % 2) for n in range(4)), of=of)
    dispatched(lanes)
    first, second = decoded(lanes, 0), decoded(lanes, 1)
    assert sorted([keys(first), keys(second)]) == [[0], [1]]
    assert not any(lane.ready for lane in lanes.lanes), "the other rows of both keys wait"
    done(lanes, first)
    assert keys(decoded(lanes, 0)) == keys(first)


def test_a_batch_tells_its_shard_and_holds_nothing_else(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    offered(lanes, table, *(rows(n, n) for n in range(500)), of=of)
    dispatched(lanes)
    seen = []
    while any(lane.ready for lane in lanes.lanes):
        work = decoded(lanes)
        batch = work.batch(0, work.total, 1)
        assert {shard_of(change) for change in batch.changes} == {batch.shard}
        piece = work.batch(0, 1, 2)
        assert piece.shard == batch.shard
        seen.append(batch.shard)
        done(lanes, work)
    assert sorted(seen, key=str) == sorted(range(SHARDS), key=str)


def test_a_record_of_several_rows_is_finished_with_the_last_of_them_and_what_comes_behind_it(
    clock: Clock,
) -> None:
    lanes, table, of = lanes_of(clock, count=3), row_unit(), assignment()
    offered(lanes, table, rows(0, 0, 1, 2, 0), rows(1, 1), of=of)
    size = lanes.lanes[0].bytes
    dispatched(lanes)
    works = [decoded(lanes, lane) for lane in range(3)]
    assert sorted(map(keys, works)) == [[0, 0], [1, 1], [2]]
    assert sum(piece.bytes for work in works for piece in work.chunks) < size + 2 * 256 + 3
    works.sort(key=lambda work: keys(work)[0])
    counts = []
    for lane, work in enumerate(works):
        counts.append(work.finish_records(work.records))
        lanes.finish(lane, work)
        assert (lanes.lanes[0].records > 0) == (lane < 2)
    assert counts == [0, 0, 2], "after a crash row 1 would come in its old state, so it must come again"
    assert of.tracker.checkpoint() == Checkpoint(2)
    assert lanes.lanes[0].bytes == lanes.room.spread == 0


def test_a_record_without_rows_is_finished_when_it_is_spread(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    offered(lanes, table, no_rows(0), rows(1, 1), no_rows(2), of=of)
    dispatched(lanes)
    assert lanes.lanes[0].records == 1
    assert of.tracker.unfinished == 1
    assert handled(lanes) == [[1]]
    assert of.tracker.checkpoint() == Checkpoint(3)


@pytest.mark.parametrize(
    ("barrier", "alone"),
    [
        (ddl(2), True),
        (truncate(2), True),
        (truncate(2), False),  # known only when it is decoded
        (key_change(2, 1, 2), False),
        (rows(2, 1, key=None), False),
        (rows(2, 1, key=["at"]), False),
    ],
    ids=["ddl", "truncate", "truncate not routed", "key change", "no key", "other key"],
)
def test_what_concerns_the_whole_table_runs_alone_between_what_came_before_and_after(
    clock: Clock, barrier: Record, alone: bool
) -> None:
    lanes, table, of = lanes_of(clock, count=3), row_unit(batch={"max_wait": 60.0}), assignment()
    before, after = [rows(0, 1), rows(1, 2)], [rows(3, 1), rows(4, 5)]
    if alone:
        offered(lanes, table, *before, of=of)
        offered(lanes, table, barrier, of=of, alone=True)
        offered(lanes, table, *after, of=of)
    else:
        offered(lanes, table, *before, barrier, *after, of=of)
    dispatched(lanes)
    works = [decoded(lanes, 0), decoded(lanes, 1)]  # at once: who waits for them does not wait 60 s
    assert sorted(map(offsets, works)) == [[0], [1]]
    assert table.state is UnitState.WAITING_FOR_OTHERS
    done(lanes, works[0], 0)
    assert not any(lane.ready for lane in lanes.lanes)
    done(lanes, works[1], 1)
    whole = decoded(lanes)
    assert offsets(whole) == [2]
    assert whole.batch(0, whole.total, 1).shard is None
    assert not any(lane.ready for lane in lanes.lanes)
    done(lanes, whole)
    dispatched(lanes)
    clock.now += 60.0
    assert sorted([offsets(decoded(lanes, 0)), offsets(decoded(lanes, 1))]) == [[3], [4]]


def test_barriers_in_a_row_run_one_after_the_other(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    records = [key_change(0, 1, 2), rows(1, 2), key_change(2, 2, 3), key_change(3, 3, 4), rows(4, 4)]
    offered(lanes, table, *records, rows(5, 9), of=of)
    batches = handled(lanes)
    assert batches[:4] == [[0], [1], [2], [3]]
    assert sorted(batches[4:]) == [[4], [5]]
    assert of.tracker.checkpoint() == Checkpoint(6)


def test_a_table_may_lose_its_key_and_get_another_one(clock: Clock) -> None:
    """After a barrier any key will do: rows of one key are told from those of another only since then."""
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    keyless = [rows(2, 5, key=None), rows(3, 6, key=None)]
    offered(lanes, table, rows(0, 1), key_change(1, 1, 2), *keyless, rows(4, 7, 8), rows(5, 9), of=of)
    assert handled(lanes) == [[0], [1], [2, 3], [4], [5]]


def test_a_table_without_a_key_keeps_its_own_order(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    offered(lanes, table, *(rows(n, n, key=None) for n in range(3)), of=of)
    assert handled(lanes) == [[0, 1, 2]]


def test_another_tables_barrier_holds_nobody_up(clock: Clock) -> None:
    lanes, of = lanes_of(clock, count=3), assignment()
    table, other = row_unit("a"), row_unit("b")
    offered(lanes, table, rows(0, 1, table="a"), of=of)
    dispatched(lanes)
    work = decoded(lanes, 0)
    offered(lanes, table, ddl(1, "a"), of=of, alone=True)
    offered(lanes, other, rows(2, 1, table="b"), of=of)
    dispatched(lanes, 1)
    done(lanes, decoded(lanes, 1), 1)
    assert table.state is UnitState.WAITING_FOR_OTHERS
    done(lanes, work)
    assert offsets(decoded(lanes)) == [1]


def test_shards_gather_for_max_wait_from_when_their_rows_were_fetched(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(batch={"max_wait": 5.0}), assignment()
    offered(lanes, table, rows(0, 1), of=of)
    dispatched(lanes)
    clock.now += 4.0
    offered(lanes, table, rows(1, 1), of=of)
    dispatched(lanes)
    assert not any(lane.ready for lane in lanes.lanes)
    clock.now += 1.0
    assert offsets(decoded(lanes)) == [0, 1]


def test_rows_that_are_left_in_a_shard_do_not_gather_while_a_barrier_waits_for_them(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(batch={"max_wait": 60.0, "max_records": 2}), assignment()
    offered(lanes, table, *(rows(n, 1) for n in range(3)), ddl(3), of=of)
    dispatched(lanes)
    assert handled(lanes) == [[0, 1], [2], [3]]


def test_no_more_than_a_share_of_the_bytes_is_decoded_ahead_but_a_batch_of_each_table(clock: Clock) -> None:
    """Rows as Python objects take more than their records did."""
    of, size = assignment(), len(rows(10, 10)) + RECORD_OVERHEAD
    lanes = lanes_of(clock, count=3, max_bytes=8 * 10 * size)  # so 10 records may be spread
    busy, other = row_unit("a", batch={"max_records": 4}), row_unit("b", batch={"max_records": 4})
    offered(lanes, busy, *(rows(n, n) for n in range(10, 22)), of=of)
    dispatched(lanes)
    offered(lanes, busy, *(rows(n, n) for n in range(22, 34)), of=of)
    assert busy.state is UnitState.WAITING_FOR_OTHERS
    offered(lanes, other, rows(34, 1), of=of)
    assert other.state is UnitState.READY, "a table that has less than a batch may go on"
    while busy.state is UnitState.WAITING_FOR_OTHERS:
        assert lanes.room.spread >= 10 * size
        stepped(lanes)
    assert 9 * size <= lanes.room.spread < 10 * size
    assert {offset for batch in handled(lanes) for offset in batch} >= set(range(22, 35))
    assert of.tracker.checkpoint() == Checkpoint(35)


def test_a_table_that_waits_for_room_goes_on_when_another_tables_rows_are_done(clock: Clock) -> None:
    of, size = assignment(), len(rows(10, 3)) + RECORD_OVERHEAD
    lanes = lanes_of(clock, count=4, max_bytes=8 * 6 * size)
    slow, other = row_unit("a", batch={"max_records": 2}), row_unit("b", batch={"max_records": 2})
    offered(lanes, other, *(rows(n, 3) for n in range(10, 14)), of=of)
    dispatched(lanes)
    work = decoded(lanes)
    offered(lanes, slow, rows(14, 1), rows(15, 2), of=of)
    dispatched(lanes, 1)
    offered(lanes, slow, rows(16, 1), of=of)
    running = [decoded(lanes, 2), decoded(lanes, 3)]
    assert {each.unit.table for each in running} == {slow.table}
    assert slow.state is UnitState.WAITING_FOR_OTHERS
    done(lanes, work)
    assert slow.state is UnitState.READY


@pytest.mark.parametrize("ending", ["tried again later", "tried again at once", "halted"])
def test_a_table_that_waits_for_what_is_held_back_goes_on_when_a_batch_is_done_in_part(
    clock: Clock, ending: str
) -> None:
    """The part that is done was what held the other shard's records back."""
    lanes, table, of = lanes_of(clock, count=3, max_records=3), row_unit(), assignment()
    offered(lanes, table, rows(0, 0, 1), rows(1, 1), rows(2, 0), of=of)
    dispatched(lanes)
    works = sorted((decoded(lanes, lane) for lane in range(2)), key=keys)
    assert [offsets(work) for work in works] == [[0, 2], [0, 1]]
    lane_of = {id(lane.running): lane.number for lane in lanes.lanes}
    done(lanes, works[1], lane_of[id(works[1])])
    offered(lanes, table, rows(3, 1), of=of)
    dispatched(lanes, lane_of[id(works[1])])
    done(lanes, decoded(lanes, lane_of[id(works[1])]), lane_of[id(works[1])])
    offered(lanes, table, rows(4, 5), of=of)
    assert table.state is UnitState.WAITING_FOR_OTHERS, "three parts are held back, as many as a lane holds"
    first = lane_of[id(works[0])]
    works[0].finish_records(1)
    if ending == "halted":
        lanes.halt(first, works[0], "for good")
    else:
        lanes.give_back(first, works[0], delay=60.0 * (ending == "tried again later"))
    assert table.state is UnitState.READY
