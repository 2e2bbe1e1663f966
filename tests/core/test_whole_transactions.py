"""With `transactions: whole`, a batch ends where one of the source's transactions does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import pytest
from building import Clock, Scripted, configuration, ddl, record
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_building import BIG, lanes_of, offsets

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.attempts.circuit import BoundHandler
from worker.fetching.backpressure import Backlog
from worker.fetching.routing import Router
from worker.formats.interface import Record
from worker.formats.registry import get
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.table import home_lane
from worker.units.table_book import TableBook
from worker.units.unit import UnitState
from worker.units.work import Work

WHOLE = {"transactions": "whole", "max_records": 5}


def row(offset: int, xid: int | None, table: str = "a", *, commit: bool = False) -> Record:
    """A row as Maxwell sends it."""
    fields: dict[str, Any] = {
        "database": "shop",
        "table": table,
        "type": "insert",
        "ts": 1_763_000_000,
        "data": {"id": offset},
        "primary_key_columns": ["id"],
    }
    if xid is not None:
        fields |= {"xid": xid}
    if commit:
        fields |= {"commit": True}
    return record(offset, value=json.dumps(fields).encode())


class Stage:
    """One partition of Maxwell's records, its router and lanes. The test is the fetcher and the processor."""

    def __init__(self, *, max_records: int = BIG, source: str = "maxwell", **batch: Any) -> None:
        self.clock = Clock()
        self.lanes = lanes_of(self.clock, count=1, max_records=max_records)
        self.backlog = Backlog(self.lanes, max_records, BIG)
        rules = configuration(batch=WHOLE | batch, lanes={"count": 1})
        self.book = TableBook(rules, lambda _: [BoundHandler("h0", (Scripted(),))])
        self.router = Router(self.book, Metrics(), on_undecodable="halt")
        start = Start(0, (), "initial", "a test")
        self.of = Assignment(TopicPartition("t", 0), 1, start, get(source))

    def poll(self, *records: Record) -> None:
        delivery = Delivery()
        self.router.route(self.of, list(records), delivery)
        self.backlog.add(delivery)

    def rows(self, first: int, *xids: int | None) -> None:
        self.poll(*(row(first + place, xid) for place, xid in enumerate(xids)))

    def take(self) -> Work | None:
        """The next batch, if one is ready: it runs."""
        self.lanes.schedule.ran_out(self.clock.now)
        if not self.lanes.lanes[0].ready:
            return None
        work = self.lanes.take(0)
        assert work is not None
        return work

    def batches(self) -> list[list[int]]:
        """The offsets of all batches that are ready now; they are finished."""
        found = []
        while (work := self.take()) is not None:
            found.append(offsets(work))
            self.lanes.finish(0, work)
            self.backlog.offer()
        return found


def test_a_batch_ends_where_a_transaction_does() -> None:
    stage = Stage()
    stage.rows(0, 1, 1, 2, 2, 2, 3)
    assert stage.batches() == [[0, 1, 2, 3, 4]]
    stage.rows(6, 3, 3, 4, 4, 5, 5, 5, 5, 6)
    assert stage.batches() == [[5, 6, 7, 8, 9], [10, 11, 12, 13]]


def test_without_it_a_batch_takes_what_there_is() -> None:
    stage = Stage(transactions="split")
    stage.rows(0, 1, 1, 2, 2, 2, 3)
    assert stage.batches() == [[0, 1, 2, 3, 4], [5]]


def test_an_open_transaction_waits_for_its_rest() -> None:
    stage = Stage()
    stage.rows(0, 1, 1)
    assert stage.batches() == []
    stage.clock.now += 0.9
    stage.rows(2, 1, 2)
    assert stage.batches() == [[0, 1, 2]]


@pytest.mark.parametrize(("max_wait", "seconds"), [("0s", 1.0), ("3s", 3.0)])
def test_an_end_that_never_comes_holds_the_table_no_longer_than_its_wait(
    max_wait: str, seconds: float
) -> None:
    stage = Stage(max_wait=max_wait)
    stage.rows(0, 1, 1)
    stage.clock.now += seconds - 0.1
    assert stage.batches() == []
    stage.clock.now += 0.2
    assert stage.batches() == [[0, 1]]


def test_the_wait_begins_when_nothing_else_of_the_table_is_left() -> None:
    """Records may have waited for minutes before, behind a slow batch."""
    stage = Stage()
    stage.rows(0, 1, 2, 2)
    work = stage.take()
    assert work is not None
    stage.clock.now += 60
    stage.lanes.finish(0, work)
    assert stage.batches() == []
    stage.rows(3, 2, 3)
    assert stage.batches() == [[1, 2, 3]]


def test_the_last_row_of_a_transaction_ends_it() -> None:
    stage = Stage()
    stage.poll(row(0, 1), row(1, 1, commit=True))
    assert stage.batches() == [[0, 1]]


def test_a_record_of_another_table_ends_it_too() -> None:
    stage = Stage()
    stage.rows(0, 1, 1)
    stage.poll(row(2, 1, "b", commit=True))
    assert sorted(stage.batches()) == [[0, 1], [2]]
    stage.rows(3, 2)
    stage.poll(row(4, 3, "b"))
    assert stage.batches() == [[3]]


def test_a_record_that_no_rule_matches_ends_it_too() -> None:
    stage = Stage()
    stage.book.adopt(configuration({"match": "shop.a"}, batch=WHOLE, lanes={"count": 1}))
    stage.rows(0, 1, 1)
    stage.poll(row(2, 1, "b", commit=True))
    assert stage.batches() == [[0, 1]]


def test_a_partition_costs_nothing_until_it_has_rows_of_such_a_table() -> None:
    stage = Stage()
    rules = {"match": "shop.a", "batch": WHOLE}, {"match": "shop.b"}
    stage.book.adopt(configuration(*rules, lanes={"count": 1}))
    known = stage.of.transactions
    stage.poll(row(0, 1, "b"), row(1, 2, "b"))
    assert [known.begin(offset) for offset in range(2)] == [-1, -1]
    stage.poll(row(2, 3, "b"), row(3, 3, "a"), row(4, 4, "b"))
    stage.poll(row(5, 5, "b"))
    assert [known.begin(offset) for offset in range(6)] == [-1, -1, 2, 2, 4, 5]


def test_rows_without_a_transaction_do_not_wait() -> None:
    stage = Stage()
    stage.rows(0, *[None] * 7)
    assert stage.batches() == [[0, 1, 2, 3, 4], [5, 6]]


def test_a_transaction_that_does_not_fit_is_cut_and_the_next_batch_says_so() -> None:
    stage = Stage()
    stage.rows(0, 1, *[2] * 12, 3, 3, 4)
    found = []
    while (work := stage.take()) is not None:
        found.append((offsets(work), work.continues))
        stage.lanes.finish(0, work)
    assert found == [
        ([0], False),
        ([1, 2, 3, 4, 5], False),
        ([6, 7, 8, 9, 10], True),
        ([11, 12, 13, 14], True),
    ]


def test_a_transaction_cut_after_its_wait_is_told_once_more_of_it_comes() -> None:
    stage = Stage()
    stage.rows(0, 1)
    stage.clock.now += 2
    assert stage.batches() == [[0]]
    stage.rows(1, 1, 2)
    work = stage.take()
    assert work is not None
    assert work.continues


def test_a_statement_ends_a_transaction() -> None:
    stage = Stage(source="canal")
    stage.poll(record(0, gtid="g1"), ddl(1), record(2, gtid="g2"), record(3, gtid="g3"))
    assert stage.batches() == [[0], [1], [2]]


@pytest.mark.parametrize("queued", [1, 7])
def test_a_statement_of_another_table_ends_it_too(queued: int) -> None:
    """Its place in the queue has no record: behind a table that waits, and behind one that is cut."""
    stage = Stage(source="canal")
    rows = [record(at, gtid=f"g{at}") for at in range(queued)]
    renames = {"isDdl": True, "type": "RENAME", "sql": "RENAME TABLE shop.items TO shop.orders", "data": None}
    stage.poll(rows[0])
    stage.poll(*rows[1:], record(queued, "items", **renames))
    assert [offset for batch in stage.batches() for offset in batch] == [*range(queued + 1)]


def test_a_delivery_that_waits_for_room_may_have_the_rest() -> None:
    """Its borders count only when the lanes have its records."""
    stage = Stage(max_records=8)
    stage.rows(0, 1, 1, 1, 2, 2)
    held = stage.take()
    assert held is not None
    assert offsets(held) == [0, 1, 2]
    stage.rows(5, 2, 3, 4, 5)
    assert stage.backlog, "no room for 4 more"
    stage.clock.now += 5
    stage.lanes.schedule.ran_out(stage.clock.now)
    stage.lanes.finish(0, held)
    assert stage.batches() == []
    assert stage.backlog.offer()
    assert stage.batches() == [[3, 4, 5, 6, 7]]


@pytest.mark.parametrize("why", ["no room", "the worker stops"])
def test_an_open_transaction_does_not_stop_all_others_for_its_whole_wait(why: str) -> None:
    """It waits at most a second if nothing can be read or handled meanwhile."""
    stage = Stage(max_records=8, max_wait="60s")
    stage.rows(0, 1, 1, 1, 1)
    if why == "no room":
        other = Assignment(TopicPartition("u", 0), 2, stage.of.start, get("maxwell"))
        delivery = Delivery()
        stage.router.route(other, [row(at, 1, "b") for at in range(5)], delivery)
        assert not stage.backlog.add(delivery)
    else:
        assert not stage.lanes.worked_off()
    stage.clock.now += 0.9
    assert stage.batches() == []
    stage.clock.now += 0.2
    assert stage.batches()[0] == [0, 1, 2, 3]


def test_full_lanes_hold_an_open_transaction_only_while_they_take_nothing() -> None:
    """Another partition keeps the lanes full and busy. The rest may wait for room, until they take more."""
    stage, next_offset = Stage(max_records=8), count()
    rules = {"match": "shop.a", "batch": WHOLE}, {"match": "shop.b"}
    stage.book.adopt(configuration(*rules, lanes={"count": 1}))
    other = Assignment(TopicPartition("u", 0), 2, stage.of.start, get("maxwell"))

    def poll_other() -> None:
        delivery = Delivery()
        stage.router.route(other, [row(at, at, "b") for at in islice(next_offset, 6)], delivery)
        stage.backlog.add(delivery)

    stage.rows(0, 1, 1)
    waiting = stage.book.units["shop"]["a"]
    assert waiting is not None
    poll_other()
    poll_other()
    assert stage.backlog
    for number in range(6):
        work = stage.take()
        assert work is not None
        if work.unit is waiting:
            break
        stage.clock.now += 20 if number == 0 else 0.6
        stage.lanes.schedule.ran_out(stage.clock.now)
        assert number or waiting.state is UnitState.GATHERING
        stage.lanes.finish(0, work)
        while stage.backlog.offer():
            poll_other()
    else:
        pytest.fail("it waits on")


def test_what_a_handler_applied_of_a_transaction_is_finished_with_all_of_it() -> None:
    """So after a kill, the transaction comes again from its beginning."""
    stage = Stage()
    stage.rows(0, 1, 1, 2, 2, 3)
    work = stage.take()
    assert work is not None
    assert work.decode(lambda _record, _fault: False) is None
    assert [work.finish_changes(done) for done in (1, 2, 3, 4)] == [0, 2, 0, 2]


Transactions = st.lists(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=5), min_size=1, max_size=12
)  # the tables of its rows


@settings(deadline=None)
@given(Transactions, st.data())
def test_no_transaction_that_fits_is_cut(transactions: Sequence[Sequence[str]], data: st.DataObject) -> None:
    """However its records come, and whatever runs meanwhile. All of them are handled in order, at last also
    those of a transaction whose end never comes."""
    told = data.draw(st.booleans())
    stage = Stage(max_records=data.draw(st.sampled_from([16, BIG])))
    rows = []
    for xid, tables in enumerate(transactions):
        for place, table in enumerate(tables):
            offset = len(rows)
            commit = told and place == len(tables) - 1
            rows.append((row(offset, xid, table, commit=commit), xid, table))
    found: list[list[int]] = []
    running: Work | None = None
    place = 0
    while place < len(rows):
        if not stage.backlog and not data.draw(st.booleans()):
            count = data.draw(st.integers(1, 20))
            stage.poll(*(each for each, _, _ in rows[place : place + count]))
            place = min(place + count, len(rows))
        elif running is None:
            running = stage.take()
            found += [offsets(running)] if running else []
            if running is None and stage.backlog:
                break  # an open transaction and the next records do not fit into the lane together
        else:
            stage.lanes.finish(0, running)
            running = None
            stage.backlog.offer()
    if running is not None:
        stage.lanes.finish(0, running)
    found += stage.batches()
    parts: dict[tuple[int, str], set[int]] = {}
    for number, batch in enumerate(found):
        assert len({rows[offset][2] for offset in batch}) == 1
        for offset in batch:
            parts.setdefault(rows[offset][1:], set()).add(number)
    assert all(len(batches) == 1 for batches in parts.values())
    for _ in range(10):
        stage.clock.now += 2
        found += stage.batches()
    assert not stage.backlog
    for table in "ab":
        own = [offset for batch in found for offset in batch if rows[offset][2] == table]
        assert own == [offset for offset, (_, _, name) in enumerate(rows[:place]) if name == table]


def test_the_ends_that_a_piece_of_a_delivery_shows_are_known_before_its_other_pieces_are_queued() -> None:
    """The second piece of the last poll ends within a transaction of `a`, and a third one waits."""
    stage = Stage(max_records=16)
    transactions = ["a", "aaaaa", "aaaaa", "aaaaa", "abbbb", "abb", "aaaaa", "abbbb", "bbbbb"]
    tables = [(xid, table) for xid, tables in enumerate(transactions) for table in tables]
    rows = [row(offset, xid, table) for offset, (xid, table) in enumerate(tables)]
    for poll in (rows[:1], rows[1:20], rows[20:]):
        stage.poll(*poll)
    found = [batch for batch in stage.batches() if tables[batch[0]][1] == "a"]
    assert found[-3:] == [[16, 21], [24, 25, 26, 27, 28], [29]]


def test_parked_records_that_are_put_back_count_once() -> None:
    stage = Stage()
    stage.rows(0, 1, 1, 2, 2, 2, 2, 3)
    unit = stage.book.units["shop"]["a"]
    assert unit is not None
    for chunk in unit.chunks:
        stage.lanes.room.release(unit, *chunk.leave())
        chunk.parked = True
        unit.parked += len(chunk.messages)
    assert stage.batches() == [[0, 1], [2, 3, 4, 5]]
    assert (unit.parked, unit.records) == (1, 1)


def test_a_partition_that_starts_again_has_other_borders() -> None:
    stage = Stage()
    stage.rows(100, 1, 1, 2)
    stage.of.restart_at(0)
    stage.rows(0, 1, 2, 2)
    assert [stage.of.transactions.begin(offset) for offset in (0, 1, 2, 200)] == [0, 1, 1, 1]


def test_a_border_is_kept_once() -> None:
    """The end of one transaction is usually the beginning of the next."""
    known = Stage().of.transactions
    for first in (0, 50):
        known.read([row(offset, offset, commit=True) for offset in range(first, first + 50)], None)
    assert list(known._borders) == list(range(101))


def test_borders_before_the_committed_offset_are_forgotten() -> None:
    known = Stage().of.transactions
    known.read([row(offset, offset // 10) for offset in range(100)], None)
    known.read([row(100, 10)], 55)
    assert [known.begin(offset) for offset in (9, 49, 55, 60, 100)] == [-1, -1, 50, 60, 100]


def test_an_end_counts_when_the_lanes_have_all_records_before_it() -> None:
    """A delivery of 12 records, of which a lane takes 8 at most."""
    stage = Stage(max_records=8)
    stage.rows(0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 4)
    held = stage.take()
    assert held is not None
    assert offsets(held) == [0, 1, 2, 3, 4]
    stage.clock.now += 5
    stage.lanes.finish(0, held)
    assert stage.batches() == []
    assert stage.backlog.offer()
    assert stage.batches() == [[5, 6, 7, 8, 9]]


def test_the_rest_of_a_shortened_batch_says_that_it_begins_within_a_transaction() -> None:
    """The processor shortens a batch before an undecodable record."""
    stage = Stage()
    stage.rows(0, 1, 1, 1, 2)
    work = stage.take()
    assert work is not None
    stage.lanes.finish(0, stage.lanes.shorten(0, work, 1))
    rest = stage.take()
    assert rest is not None
    assert (offsets(rest), rest.continues) == ([1, 2], True)


class Busy:
    """Tables with whole transactions in lane 0, and another table whose call does not end."""

    def __init__(self, hangs_in: int, *, max_records: int, batch: int = 1_000) -> None:
        self.clock = Clock()
        self.lanes = lanes_of(self.clock, count=2, max_records=max_records)
        self.backlog = Backlog(self.lanes, max_records, BIG)
        whole = {"match": "shop.a*", "batch": {"transactions": "whole", "max_records": batch}}
        rules = configuration(whole, {"match": "shop.b*"}, lanes={"count": 2})
        self.book = TableBook(rules, lambda _: [BoundHandler("h0", (Scripted(),))])
        self.router = Router(self.book, Metrics(), on_undecodable="halt")
        start = Start(0, (), "initial", "a test")
        self.of = [Assignment(TopicPartition("t", n), 1 + n, start, get("maxwell")) for n in range(2)]
        self.names = self._in_lane("a", 0)
        self.poll(1, row(0, 1, self._in_lane("b", hangs_in)[0]))
        self.hanging = self.lanes.take(1)

    def _in_lane(self, prefix: str, lane: int) -> list[str]:
        names = (f"{prefix}{n}" for n in range(99))
        return [name for name in names if home_lane(f"shop.{name}", 2) == lane]

    def poll(self, of: int, *records: Record) -> None:
        delivery = Delivery()
        self.router.route(self.of[of], list(records), delivery)
        self.backlog.add(delivery)

    def fill(self) -> None:
        """A transaction of four tables fills their lane of 28. Its rest waits for room."""
        for number, name in enumerate(self.names[:4]):
            self.poll(0, *(row(number * 6 + n, 2, name) for n in range(6)))
        self.poll(0, *(row(24 + n, 2, self.names[n]) for n in range(4)), row(28, 3, self.names[0]))
        assert self.backlog

    def run(self) -> Iterator[Work]:
        """Handle what is ready now, beside the call that hangs."""
        self.lanes.schedule.ran_out(self.clock.now)
        while self.lanes.schedule.ready:
            work = self.lanes.take(0)
            assert work is not None
            yield work
            self.lanes.finish(0, work)
            self.backlog.offer()

    def seconds_until_all_is_read(self) -> int:
        for second in range(1, 1_000):
            self.clock.now += 1.0
            list(self.run())
            if not self.backlog:
                return second
        pytest.fail("nothing is read any more")


@pytest.mark.parametrize(("hangs_in", "seconds"), [(1, 1), (0, 60)])
def test_open_transactions_wait_for_a_call_that_hangs_only_if_it_frees_room_and_not_for_long(
    hangs_in: int, seconds: int
) -> None:
    busy = Busy(hangs_in, max_records=28, batch=7)
    busy.fill()
    assert busy.seconds_until_all_is_read() == seconds


@pytest.mark.parametrize(("error", "seconds"), [(None, 60), ("no", 1)])
def test_open_transactions_wait_for_a_kept_batch_of_their_lane_unless_it_failed(
    error: str | None, seconds: int
) -> None:
    """It waits for a limit, or until its handler is asked for the result: calls go on for long."""
    busy = Busy(0, max_records=28, batch=7)
    assert busy.hanging is not None
    busy.fill()
    busy.lanes.give_back(1, busy.hanging, delay=1e6, error=error)
    assert busy.seconds_until_all_is_read() == seconds


def test_a_call_that_hangs_stops_no_table_with_small_transactions() -> None:
    busy = Busy(1, max_records=10_000)
    busy.poll(0, *(row(at, at // 7, busy.names[0]) for at in range(32_000)))
    works = list(busy.run())
    assert not any(work.continues for work in works)
    assert sum(work.records for work in works) == 32_000 - 32_000 % 7


def test_full_lanes_cut_no_small_transactions() -> None:
    """A poll whose records were spread over 16 lanes before may all be of one table."""
    stage, rows = Stage(max_records=10_000), 32_000
    whole = {"transactions": "whole", "max_records": 1_000}
    stage.book.adopt(configuration(batch=whole, lanes={"count": 1}))
    stage.poll(*(row(at, at // 7) for at in range(rows)))
    stage.poll(row(rows, rows))
    handled = 0
    while (work := stage.take()) is not None:
        assert not work.continues
        handled += work.records
        stage.lanes.finish(0, work)
        stage.backlog.offer()
    assert handled == rows


def test_an_open_transaction_never_waits_twice_for_a_call_that_hangs() -> None:
    busy = Busy(0, max_records=28, batch=7)
    busy.clock.now += 61
    busy.fill()
    assert busy.seconds_until_all_is_read() == 1
