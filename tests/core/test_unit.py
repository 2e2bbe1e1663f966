"""The queue of one table: how batches are cut from it, put back and dropped."""

from __future__ import annotations

from building import Clock, assignment, chunk, ddl, record, unit
from hypothesis import given
from hypothesis import strategies as st
from lane_building import lanes_of
from row_stepping import offered

from worker.lanes.batch_cutting import cut, unfold
from worker.units.chunk import RECORD_OVERHEAD, Chunk
from worker.units.delivery import Delivery
from worker.units.unit import Unit
from worker.units.work import Work

POLLS = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([0, 0, 1, 60, 256]), st.booleans()), min_size=1, max_size=8
)
SIZES = st.integers(1, 12).map(lambda records: records * RECORD_OVERHEAD) | st.integers(1, 4000)


def fill(to: Unit, polls: list[tuple[int, int, bool]]) -> tuple[list[int], set[int]]:
    """Queue polls of (records, bytes each, whether it is DDL). All offsets; those of DDL."""
    of, first, alone = assignment(), 0, set()
    for count, size, statement in polls:
        if statement:
            to.push(chunk(of, [ddl(first)], alone=True))
            alone.add(first)
            first += 1
        else:
            to.push(chunk(of, [record(first + n, value=b"x" * size) for n in range(count)]))
            first += count
    return list(range(first)), alone


def offsets(work: Work) -> list[int]:
    return [message.offset() for _, message in work.messages()]


def size_of(chunks: list[Chunk]) -> int:
    return sum(len(m) + RECORD_OVERHEAD for piece in chunks for m in piece.messages)


@given(polls=POLLS, most=st.integers(1, 12), size=SIZES)
def test_batches_hold_everything_in_order_within_the_bounds_and_ddl_alone(
    polls: list[tuple[int, int, bool]], most: int, size: int
) -> None:
    table = unit(batch={"max_records": most, "max_bytes": size})
    queued, alone = fill(table, polls)
    found: list[int] = []
    while table.chunks:
        work = cut(table)
        inside = offsets(work)
        assert work.records == len(inside) > 0
        assert work.bytes == size_of(work.chunks)
        assert work.records <= most
        assert work.bytes <= size or work.records == 1
        assert not set(inside) & alone or work.records == 1
        found += inside
        assert table.records == len(queued) - len(found)
        assert table.bytes == size_of(list(table.chunks))
    assert found == queued
    assert (table.records, table.bytes) == (0, 0)


@given(polls=POLLS, most=st.integers(2, 12), size=SIZES)
def test_a_batch_is_as_full_as_the_bounds_allow(
    polls: list[tuple[int, int, bool]], most: int, size: int
) -> None:
    table = unit(batch={"max_records": most, "max_bytes": size})
    _, alone = fill(table, polls)
    while table.chunks:
        work = cut(table)
        if not table.chunks or alone & {offsets(work)[0], table.chunks[0].messages[0].offset()}:
            continue
        following = len(table.chunks[0].messages[0]) + RECORD_OVERHEAD
        assert work.records == most or work.bytes + following > size


@given(polls=POLLS, done=st.integers(0, 5), leaves=st.booleans())
def test_a_kept_batch_comes_back_in_front_without_what_is_done_or_left(
    polls: list[tuple[int, int, bool]], done: int, leaves: bool
) -> None:
    table = unit(batch={"max_records": 7})
    queued, _ = fill(table, polls)
    work = cut(table)
    done = min(done, work.records - 1)
    work.finish_records(done)
    work.chunks[0].assignment.closed = leaves
    gone = [piece.leave() for piece in unfold(work)]
    rest = [m.offset() for piece in table.chunks for m in piece.messages]
    assert rest == (queued[work.records :] if leaves else queued[done:])
    assert table.records == len(rest)
    assert table.bytes == size_of(list(table.chunks))
    assert sum(records for records, _ in gone) == (work.records if leaves else done)
    left = 0 if leaves else size_of(work.unfinished_chunks())
    assert sum(size for _, size in gone) == work.bytes - left


def test_dropping_a_partition_keeps_the_others_in_order() -> None:
    table, here, there = unit(), assignment(0), assignment(1)
    for of, numbers in ((here, [0, 1]), (there, [0]), (here, [2]), (there, [1, 2])):
        table.push(chunk(of, [record(n) for n in numbers]))
    before = table.bytes
    dropped = table.drop({here})
    assert sum(len(piece.messages) for piece in dropped) == 3
    assert table.bytes == before - size_of(dropped) == size_of(list(table.chunks))
    assert table.records == 3
    work = cut(table)
    assert {piece.assignment for piece in work.chunks} == {there}
    assert offsets(work) == [0, 1, 2]


def test_a_kept_batch_is_what_is_taken_next() -> None:
    lanes, table = lanes_of(Clock(), count=1), unit()
    of = assignment()
    offered(lanes, table, record(0), of=of)
    work = lanes.take(0)
    assert work is not None
    offered(lanes, table, record(1), of=of)
    lanes.give_back(0, work, delay=0.0)
    assert lanes.take(0) is work
    lanes.finish(0, work)
    following = lanes.take(0)
    assert following is not None
    assert offsets(following) == [1]


def test_small_records_weigh_their_objects_too() -> None:
    piece = chunk(assignment(), [record(0, value=b"x"), record(1, value=b"")])
    assert piece.bytes == 1 + 2 * RECORD_OVERHEAD


def test_a_delivery_knows_its_weight_and_what_each_lane_gets() -> None:
    here, there, of = unit("a", lane=0), unit("b", lane=3), assignment()
    what = Delivery()
    for to, numbers in ((here, [0, 1]), (there, [2]), (here, [3])):
        what.add(to, chunk(of, [record(n) for n in numbers]))
    assert what.records == {0: 3, 3: 1}
    assert what.bytes == sum(piece.bytes for _, piece in what.parts)
    assert what.without({of}).records == {}
    assert what.without(set()) == what


@given(st.lists(st.tuples(st.sampled_from(["one", "two", None]), st.integers(0, 1)), min_size=1, max_size=8))
def test_a_batch_never_holds_records_of_a_topic_and_of_the_one_made_anew(
    pieces: list[tuple[str | None, int]],
) -> None:
    """Of either partition; of a topic whose id is not known, too."""
    table = unit(batch={"max_records": 5})
    for place, (topic_id, partition) in enumerate(pieces):
        of = assignment(partition)
        of.topic_id = topic_id
        table.push(chunk(of, [record(2 * place, partition=partition), record(2 * place + 1)]))
    found: list[int] = []
    while table.chunks:
        following = table.chunks[0].assignment.topic_id
        work = cut(table)
        assert {each.assignment.topic_id for each in work.chunks} == {following}
        if table.chunks and table.chunks[0].assignment.topic_id == following:
            assert work.records == 5, "nothing else cuts it short"
        found += offsets(work)
    assert found == list(range(2 * len(pieces)))
