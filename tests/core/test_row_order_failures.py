"""Tables in row order in the lanes when batches fail, tables halt and partitions leave."""

from __future__ import annotations

import pytest
from building import Clock, assignment, chunk, ddl, delivery
from lane_building import closed, lanes_of, offsets, taken
from row_building import in_partition, key_change, row_unit, rows, truncate
from row_stepping import decoded, dispatched, done, handled, keys, never, offered
from stepping import SteppedWithdrawal

from offsets.types import Checkpoint
from worker.units.sharding import spread


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_halted_shard_stops_its_own_rows_until_a_barrier_stops_the_table(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock, max_records=8), row_unit(), assignment()
    offered(lanes, table, rows(0, 1), rows(1, 2), of=of)
    dispatched(lanes)
    work = decoded(lanes)
    bad, good = (1, 2) if keys(work) == [1] else (2, 1)
    lanes.halt(0, work, "it cannot be")
    assert table.halted
    offered(lanes, table, rows(2, good), rows(3, bad), rows(4, 7), of=of)
    assert sorted(offset for batch in handled(lanes) for offset in batch) == [good - 1, 2, 4]
    offered(lanes, table, ddl(5), of=of, alone=True)
    offered(lanes, table, rows(6, 7), of=of)
    assert handled(lanes) == []
    assert not lanes.seen.dead_end(), "nothing waits for room"
    assert not lanes.offer(delivery((table, chunk(of, [rows(n, n) for n in range(7, 12)]))))
    assert lanes.seen.dead_end()


def test_a_failed_shard_is_tried_again_while_the_others_go_on(clock: Clock) -> None:
    lanes, table, of = lanes_of(clock), row_unit(), assignment()
    offered(lanes, table, rows(0, 1), rows(1, 2), of=of)
    dispatched(lanes)
    failed = decoded(lanes)
    lanes.give_back(0, failed, delay=5.0, error="it failed")
    done(lanes, decoded(lanes))
    clock.now += 5.0
    again = taken(lanes, 0)
    assert again is failed
    done(lanes, again)
    assert not table.halted
    assert table.members() == (table,)


def test_a_partition_that_leaves_takes_its_rows_out_of_the_shards(clock: Clock) -> None:
    lanes, table = lanes_of(clock, count=3), row_unit()
    leaving, staying = assignment(0), assignment(1)
    offered(lanes, table, rows(0, 1), rows(1, 1, 2), rows(2, 3), of=leaving)
    offered(lanes, table, rows(0, 1), of=staying)
    dispatched(lanes)
    work = decoded(lanes, 0)
    assert lanes.withdraw([table], closed(leaving), 0.0) == ["shop.orders"]
    done(lanes, work)
    stays = staying in {piece.assignment for piece in work.chunks}
    assert handled(lanes) == ([] if stays else [[0]])
    assert lanes.lanes[0].records == lanes.lanes[0].bytes == lanes.room.spread == 0
    assert leaving.tracker.checkpoint() != Checkpoint(3), "what was dropped is not finished"


def test_a_batch_whose_partition_left_while_it_was_decoded_is_not_spread(clock: Clock) -> None:
    lanes, table = lanes_of(clock), row_unit()
    leaving, staying = assignment(0), assignment(1)
    offered(lanes, table, rows(0, 1), key_change(1, 1, 2), rows(2, 3), of=leaving)
    offered(lanes, table, rows(0, 4), of=staying)
    work = taken(lanes, 0)
    assert work.decode(never) is None
    assert lanes.withdraw([table], closed(leaving), 0.0) == ["shop.orders"]
    lanes.spread(0, work, spread(work))
    [left] = handled(lanes) or [[]]
    assert left == [0]
    assert staying.tracker.checkpoint() == Checkpoint(1)
    assert lanes.lanes[0].records == lanes.lanes[0].bytes == lanes.room.spread == 0


def test_a_row_behind_a_shared_record_of_a_partition_that_left_does_not_count_though_it_ran_on(
    clock: Clock,
) -> None:
    """The next owner gets the shared record, and would write the row's old state last."""
    lanes, table, of = lanes_of(clock, count=3), row_unit(batch={"max_records": 1}), assignment()
    for record in (rows(0, 1, 2), rows(1, 1)):
        offered(lanes, table, record, of=of)
        dispatched(lanes)
    part = decoded(lanes)
    done(lanes, part)
    other_part, behind = (decoded(lanes, lane) for lane in (0, 1))
    assert (offsets(other_part), offsets(behind)) == ([0], [1])
    lanes.give_back(0, other_part, delay=5.0, error="it failed")
    assert lanes.withdraw([table], closed(of), 0.0) == ["shop.orders"]
    done(lanes, behind, 1)
    assert of.tracker.checkpoint() == Checkpoint(0)


def test_a_barrier_does_not_overtake_in_counting_what_waits_for_a_partition_to_leave(clock: Clock) -> None:
    """A crash in that moment would repeat rows of before a TRUNCATE, and not the TRUNCATE."""
    lanes, table, other = lanes_of(clock, count=3), row_unit(), row_unit("other", lane=1)
    leaving, staying = assignment(0), assignment(1)
    offered(lanes, other, rows(0, 5, table="other"), of=leaving)
    dispatched(lanes)
    slow = decoded(lanes)
    offered(lanes, table, rows(1, 1, 2), of=leaving)
    offered(lanes, table, in_partition(rows(0, 1), 1), of=staying)
    dispatched(lanes, 1)
    both = decoded(lanes, 1)
    assert keys(both) == [1, 1]
    done(lanes, both, 1)
    offered(lanes, table, in_partition(truncate(1), 1), of=staying, alone=True)
    closed(leaving)
    withdrawal = SteppedWithdrawal(lanes, clock, [table, other], leaving, 30.0)
    assert withdrawal.running is None, "a batch of the other table still runs"
    assert handled(lanes) == []
    assert staying.tracker.checkpoint() == Checkpoint(0)
    done(lanes, slow)
    withdrawal.step()
    assert handled(lanes) == [[1]]
    assert staying.tracker.checkpoint() == Checkpoint(2)
