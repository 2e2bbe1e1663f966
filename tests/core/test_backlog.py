"""What is held until the lanes have room: in pieces that fit, and none of them empty."""

from __future__ import annotations

import pytest
from building import Clock, assignment, chunk, delivery, record, unit
from hypothesis import given
from hypothesis import strategies as st
from lane_building import lanes_of, taken
from row_building import row_unit, rows
from row_stepping import handled

from worker.fetching.backpressure import Backlog
from worker.units.chunk import RECORD_OVERHEAD
from worker.units.unit import Unit

MAX_RECORDS, MAX_BYTES = 10, 4_000


@pytest.mark.parametrize("order", ["table", "row"])
def test_a_record_larger_than_all_lanes_may_hold_leaves_no_batch_without_records(order: str) -> None:
    """The batches after it have positions, and their rows are spread."""
    of = assignment()
    table: Unit = row_unit() if order == "row" else unit("orders")
    lanes = lanes_of(Clock(), count=1, max_records=MAX_RECORDS, max_bytes=MAX_BYTES)
    backlog = Backlog(lanes, MAX_RECORDS, MAX_BYTES)
    large = record(0, data=[{"id": "1", "at": "x" * MAX_BYTES}], mysqlType={"id": "bigint"})
    backlog.add(delivery((table, chunk(of, [large]))))
    if order == "row":
        assert handled(lanes) == [[0]]
    else:
        work = taken(lanes, 0)
        lanes.finish(0, work)
    assert backlog.offer()
    assert backlog.add(delivery((table, chunk(of, [rows(1, 1)]))))
    if order == "row":
        assert handled(lanes) == [[1]]
        return
    work = taken(lanes, 0)
    assert work.decode(lambda *_: False) is None
    assert work.batch(0, work.total, 1).positions == {of.partition: (1, 1)}


@given(
    polls=st.lists(st.lists(st.sampled_from([1, 500, 3_000, 5_000]), min_size=1, max_size=12), max_size=3),
)
def test_pieces_hold_every_record_once_in_order_within_the_bounds(polls: list[list[int]]) -> None:
    of = assignment()
    tables = [unit(f"t{number}", lane=number % 2) for number in range(len(polls))]
    parts, offset = [], 0
    for table, sizes in zip(tables, polls, strict=True):
        records = [record(offset + n, value=b"x" * size) for n, size in enumerate(sizes)]
        offset += len(sizes)
        parts.append((table, chunk(of, records)))
    pieces = delivery(*parts).pieces(MAX_RECORDS, MAX_BYTES)
    found = [
        (to, message.offset()) for piece in pieces for to, each in piece.parts for message in each.messages
    ]
    assert found == [(to, message.offset()) for to, whole in parts for message in whole.messages]
    for piece in pieces:
        assert all(each.messages for _, each in piece.parts), "only a barrier's place has no record"
        count = sum(len(each.messages) for _, each in piece.parts)
        assert count == 1 or piece.bytes <= MAX_BYTES
        assert all(records <= MAX_RECORDS for records in piece.records.values())
        assert piece.bytes == sum(
            len(message) + RECORD_OVERHEAD for _, each in piece.parts for message in each.messages
        )


def test_only_the_last_piece_of_a_poll_has_its_last_records() -> None:
    own, of = unit("orders"), assignment()
    poll = delivery((own, chunk(of, [record(offset) for offset in range(7)])))
    assert [piece.is_last for piece in poll.pieces(3, 10**9)] == [False, False, True]
    again = poll.pieces(3, 10**9)[0].pieces(2, 10**9)
    assert [piece.is_last for piece in again] == [False, False], "smaller bounds"
    assert not again[-1].without({assignment()}).is_last
