"""From a poll's records to a delivery: every offset registered, each record with its table, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from building import Scripted, assignment, configuration, ddl, record
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from offsets.types import Checkpoint, OffsetRange
from worker.attempts.circuit import BoundHandler
from worker.configuration import TableRule
from worker.configuration.table_rules import OnFailure
from worker.fetching.routing import Router, UndecodableHalt
from worker.formats.interface import Record
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.chunk import RECORD_OVERHEAD
from worker.units.delivery import Delivery
from worker.units.table_book import TableBook

NO_JSON = b"\x08\x01 no JSON"
RULES = ({"match": "shop.*"}, {"match": "other.kept"})


def handlers_of(_rule: TableRule) -> Sequence[BoundHandler]:
    return [BoundHandler("h0", (Scripted(),))]


@dataclass
class Stage:
    """A router over one partition."""

    on_undecodable: OnFailure = "halt"
    start: int | None = 0
    restored: Iterable[OffsetRange] = ()
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.book = TableBook(configuration(*RULES), handlers_of)
        self.router = Router(self.book, self.metrics, on_undecodable=self.on_undecodable)
        self.partition: Assignment = assignment(0, self.start, self.restored)

    def route(self, *records: Record) -> list[tuple[str, list[int]]]:
        """Route one poll. (table, offsets) of each part, in its order."""
        self.delivery = Delivery()
        self.router.route(self.partition, list(records), self.delivery)
        return self.parts()

    def parts(self) -> list[tuple[str, list[int]]]:
        return [(to.table.label, [m.offset() for m in piece.messages]) for to, piece in self.delivery.parts]

    def finish(self) -> None:
        for _, piece in self.delivery.parts:
            piece.run.finish([m.offset() for m in piece.messages])

    def checkpoint(self) -> Checkpoint | None:
        return self.partition.tracker.checkpoint()

    def skipped(self, reason: str) -> float:
        name = f'binlane_records_skipped_total{{reason="{reason}"}} '
        text = generate_latest(self.metrics.registry).decode()
        return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def test_each_part_counts_the_bytes_of_its_own_records() -> None:
    stage = Stage()
    for first in (0, 10):  # two polls, each with a statement between a table's rows
        stage.route(record(first, "a"), record(first + 1, "bb"), ddl(first + 2, "a"), record(first + 3, "a"))
        parts = [piece for _, piece in stage.delivery.parts]
        assert len(parts) == 4
        for piece in parts:
            assert piece.bytes == sum(len(each) + RECORD_OVERHEAD for each in piece.messages)


def test_a_poll_becomes_one_part_for_each_table() -> None:
    stage = Stage()
    parts = stage.route(record(0, "a"), record(1, "b"), record(2, "a"), record(3, "c"))
    assert sorted(parts) == [("shop.a", [0, 2]), ("shop.b", [1]), ("shop.c", [3])]
    assert stage.checkpoint() == Checkpoint(0)
    stage.finish()
    assert stage.checkpoint() == Checkpoint(4)


def test_a_table_keeps_its_unit_from_poll_to_poll() -> None:
    stage = Stage()
    stage.route(record(0, "a"))
    [(first, _)] = stage.delivery.parts
    stage.route(record(1, "a"))
    [(second, _)] = stage.delivery.parts
    assert first is second
    assert stage.book.all() == [first]


def test_a_table_that_no_rule_matches_is_counted_as_skipped_and_finished() -> None:
    stage = Stage()
    assert stage.route(record(0, "x", "other"), record(1, "x", "other")) == []
    assert stage.route(record(2, "x", "other"), record(3, "kept", "other")) == [("other.kept", [3])]
    assert stage.skipped("unmatched") == stage.book.unmatched.records == 3
    assert stage.checkpoint() == Checkpoint(3)


@pytest.mark.parametrize(
    ("match", "table", "nearest"),
    [
        ("Shop.*", "orders", "Shop.*"),
        ("shop.Orders", "orders", "shop.Orders"),
        ("/shop\\.O.*/", "orders", "/shop\\.O.*/"),
        ("shpo.*", "orders", "shpo.*"),
        ("shop.ordres", "orders", "shop.ordres"),
        ("crm.*", "orders", None),
        ("shop.items", "orders", None),
    ],
)
def test_a_table_that_no_rule_matches_is_told_once_with_the_rule_that_was_meant(
    match: str, table: str, nearest: str | None
) -> None:
    book = TableBook(configuration({"match": match}), handlers_of)
    with capture_logs() as logs:
        book.meet("shop", table)
        book.adopt(configuration({"match": match}))
        for _ in range(2):
            book.meet("shop", table)
    told = [each for each in logs if each["event"] == "table_unmatched"]
    assert [(each["table"], each.get("nearest")) for each in told] == [("shop.orders", nearest)] * 2
    assert {each["log_level"] for each in told} == {"info" if nearest is None else "warning"}


def test_a_rule_that_matches_a_table_is_meant_as_it_is() -> None:
    book = TableBook(configuration({"match": "shop.orders1"}), handlers_of)
    book.meet("shop", "orders1")
    with capture_logs() as logs:
        book.meet("shop", "orders2")
    assert "nearest" not in logs[0]


def test_of_many_tables_that_no_rule_matches_a_hundred_are_told() -> None:
    book = TableBook(configuration({"match": "crm.*"}), handlers_of)
    with capture_logs() as logs:
        for number in range(1000):
            book.meet("shop", f"orders{number}")
    assert [each["event"] for each in logs] == ["table_unmatched"] * 100 + ["more_tables_unmatched"]


def test_a_tombstone_is_finished_and_the_records_around_it_are_routed() -> None:
    stage = Stage()
    assert stage.route(record(0), record(1, value=None), record(2)) == [("shop.orders", [0, 2])]
    stage.finish()
    assert stage.checkpoint() == Checkpoint(3)
    assert stage.skipped("tombstone") == 1


def test_the_ends_of_transactions_are_finished() -> None:
    stage = Stage()
    end = record(1, "", "", type="TRANSACTIONEND", data=None)
    assert stage.route(record(0), end, record(2)) == [("shop.orders", [0, 2])]
    assert stage.skipped("transaction") == 1


def test_ddl_of_a_whole_database_is_finished() -> None:
    stage = Stage()
    statement = record(0, "", isDdl=True, type="QUERY", sql="CREATE DATABASE shop", data=None)
    assert stage.route(statement, record(1)) == [("shop.orders", [1])]
    assert stage.skipped("database_ddl") == 1
    assert stage.checkpoint() == Checkpoint(1)


@pytest.mark.parametrize("database", ["", "shop"])
def test_records_that_name_no_table_belong_to_what_each_says(database: str) -> None:
    stage = Stage()

    def unread(offset: int, table: str) -> Record:
        sql = f"ALTER TABLE {table} DROP COLUMN x"
        return record(offset, "", database, isDdl=True, type="QUERY", sql=sql, data=None)

    tables = ["shop.a", "other.b", "shop.c", "shop.a"]
    parts = stage.route(*(unread(offset, table) for offset, table in enumerate(tables)))
    assert parts == [("shop.a", [0]), ("shop.c", [2]), ("shop.a", [3])]
    assert stage.route(record(4, "", database, type="TRANSACTIONEND", data=None), unread(5, "shop.c")) == [
        ("shop.c", [5])
    ]
    assert (stage.skipped("unmatched"), stage.skipped("transaction")) == (1, 1)


def test_ddl_stands_alone_in_its_place() -> None:
    stage = Stage()
    parts = stage.route(
        record(0, "a"), record(1, "b"), ddl(2, "a"), record(3, "a"), ddl(4, "a"), ddl(5, "a"), record(6, "b")
    )
    assert [offsets for table, offsets in parts if table == "shop.a"] == [[0], [2], [3], [4], [5]]
    assert [offsets for table, offsets in parts if table == "shop.b"] == [[1, 6]]
    assert [piece.messages[0].offset() for _, piece in stage.delivery.parts if piece.alone] == [2, 4, 5]


def test_a_database_named_in_backticks_is_the_same_database() -> None:
    stage = Stage()
    assert stage.route(record(0), record(1, database="`shop`")) == [("shop.orders", [0, 1])]
    assert stage.route(record(2, database="`shop`"), record(3)) == [("shop.orders", [2, 3])]
    assert len(stage.book.all()) == 1


@pytest.mark.parametrize(
    "bad", [NO_JSON, b"", b"[]", json.dumps({"database": "", "table": "orders", "type": "INSERT"}).encode()]
)
def test_an_undecodable_record_halts_and_only_those_before_it_are_registered_and_delivered(
    bad: bytes,
) -> None:
    stage = Stage()
    with pytest.raises(UndecodableHalt, match=r"cdc\.shop\[0\] offset 2.*on_undecodable: skip"):
        stage.route(record(0, "a"), record(1, "b"), record(2, value=bad), record(3, "a"))
    assert sorted(stage.parts()) == [("shop.a", [0]), ("shop.b", [1])]
    stage.finish()
    assert stage.checkpoint() == Checkpoint(2)


def test_an_undecodable_record_that_comes_first_delivers_nothing() -> None:
    stage = Stage()
    with pytest.raises(UndecodableHalt):
        stage.route(record(0, value=NO_JSON), record(1))
    assert stage.delivery.parts == []
    assert stage.checkpoint() == Checkpoint(0)


def test_after_a_halt_the_next_poll_is_not_mixed_with_the_one_before() -> None:
    stage = Stage()
    with pytest.raises(UndecodableHalt):
        stage.route(record(0, "a"), record(1, value=NO_JSON), record(2, "a"))
    assert stage.route(record(5, "a")) == [("shop.a", [5])]


def test_undecodable_records_are_passed_over_where_the_rule_says_skip() -> None:
    stage = Stage(on_undecodable="skip")
    nameless = record(3, database="")
    with capture_logs() as logs:
        parts = stage.route(record(0), record(1, value=NO_JSON), record(2), nameless, record(4))
    assert parts == [("shop.orders", [0, 2, 4])]
    stage.finish()
    assert stage.checkpoint() == Checkpoint(5)
    assert stage.skipped("undecodable") == 2
    assert [log["position"] for log in logs] == ["cdc.shop[0] offset 1", "cdc.shop[0] offset 3"]


def test_what_an_earlier_worker_finished_is_not_handled_again() -> None:
    stage = Stage(start=2, restored=[OffsetRange(3, 5), OffsetRange(7, 8)])
    assert stage.route(*(record(n) for n in range(2, 9))) == [("shop.orders", [2, 5, 6, 8])]
    assert stage.skipped("finished_before") == 3
    stage.finish()
    assert stage.checkpoint() == Checkpoint(9)


def test_a_poll_of_nothing_but_finished_records_counts_as_reached() -> None:
    stage = Stage(start=0, restored=[OffsetRange(1, 9)])
    assert stage.route(record(0)) == [("shop.orders", [0])]
    held = stage.delivery
    assert stage.route(*(record(n) for n in range(1, 5))) == []
    assert stage.partition.tracker.next_offset == 5
    assert stage.route(*(record(n) for n in range(5, 11))) == [("shop.orders", [9, 10])]
    stage.finish()
    assert stage.checkpoint() == Checkpoint(0, (OffsetRange(1, 11),))
    for _, piece in held.parts:
        piece.run.finish([0])
    assert stage.checkpoint() == Checkpoint(11)


def test_what_was_fetched_before_is_not_handled_twice() -> None:
    stage = Stage()
    stage.route(*(record(n) for n in range(4)))
    assert stage.route(*(record(n) for n in range(2, 6))) == [("shop.orders", [4, 5])]
    assert stage.route(*(record(n) for n in range(6))) == []
    assert stage.partition.tracker.unfinished == 6


def test_an_undecodable_record_that_was_finished_before_does_not_halt() -> None:
    stage = Stage(restored=[OffsetRange(1, 2)])
    assert stage.route(record(0), record(1, value=NO_JSON), record(2)) == [("shop.orders", [0, 2])]


KINDS = st.sampled_from(["a", "b", "c", "unmatched", "tombstone", "end", "ddl a", "ddl b", "bad", "`a`"])


def made(offset: int, kind: str) -> Record:
    if kind == "tombstone":
        return record(offset, value=None)
    if kind == "bad":
        return record(offset, value=NO_JSON)
    if kind == "end":
        return record(offset, "", "", type="TRANSACTIONEND")
    if kind == "unmatched":
        return record(offset, "x", "other")
    if kind.startswith("ddl"):
        return ddl(offset, kind[4:])
    return record(offset, kind.strip("`"), "`shop`" if "`" in kind else "shop")


@given(
    polls=st.lists(
        st.lists(st.tuples(KINDS, st.integers(1, 3)), min_size=1, max_size=12), min_size=1, max_size=4
    ),
    restored=st.sets(st.integers(0, 60), max_size=20),
    skip=st.booleans(),
)
@example(polls=[[("unmatched", 3), ("a", 3)]], restored={0, 6}, skip=False)
def test_whatever_comes_each_offset_is_delivered_or_finished_exactly_once(
    polls: list[list[tuple[str, int]]], restored: set[int], skip: bool
) -> None:
    """Of each table in order, DDL alone; up to the first bad record, unless those are passed over."""
    stage = Stage(
        on_undecodable="skip" if skip else "halt", restored=[OffsetRange(n, n + 1) for n in sorted(restored)]
    )
    offset, halted = 0, False
    wanted: dict[str, list[int]] = {}
    found: dict[str, list[int]] = {}
    for poll in polls:
        records: list[Record] = []
        for kind, step in poll:
            offset += step
            records.append(made(offset, kind))
            halted = halted or (kind == "bad" and not skip and offset not in restored)
            if halted or offset in restored:
                continue
            if kind in ("a", "b", "c", "ddl a", "ddl b", "`a`"):
                wanted.setdefault(kind.replace("ddl ", "").strip("`"), []).append(offset)
        try:
            stage.route(*records)
        except UndecodableHalt:
            assert halted
        else:
            assert not halted
        for to, piece in stage.delivery.parts:
            assert not piece.alone or len(piece.messages) == 1
            found.setdefault(to.table.name, []).extend(m.offset() for m in piece.messages)
        if halted:
            break
    assert found == wanted
    assert stage.partition.tracker.unfinished == sum(len(offsets) for offsets in wanted.values())
    if not halted:
        checkpoint = stage.checkpoint()
        assert checkpoint is not None
        first = min((min(offsets) for offsets in wanted.values()), default=offset + 1)
        assert checkpoint.offset == first or (first > offset and checkpoint.offset >= first)


def test_dead_letters_of_no_table_are_counted_from_zero_on_where_they_may_come() -> None:
    for rule, known in (("dead_letter", 0), ("halt", None)):
        registry = Stage(on_undecodable=rule).metrics.registry
        assert registry.get_sample_value("binlane_dead_letters_total", {"table": "__undecodable__"}) == known


def test_undecodable_records_go_to_a_place_of_their_own_where_the_rule_says_dead_letter() -> None:
    stage = Stage(on_undecodable="dead_letter")
    nameless = record(3, database="")
    parts = stage.route(record(0), record(1, value=NO_JSON), record(2), nameless, record(4))
    assert sorted(parts) == [("__undecodable__", [1, 3]), ("shop.orders", [0, 2, 4])]
    assert stage.skipped("undecodable") == 0
    assert stage.checkpoint() == Checkpoint(0)
    assert {unit.table.label for unit in stage.book.all()} == {"shop.orders", "__undecodable__"}
    parts = stage.route(record(5, value=NO_JSON), record(6))
    assert sorted(parts) == [("__undecodable__", [5]), ("shop.orders", [6])]
    assert len(stage.book.all()) == 2
