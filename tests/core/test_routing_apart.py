"""Records of several tables: each table gets its piece, and the record counts when all of them are done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from building import TOPIC, Scripted, assignment, configuration, record
from canal_packets import DELETE, UPDATE, ddl, packet, row, rows
from confluent_kafka import Message

from handlers import Change
from offsets.types import Checkpoint
from worker.attempts.circuit import BoundHandler
from worker.configuration import TableRule
from worker.configuration.table_rules import OnFailure
from worker.fetching.routing import Router, UndecodableHalt
from worker.formats.interface import Record
from worker.observing.metrics import Metrics
from worker.units.delivery import Delivery
from worker.units.table_book import UNDECODABLE, TableBook
from worker.units.work import Work

ROW = {"id": "7"}


def handlers_of(_rule: TableRule) -> Sequence[BoundHandler]:
    return [BoundHandler("h0", (Scripted(),))]


class Stage:
    """A router over one partition."""

    def __init__(self, on_undecodable: OnFailure = "halt") -> None:
        self.book = TableBook(configuration({"match": "shop.*"}), handlers_of)
        self.router = Router(self.book, Metrics(), on_undecodable=on_undecodable)
        self.partition = assignment(0, 0)
        self.works: list[tuple[str, Work]] = []

    def poll(self, *records: Record) -> list[tuple[str, list[int], bool]]:
        """(table, offsets, alone) of each part."""
        delivery = Delivery()
        try:
            self.router.route(self.partition, list(records), delivery)
        finally:
            self.works += [(unit.table.name, Work.of(unit, [chunk])) for unit, chunk in delivery.parts]
        return [
            (unit.table.name, [each.offset() for each in chunk.messages], chunk.alone)
            for unit, chunk in delivery.parts
        ]

    def finish(self, *tables: str) -> Checkpoint | None:
        """All that these tables have, and what may be committed then."""
        for table, work in [one for one in self.works if one[0] in tables]:
            work.finish_records(work.records)
            self.works.remove((table, work))
        return self.partition.tracker.checkpoint()

    def changes(self, table: str) -> list[Change]:
        found: list[Change] = []
        for name, work in self.works:
            if name == table:
                assert work.decode(lambda _record, _fault: False) is None
                found += work.changes or ()
        return found


def packed(offset: int, *entries: bytes) -> Record:
    return Message(  # type: ignore[return-value]
        topic=TOPIC, partition=0, offset=offset, key=b"k", value=packet(*entries), timestamp=(1, 5)
    )


def insert(table: str, *, database: str = "shop") -> bytes:
    return rows(table, row(ROW), database=database)


def test_each_table_gets_its_piece_of_a_record_with_those_before_and_after_it() -> None:
    stage = Stage()
    parts = stage.poll(record(0, "a"), packed(1, insert("a"), insert("b")), record(2, "b"))
    assert parts == [("a", [0, 1], False), ("b", [1, 2], False)]
    [_, piece] = stage.works[0][1].chunks[0].messages
    assert (piece.topic(), piece.partition(), piece.key(), piece.timestamp()) == (TOPIC, 0, b"k", (1, 5))
    assert [change.offset for change in stage.changes("a")] == [0, 1]


def test_the_record_counts_when_all_its_tables_are_done_and_what_came_behind_it_with_it() -> None:
    stage = Stage()
    stage.poll(packed(0, insert("a"), insert("b")), record(1, "a"), record(2, "c"))
    assert stage.finish("a") == Checkpoint(0)
    finished = stage.finish("c")
    assert finished is not None
    assert [(each.first, each.end) for each in finished.ahead] == [(2, 3)]
    assert stage.finish("b") == Checkpoint(3)


def test_what_comes_in_later_polls_is_held_back_as_well() -> None:
    stage = Stage()
    stage.poll(packed(0, insert("a"), insert("b")))
    stage.finish("a")
    stage.poll(record(1, "a"))
    assert stage.finish("a") == Checkpoint(0), "a restart repeats a's piece of 0, and with it 1"
    assert stage.finish("b") == Checkpoint(2)


def test_a_statement_among_rows_stands_alone_and_nothing_of_the_record_goes_past_it() -> None:
    stage = Stage()
    gone = rows("a", row(before=ROW), event=DELETE)
    parts = stage.poll(
        packed(0, insert("a"), insert("b"), ddl("a", "ALTER TABLE a ADD x int"), gone, insert("b"))
    )
    of_a = [(offsets, alone) for table, offsets, alone in parts if table == "a"]
    assert of_a == [([0], False), ([0], True), ([0], False)]
    assert [offset for table, offsets, _ in parts if table == "b" for offset in offsets] == [0, 0]
    assert [change.op for change in stage.changes("a")] == ["insert", "ddl", "delete"]
    indices = [change.index for change in stage.changes("a")]
    assert indices == sorted(set(indices)), "marks tell the changes of one record apart by them"


def test_tables_that_nothing_handles_keep_no_record_from_counting() -> None:
    stage = Stage()
    stage.poll(
        packed(0, insert("a"), insert("x", database="other")),
        packed(1, insert("x", database="other"), insert("y", database="other")),
    )
    finished = stage.partition.tracker.checkpoint()
    assert finished is not None
    assert [(each.first, each.end) for each in finished.ahead] == [(1, 2)]
    assert stage.finish("a") == Checkpoint(2)


def test_records_before_a_bad_one_are_delivered_whole() -> None:
    stage = Stage()
    with pytest.raises(UndecodableHalt, match=r"offset 1: "):
        stage.poll(packed(0, insert("a"), insert("b")), packed(1, b"\xff"), record(2, "a"))
    assert stage.partition.tracker.next_offset == 1
    assert stage.finish("a", "b") == Checkpoint(1)


STATEMENT = ddl("", "UPDATE a SET x = 1", event=UPDATE, is_ddl=0)
"""Canal's entry of a statement in the place of its rows: it never names the table."""


def test_what_tells_no_table_is_set_aside_without_the_rest_of_its_record() -> None:
    stage = Stage("dead_letter")
    parts = stage.poll(record(0, "a"), packed(1, insert("a"), STATEMENT, insert("b")), record(2, "b"))
    assert parts == [("a", [0, 1], False), ("b", [1, 2], False), (UNDECODABLE, [1], False)]
    assert [change.offset for change in stage.changes("a") + stage.changes("b")] == [0, 1, 1, 2]
    [(_, letter)] = [work for work in stage.works if work[0] == UNDECODABLE]
    faults: list[str] = []
    letter.decode(lambda _record, fault: not faults.append(str(fault)))  # type: ignore[func-returns-value]
    assert "binlog_format=ROW" in faults[0]
    assert stage.finish("a", "b") == Checkpoint(1)
    assert stage.finish(UNDECODABLE) == Checkpoint(3)


def test_what_tells_no_table_is_passed_over_without_the_rest_of_its_record() -> None:
    stage = Stage("skip")
    assert stage.poll(packed(0, STATEMENT, insert("a"), STATEMENT)) == [("a", [0], False)]
    assert stage.finish() == Checkpoint(0)
    assert stage.finish("a") == Checkpoint(1)


def test_nothing_of_a_record_is_handled_that_halts_the_worker() -> None:
    stage = Stage()
    with pytest.raises(UndecodableHalt, match=r"offset 1: .*binlog_format=ROW"):
        stage.poll(packed(0, insert("a"), insert("b")), packed(1, insert("a"), STATEMENT))
    assert stage.finish("a", "b") == Checkpoint(1)


def test_what_comes_after_offsets_have_begun_anew_waits_for_nothing_before() -> None:
    """The broker no longer has the record, and its table may stand still for good."""
    stage = Stage()
    stage.poll(packed(0, insert("a"), insert("b")))
    stage.finish("a")
    stage.partition.restart_at(10)
    stage.poll(record(10, "a"))
    assert stage.finish("a") == Checkpoint(11)
