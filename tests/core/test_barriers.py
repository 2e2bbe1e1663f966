"""Statements about several tables: all of them first finish what came before, and wait until it is done."""

from __future__ import annotations

import json
from typing import cast

import pytest
from building import Clock, assignment, record
from confluent_kafka import Message
from lane_building import closed, lanes_of, taken
from row_building import Routed, in_partition, rows, statement
from row_stepping import begun, done, handled, stepped
from structlog.testing import capture_logs

from offsets.restore import Start
from offsets.types import Checkpoint, TopicPartition
from worker.configuration.table_rules import OnFailure
from worker.fetching.routing import Router, UndecodableHalt
from worker.formats.interface import Record
from worker.lanes.lanes import Lanes
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.chunk import BarrierChunk, Chunk
from worker.units.delivery import Delivery
from worker.units.unit import UnitState
from worker.units.work import Work

RENAME = "RENAME TABLE a TO b, c TO a"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["table", "row"])
def routed(request: pytest.FixtureRequest) -> Routed:
    return Routed({"match": "shop.?"}, {"match": "old.?"}, order_by=request.param)


def ready(lanes: Lanes) -> list[str]:
    return sorted(unit.table.name for lane in lanes.lanes for unit in lane.ready)


def test_a_rename_waits_for_every_table_it_names_and_they_wait_for_it(clock: Clock, routed: Routed) -> None:
    lanes, of = lanes_of(clock, count=3), routed.partitions[0]
    before = [rows(0, 1, table="a"), rows(1, 1, table="b"), rows(2, 1, table="c")]
    after = [rows(4, 1, table="a"), rows(5, 1, table="b"), rows(6, 1, table="c"), rows(7, 1, table="d")]
    assert lanes.offer(routed.poll((of, [*before, statement(3, RENAME, "a"), *after])))
    order = [offset for batch in handled(lanes) for offset in batch]
    place = order.index(3)
    assert {0, 1, 2} == set(order[:place]) - {7}, "d has nothing to do with it"
    assert {4, 5, 6} == set(order[place + 1 :]) - {7}
    assert of.tracker.checkpoint() == Checkpoint(8)


def test_it_runs_once_and_only_other_tables_work_until_it_is_done(clock: Clock, routed: Routed) -> None:
    lanes, of = lanes_of(clock, count=3), routed.partitions[0]
    assert lanes.offer(routed.poll((of, [statement(0, RENAME, "a"), rows(1, 1, table="b")])))
    work = taken(lanes, 0)
    assert work.unit is routed.unit("a")
    others = [rows(2, 1, table="c"), rows(3, 1, table="a"), rows(4, 1, table="d")]
    assert lanes.offer(routed.poll((of, others)))
    assert ready(lanes) == ["d"]
    lanes.give_back(0, work, delay=5.0, error="it failed")
    assert handled(lanes) == [[4]]
    clock.now += 5.0
    again = taken(lanes, 0)
    assert again is work
    assert ready(lanes) == []
    done(lanes, again)
    assert sorted(handled(lanes)) == [[1], [2], [3]]


def test_statements_that_overlap_run_in_the_order_they_came_in(clock: Clock, routed: Routed) -> None:
    lanes, (here, there) = lanes_of(clock, count=3), routed.partitions
    polls = [
        (here, [rows(0, 1, table="b"), statement(1, "RENAME TABLE a TO b", "a"), rows(2, 1, table="a")]),
        (there, [in_partition(statement(0, "RENAME TABLE b TO a", "b"), 1)]),
        (here, [statement(3, "RENAME TABLE c TO b, a TO c", "c"), rows(4, 1, table="b")]),
    ]
    assert lanes.offer(routed.poll(*polls))
    assert handled(lanes) == [[0], [1], [2], [0], [3], [4]]


@pytest.mark.parametrize("name", ["_orders_gho", "ORDERS", "_Orders_new"])
def test_a_statement_of_no_rule_that_would_show_what_a_table_hides_is_that_tables(name: str) -> None:
    """gh-ost renames a column of its copy, and servers that know no case take any spelling."""
    routed = Routed({"match": "shop.orders", "columns": {"exclude": ["note"]}}, order_by="table")
    of = routed.partitions[0]
    told = [
        rows(0, 1, table=name),
        statement(1, f"ALTER TABLE {name} ADD COLUMN note text", name),
        rows(2, 1),
        statement(3, f"ALTER TABLE {name} CHANGE note remark text", name),
        statement(4, f"ALTER TABLE {name} FROBNICATE", "other"),
        rows(5, 1),
    ]
    delivery = routed.poll((of, told))
    parts = [(to.table.label, [each.offset() for each in chunk.messages]) for to, chunk in delivery.parts]
    assert parts == [("shop.orders", [offset]) for offset in (2, 3, 4, 5)]
    refused = [chunk for to, chunk in delivery.parts if chunk.alone]
    for chunk, why in zip(refused, ("would be visible as remark", "its DDL cannot be read"), strict=True):
        assert why in str(Work.of(routed.unit("orders"), [chunk]).decode(lambda *_: False))


def test_a_statement_that_spells_the_new_name_of_a_hidden_table_in_capitals_is_that_names() -> None:
    """Of a rename some tools tell the new name."""
    hiding = {"match": "shop.orders", "columns": {"exclude": ["note"]}}
    routed = Routed(hiding, {"match": "shop.plain"}, order_by="table")
    told = [rows(0, 1), statement(1, "RENAME TABLE orders TO PLAIN", "PLAIN"), rows(2, 1)]
    delivery = routed.poll((routed.partitions[0], told))
    parts = [(to.table.label, type(chunk)) for to, chunk in delivery.parts if chunk.alone]
    assert parts == [("shop.plain", Chunk), ("shop.orders", BarrierChunk)]


EXPRESSIONS = [
    rf"/{one}/"
    for one in (r"\w+\.orders", r"shop_\d{2,4}\.(users2|orders)", r"(crm|shop)\.orders", ".*orders")
]


@pytest.mark.parametrize("mode", ["halt", "skip", "dead_letter"])
@pytest.mark.parametrize("match", ["shop.orders", "shop_*.orders", *EXPRESSIONS])
def test_no_row_goes_past_a_statement_of_an_untold_database_that_could_show_it(
    match: str, mode: OnFailure
) -> None:
    """Of what Canal's parser does not understand its flat messages tell no database. A worker that starts
    again at the statement has met none."""
    routed = Routed({"match": match, "columns": {"exclude": ["note"]}}, {"match": "*"}, order_by="table")
    routed.router = Router(routed.book, Metrics(), on_undecodable=mode)
    untold = {"isDdl": True, "data": None, "database": "", "type": "QUERY"}
    plain = record(1, "", **untold, sql="ALTER TABLE users RENAME COLUMN note TO remark")
    shows = record(2, "", **untold, sql="ALTER TABLE orders RENAME COLUMN note TO remark")
    first = [] if mode == "halt" else [plain]
    delivery = Delivery()
    with pytest.raises(
        UndecodableHalt, match=r"offset 2: .*could show what column rules hide: the source renames note"
    ):
        routed.router.route(routed.partitions[0], [*first, shows, record(3, database="shop_7")], delivery)
    assert 3 not in [each.offset() for _, chunk in delivery.parts for each in chunk.messages]


def test_tables_stand_behind_one_that_halted_and_nobody_else(clock: Clock, routed: Routed) -> None:
    lanes, of = lanes_of(clock, count=3), routed.partitions[0]
    assert lanes.offer(routed.poll((of, [rows(0, 1, table="c")])))
    work = begun(lanes)
    lanes.halt(0, work, "it cannot be")
    rest = [statement(1, RENAME, "a"), rows(2, 1, table="a"), rows(3, 1, table="b"), rows(4, 1, table="d")]
    assert lanes.offer(routed.poll((of, rest)))
    assert handled(lanes) == [[4]]
    assert [routed.unit(name).state for name in "ab"] == [UnitState.WAITING_FOR_OTHERS] * 2
    assert [routed.unit(name).halted for name in "abcd"] == [False, False, True, False]


def test_when_a_partition_leaves_its_barrier_dissolves(clock: Clock, routed: Routed) -> None:
    lanes, (leaving, staying) = lanes_of(clock, count=3), routed.partitions
    assert lanes.offer(routed.poll((staying, [in_partition(rows(0, 1, table="c"), 1)])))
    work = begun(lanes)
    assert lanes.offer(routed.poll((leaving, [statement(0, RENAME, "a")])))
    rest = [in_partition(rows(n, 1, table=name), 1) for n, name in enumerate("abc", 1)]
    assert lanes.offer(routed.poll((staying, rest)))
    assert ready(lanes) == []
    assert lanes.withdraw(routed.book.all(), closed(leaving), 0.0) == []
    done(lanes, work)
    assert sorted(handled(lanes)) == [[1], [2], [3]]
    assert not any(unit.chunks for unit in routed.book.all())


def test_a_statement_that_runs_while_its_partition_leaves_is_still_waited_for(
    clock: Clock, routed: Routed
) -> None:
    lanes, (leaving, staying) = lanes_of(clock, count=3), routed.partitions
    assert lanes.offer(routed.poll((leaving, [statement(0, RENAME, "a")])))
    work = taken(lanes, 0)
    assert lanes.offer(routed.poll((staying, [in_partition(rows(0, 1, table="b"), 1)])))
    assert lanes.withdraw(routed.book.all(), closed(leaving), 0.0) == ["shop.a"]
    assert ready(lanes) == []
    lanes.give_back(0, work, delay=9.0, error="too late")
    assert handled(lanes) == [[0]]


def test_a_statement_names_tables_of_other_databases_and_those_no_rule_matches_do_not_count(
    clock: Clock, routed: Routed
) -> None:
    of = routed.partitions[0]
    delivery = routed.poll((of, [statement(0, "RENAME TABLE a TO old.a, other.x TO a", "a")]))
    assert [to.table.label for to, _ in delivery.parts] == ["shop.a", "old.a"]
    assert delivery.records == {routed.unit("a").lane: 1}


def test_a_name_without_its_database_stands_for_the_tables_of_that_name(clock: Clock) -> None:
    """Of a statement that ran in another database than the table's, tools do not say in which."""
    routed = Routed({"match": "*"}, order_by="table")
    of = routed.partitions[0]
    routed.book.meet("sales", "a")
    routed.book.meet("stock", "a")
    delivery = routed.poll((of, [statement(0, "ALTER TABLE a RENAME TO shop.b", "b")]))
    labels = sorted(to.table.label for to, _ in delivery.parts)
    assert labels == ["sales.a", "shop.b", "stock.a"]


def test_an_ordinary_statement_is_its_own_tables_alone(clock: Clock, routed: Routed) -> None:
    of = routed.partitions[0]
    delivery = routed.poll((of, [statement(0, "ALTER TABLE a ADD b int, ADD c int", "a")]))
    assert [(to.table.name, piece.barrier) for to, piece in delivery.parts] == [("a", None)]


@pytest.mark.parametrize("met", [True, False], ids=["met", "not met"])
@pytest.mark.parametrize(
    "sql", ["RENAME TABLE A TO B", "ALTER TABLE A RENAME TO B", "ALTER TABLE A ADD c int"]
)
def test_a_statement_in_capitals_stops_the_tables_as_their_rows_spell_them(
    clock: Clock, routed: Routed, sql: str, *, met: bool
) -> None:
    lanes, of = lanes_of(clock, count=3), routed.partitions[0]
    if met:
        assert lanes.offer(routed.poll((of, [rows(0, 1, table="a"), rows(1, 1, table="b")])))
        assert sorted(handled(lanes)) == [[0], [1]]
    assert lanes.offer(routed.poll((of, [statement(2, sql, "A")])))
    lanes.halt(0, begun(lanes), "it is refused")
    assert lanes.offer(routed.poll((of, [rows(n, 1, table=name) for n, name in enumerate("abd", 3)])))
    assert sorted(handled(lanes)) == ([[5]] if "RENAME" in sql else [[4], [5]])


@pytest.mark.parametrize("match", ["shop.orders", "shop.*"])
def test_a_statement_in_capitals_is_told_if_rows_come_in_lower_case(match: str) -> None:
    """Servers without case log a statement as it was typed: nothing is done to the table of the rows."""
    routed, of = Routed({"match": match}, order_by="table"), assignment(0)
    told = [rows(0, 1), statement(1, "TRUNCATE TABLE ORDERS", "ORDERS"), rows(2, 1, table="Users")]
    others = [
        statement(3, "ALTER TABLE Users ADD c int", "Users"),
        statement(4, "ALTER TABLE orders ADD c int"),
    ]
    with capture_logs() as logs:
        routed.poll((of, [*told, *others, statement(5, "ALTER TABLE Users ADD d int", "Users")]))
    [line] = [log for log in logs if log["event"] == "statement_in_capitals"]
    assert (line["log_level"], line["table"], line["rows_of"]) == ("error", "shop.ORDERS", "shop.orders")
    assert line["position"] == "cdc.shop[0] offset 1"


def test_a_table_that_was_created_in_capitals_stops_as_its_rows_spell_it() -> None:
    """Debezium tells of it the name that CREATE TABLE spelled."""
    routed = Routed({"match": "shop.*", "columns": {"exclude": ["note"]}}, order_by="table")
    start = Start("earliest", (), "initial", "a test")
    of = Assignment(TopicPartition("cdc.shop", 0), 1, start, routed.format("debezium"))
    source = {"connector": "mysql", "name": "cdc", "db": "shop", "ts_ms": 1, "file": "b.1", "pos": 4}
    renames = {"ddl": "ALTER TABLE ORDERS CHANGE note remark text", "source": {**source, "table": "ORDERS"}}
    row = {"op": "c", "source": {**source, "table": "orders"}, "after": {"id": 1}, "before": None}
    told = [json.dumps(one).encode() for one in (row, {**renames, "databaseName": "shop"}, row)]
    messages = [Message(topic="cdc.shop", partition=0, offset=n, value=one) for n, one in enumerate(told)]
    delivery = routed.poll((of, cast(list[Record], messages)))
    parts = [(to.table.label, type(chunk)) for to, chunk in delivery.parts if chunk.alone]
    assert parts == [("shop.ORDERS", Chunk), ("shop.orders", BarrierChunk)]


def test_all_places_of_a_barrier_come_at_once_however_a_delivery_is_cut(clock: Clock, routed: Routed) -> None:
    """Else some would be held back by the bounds while others wait for them."""
    of = routed.partitions[0]
    records = [rows(n, 1, table="a") for n in range(3)]
    delivery = routed.poll((of, [*records, statement(3, RENAME, "a"), rows(4, 1, table="c")]))
    pieces = delivery.pieces(max_records=1, max_bytes=10**9)
    whole = next(piece for piece in pieces if any(part.alone for _, part in piece.parts))
    assert [to.table.name for to, part in whole.parts if part.alone] == ["a", "b", "c"]
    lanes = lanes_of(clock, count=3, max_records=1)
    for piece in pieces:
        while not lanes.offer(piece):
            stepped(lanes)
    handled(lanes)
    assert of.tracker.checkpoint() == Checkpoint(5)


def test_a_statement_that_cannot_be_decoded_is_left_to_its_own_table(clock: Clock, routed: Routed) -> None:
    bad = record(0, "a", isDdl=True, type="ALTER", sql=["RENAME TABLE a TO b"], data=None)
    delivery = routed.poll((routed.partitions[0], [bad]))
    assert [(to.table.name, part.alone) for to, part in delivery.parts] == [("a", True)]
