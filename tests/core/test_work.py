"""A batch: decoded, shown to handlers, finished from its front."""

from __future__ import annotations

from building import TOPIC, Scripted, assignment, chunk, configuration, ddl, record, unit, work
from hypothesis import given
from hypothesis import strategies as st

from handlers.testing import make_batch
from offsets.types import Checkpoint, OffsetRange
from worker.attempts.circuit import BoundHandler
from worker.formats.interface import Record, UndecodableRecord
from worker.units.table import Table
from worker.units.unit import Unit
from worker.units.work import Work

BAD = b'{"database":"shop","table":"orders","type":"INSERT","es":1,"data":"no rows"}'


def never(_record: Record, _fault: UndecodableRecord) -> bool:
    return False


def always(_record: Record, _fault: UndecodableRecord) -> bool:
    return True


def offsets(made: Work) -> list[int]:
    return [message.offset() for _, message in made.messages()]


def test_a_record_of_several_rows_becomes_several_changes() -> None:
    made = work(unit(), chunk(assignment(), [record(0, rows=2), record(1, rows=0), record(2)]))
    assert made.decode(never) is None
    assert [(c.offset, c.index) for c in made.changes or ()] == [(0, 0), (0, 1), (2, 0)]
    assert made.total == 3
    assert list(made.ends) == [2, 2, 3]


def test_a_statement_about_users_is_no_change_of_the_table() -> None:
    sql = "GRANT SELECT ON shop.orders TO reader IDENTIFIED BY 'secret'"
    grant = record(0, isDdl=True, type="QUERY", sql=sql, data=None)
    made = work(unit(), chunk(assignment(), [grant], alone=True))
    assert made.decode(never) is None
    assert made.changes == ()
    assert made.ends == [0]


def test_decoding_ends_at_the_first_bad_record_and_tells_its_place() -> None:
    records = [record(0), record(1), record(2, value=BAD), record(3)]
    made = work(unit(), chunk(assignment(), records))
    fault = made.decode(never)
    assert fault is not None
    assert fault[0] == 2
    assert "not a Canal message" in str(fault[1])
    assert made.changes is None


def test_bad_records_that_may_be_passed_over_leave_no_change() -> None:
    made = work(unit(), chunk(assignment(), [record(0, value=BAD), record(1), record(2, value=BAD)]))
    assert made.decode(always) is None
    assert [c.offset for c in made.changes or ()] == [1]
    assert made.finish_changes(1) == 3


@given(rows=st.lists(st.integers(0, 4), min_size=1, max_size=12), data=st.data())
def test_a_record_is_finished_once_all_its_changes_are(rows: list[int], data: st.DataObject) -> None:
    of = assignment()
    made = work(unit(), chunk(of, [record(n, rows=count) for n, count in enumerate(rows)]))
    made.decode(never)
    finished = 0
    for done in sorted(data.draw(st.lists(st.integers(0, sum(rows)), max_size=4))):
        finished += made.finish_changes(done)
        expected = sum(1 for n in range(len(rows)) if sum(rows[: n + 1]) <= done)
        assert made.finished == finished == expected
        assert of.tracker.checkpoint() == Checkpoint(expected)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_finishing_goes_through_chunks_of_several_partitions(sizes: list[int], data: st.DataObject) -> None:
    """Parts of a batch may be finished in steps, and each offset is told to its own partition."""
    partitions = [assignment(n) for n in range(len(sizes))]
    pieces = [
        chunk(of, [record(n, partition=place) for n in range(size)])
        for place, (of, size) in enumerate(zip(partitions, sizes, strict=True))
    ]
    made = work(unit(), *pieces)
    for count in sorted(data.draw(st.lists(st.integers(0, sum(sizes)), max_size=4))):
        made.finish_records(count)
        left = count
        for of, size in zip(partitions, sizes, strict=True):
            assert of.tracker.checkpoint() == Checkpoint(min(size, max(0, left)))
            left -= size
        assert made.finish_records(count) == 0
        rest = [(p.assignment, m.offset()) for p in made.unfinished_chunks() for m in p.messages]
        assert rest == [(p.assignment, m.offset()) for p, m in made.messages()][count:]


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_head_and_rest_make_the_whole(sizes: list[int], data: st.DataObject) -> None:
    of = assignment()
    first, pieces = 0, []
    for size in sizes:
        pieces.append(chunk(of, [record(first + n) for n in range(size)]))
        first += size
    made = work(unit(), *pieces)
    count = data.draw(st.integers(0, first))
    head, rest = made.head(count), made.unfinished_chunks(count)
    assert offsets(head) + [m.offset() for p in rest for m in p.messages] == list(range(first))
    assert head.records == count
    assert head.bytes + sum(piece.bytes for piece in rest) == made.bytes


def test_a_batch_tells_its_table_and_where_it_comes_from() -> None:
    here, there = assignment(0), assignment(1)
    made = work(
        unit("orders"),
        chunk(here, [record(4, rows=2), record(7)]),
        chunk(there, [record(9, partition=1)]),
        chunk(here, [record(8)]),
    )
    made.decode(never)
    whole = made.batch(0, 5, 1)
    assert (whole.table, whole.database, whole.name) == ("shop.orders", "shop", "orders")
    assert whole.positions == {(TOPIC, 0): (4, 8), (TOPIC, 1): (9, 9)}
    assert (whole.records, len(whole.changes), whole.attempt) == (4, 5, 1)


def test_a_piece_of_a_batch_tells_its_own_positions_and_records() -> None:
    made = work(unit(), chunk(assignment(), [record(4, rows=2), record(7), record(9)]))
    made.decode(never)
    piece = made.batch(1, 3, 6)
    assert [(c.offset, c.index) for c in piece.changes] == [(4, 1), (7, 0)]
    assert piece.positions == {(TOPIC, 0): (4, 7)}
    assert (piece.records, piece.attempt) == (2, 6)


def test_handlers_cannot_change_what_others_are_given() -> None:
    made = work(unit(), chunk(assignment(), [record(0)]))
    made.decode(never)
    assert isinstance(made.batch(0, 1, 1).changes, tuple)


def test_a_handler_by_import_path_may_change_its_rows_and_nobody_else_sees_it() -> None:
    rule = configuration({"handlers": [{"type": "log"}, {"type": "my.masks:Masks"}]}).tables[0]
    bound = [BoundHandler(name, (Scripted(),)) for name in ("log", "masks")]
    made = work(Unit(Table("shop", "orders", rule, bound), 0))
    change = make_batch("shop.orders", [{"before": {"id": 1}, "after": {"id": 1, "tags": ["a"]}}]).changes[0]
    made.changes = (change, change)
    for attempt, (first, end) in enumerate([(0, 2), (0, 2), (1, 2)], 1):
        for each in made.batch(first, end, attempt).changes:
            assert (each.before, each.after) == ({"id": 1}, {"id": 1, "tags": ["a"]})
            assert each.before is not None
            assert each.after is not None
            each.before["id"] = 100
            each.after["tags"].append("b")
            del each.after["id"]


def test_the_only_handler_gets_the_rows_themselves_and_as_they_were_when_it_is_tried_again() -> None:
    rule = configuration({"handlers": [{"type": "my.masks:Masks"}]}).tables[0]
    table = Unit(Table("shop", "orders", rule, [BoundHandler("masks", (Scripted(),))]), 0)
    made = work(table, chunk(assignment(), [record(0), record(1, rows=0), record(2, rows=2)]))
    assert made.decode(always) is None
    rows = repr(made.changes)
    first = made.batch(0, made.total, 1)
    assert first.changes is made.changes, "nothing is copied"
    for attempt in range(2, 4):
        for each in first.changes:
            assert each.after is not None
            each.after.clear()
        first = made.batch(0, made.total, attempt)
        assert repr(first.changes) == rows
    assert repr(made.batch(1, 2, 4).changes[0]) == repr(made.changes[1])
    assert list(made.ends) == [1, 1, 3]


def test_rows_of_built_in_handlers_alone_are_not_copied() -> None:
    made = work(unit(), chunk(assignment(), [record(0)]))
    made.decode(never)
    assert made.batch(0, 1, 1).changes is made.changes


def test_a_batch_is_withdrawn_as_soon_as_one_of_its_partitions_left() -> None:
    here, there = assignment(0), assignment(1)
    made = work(unit(), chunk(here, [record(0)]), chunk(there, [record(0, partition=1)]))
    assert not made.withdrawn
    there.closed = True
    assert made.withdrawn


def test_a_ddl_statement_is_one_change_with_its_text() -> None:
    made = work(unit(), chunk(assignment(), [ddl(3)], alone=True))
    made.decode(never)
    [change] = made.changes or ()
    assert (change.op, change.sql, change.offset) == ("ddl", "ALTER TABLE orders ADD x int", 3)
    made.finish_changes(1)
    assert made.unfinished_chunks() == []


def test_what_is_finished_of_a_partition_beyond_a_gap_is_remembered() -> None:
    of = assignment()
    stuck = chunk(of, [record(0)])
    made = work(unit("b"), chunk(of, [record(1), record(2)]))
    made.finish_records(2)
    assert stuck.run.unfinished == 1
    assert of.tracker.checkpoint() == Checkpoint(0, (OffsetRange(1, 3),))
