"""Column rules where batches are decoded: what handlers get, what faults tell, what others pay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from building import (
    TOPIC,
    Scripted,
    assignment,
    chunk,
    configuration,
    ddl,
    delivery,
    record,
    runs_of,
    seen,
    work,
)
from processing import Stage

from handlers import Change
from worker.attempts.circuit import BoundHandler
from worker.column_rules.judging import Unmet
from worker.formats.interface import Record, UndecodableRecord
from worker.lanes.batch_cutting import rebind
from worker.units.sharding import spread
from worker.units.table import Table
from worker.units.table_book import TableBook
from worker.units.unit import Shards, Unit, UnitState
from worker.units.work import Work

SECRET = {"masking": {"secret": "0123456789abcdef"}}
EMAIL = {"data": [{"id": "1", "email": "ada@x"}], "mysqlType": {"id": "bigint", "email": "varchar(50)"}}


HANDLER = BoundHandler("h0", (Scripted(),))  # a reload keeps it


def table(name: str = "orders", bound: Sequence[BoundHandler] = (HANDLER,), **rule: Any) -> Table:
    made = configuration(rule, **SECRET)
    return Table("shop", name, made.tables[0], bound)


def refuse(_record: Record, _fault: UndecodableRecord) -> bool:
    return False


def decoded(of: Table, records: Sequence[Record]) -> Work:
    made = work(Unit(of, 0), chunk(assignment(), list(records)))
    assert made.decode(refuse) is None
    return made


def after_of(made: Work) -> list[Any]:
    return [change.after for change in made.changes or ()]


def test_handlers_get_what_the_rules_leave() -> None:
    made = decoded(table(columns={"exclude": ["email"]}), [record(0, **EMAIL), record(1, **EMAIL)])
    assert after_of(made) == [{"id": 1}, {"id": 1}]
    assert made.batch(0, 2, 1).changes[0].types == {"id": "bigint"}


def test_a_row_that_the_filter_does_not_take_leaves_a_record_without_changes() -> None:
    made = decoded(table(filter="id > 100", deletes="ignore"), [record(0), record(1), record(2)])
    assert [change.offset for change in made.changes or ()] == [2]
    assert list(made.ends) == [0, 0, 1]
    assert made.finish_changes(1) == 3


def test_a_table_without_rules_has_the_changes_of_its_format_themselves(monkeypatch: Any) -> None:
    decoded_by_format: list[Change] = []
    of = assignment()
    plain = of.decode_many

    def decode_many(
        name: str, records: Iterator[Record], into: list[Change], ends: list[int]
    ) -> Record | None:
        left = plain(name, records, into, ends)
        decoded_by_format.extend(into)
        return left

    monkeypatch.setattr(of, "decode_many", decode_many)
    # Another table has rules, which costs this one nothing.
    rules = configuration(
        {"match": "shop.users", "columns": {"exclude": ["x"]}}, {"match": "*"}, **SECRET
    ).tables
    own = Table("shop", "orders", rules[1], [BoundHandler("h0", (Scripted(),))])
    made = work(Unit(own, 0), chunk(of, [record(0), record(1)]))
    assert made.decode(refuse) is None
    assert made.changes is not None
    assert all(one is other for one, other in zip(made.changes, decoded_by_format, strict=True))
    assert made.batch(0, 2, 1).changes is made.changes


def test_the_fault_of_a_record_under_rules_holds_none_of_its_values() -> None:
    bad = record(0, **{**EMAIL, "data": [{"id": "hidden-1", "email": "ada@x"}]})
    plain = work(Unit(table(), 0), chunk(assignment(), [bad]))
    fault = plain.decode(refuse)
    assert fault is not None
    assert "hidden-1" in str(fault[1])
    under = work(Unit(table(columns={"exclude": ["email"]}), 0), chunk(assignment(), [bad]))
    fault = under.decode(refuse)
    assert fault is not None
    assert "hidden-1" not in str(fault[1])
    assert f"{TOPIC}[0] offset 0" in str(fault[1])


def test_what_the_rules_have_no_place_for_is_that_records_fault_alone() -> None:
    rules = table(columns={"cast": {"email": "integer"}})
    records = [record(0), record(1, **EMAIL), record(2)]
    made = work(Unit(rules, 0), chunk(assignment(), records))
    place, fault = made.decode(refuse) or (None, None)
    assert place == 1
    assert str(fault) == f"column email: a value cannot be cast to bigint (at {TOPIC}[0] offset 1)"
    assert made.decode(lambda _record, _fault: True) is None
    assert [change.offset for change in made.changes or ()] == [0, 2]


@pytest.mark.parametrize("rule", ["halt", "skip", "dead_letter"])
def test_a_table_halts_at_a_statement_that_its_rules_refuse_whatever_becomes_of_bad_records(
    rule: Literal["halt", "skip", "dead_letter"],
) -> None:
    """Rows behind it would show what the rules hide."""
    stage, handler = Stage(on_undecodable=rule), Scripted()
    made = configuration({"columns": {"exclude": ["email"]}})
    orders = Unit(Table("shop", "orders", made.tables[0], [BoundHandler("h0", (handler,))]), 0)
    renames = {"isDdl": True, "type": "ALTER", "sql": "ALTER TABLE orders CHANGE email e text", "data": None}
    behind = record(2, data=[{"id": "1", "e": "ada@x"}], mysqlType={"id": "bigint", "e": "text"})
    pieces = [
        chunk(stage.partition, [record(0, **EMAIL)]),
        chunk(stage.partition, [record(1, **renames)], alone=True),
        chunk(stage.partition, [behind]),
    ]
    stage.lanes.offer(delivery(*((orders, piece) for piece in pieces)))
    stage.run(orders)
    assert seen(handler) == [[0]]
    assert orders.state is UnitState.HALTED
    assert "its values would be visible as e" in (orders.error or "")


def test_rows_are_spread_by_the_keys_that_leave() -> None:
    rules = table(columns={"mask": {"id": "hash"}, "rename": {"id": "number"}})
    unit = Unit(rules, 0)
    unit.shards = Shards()
    made = work(unit, chunk(assignment(), [record(0), record(1), record(2)]))
    assert made.decode(refuse) is None
    result = spread(made)
    assert not result.rest
    found = [change for _, part in result.parts for change in part.changes]
    assert {change.key_columns for change in found} == {("number",)}
    assert all(len((change.key or {})["number"]) == 64 for change in found)


def test_a_batch_that_nothing_is_done_of_goes_on_by_the_rules_as_they_are_now() -> None:
    made = decoded(table(), [record(0, **EMAIL)])
    made.runs = [run] = runs_of(made)
    made.unit.table = table(columns={"exclude": ["email"]})
    rebind(made)
    assert not made.runs  # so that it is decoded anew
    assert made.decode(refuse) is None
    assert after_of(made) == [{"id": 1}]
    made.runs = [run] = runs_of(made)
    run.done = 1  # it has part of it: the others get the same
    made.unit.table = table()
    rebind(made)
    assert made.runs == [run]


@pytest.mark.parametrize("name", ["h0", "h1"])
def test_a_handler_that_comes_with_other_rules_gets_nothing_by_those_of_before(name: str) -> None:
    """A handler that has the batch gets it again, as after a restart."""
    made = decoded(table(), [record(0, **EMAIL)])
    made.runs = [run] = runs_of(made)
    run.done = 1
    made.unit.table = table(bound=[HANDLER, BoundHandler(name, (Scripted(),))])
    rebind(made)
    assert run in made.runs, "its rules are the same"
    made.unit.table = table(bound=[BoundHandler(name, (Scripted(),))], columns={"exclude": ["email"]})
    rebind(made)
    assert not made.runs
    assert made.decode(refuse) is None
    assert [change.after for change in made.batch(0, 1, 1).changes] == [{"id": 1}]


def test_a_handler_that_comes_later_gets_nothing_by_rules_that_a_former_reload_changed() -> None:
    """A batch may keep the rules of several reloads ago."""
    hides: dict[str, Any] = {"columns": {"exclude": ["email"]}}
    made = decoded(table(), [record(0, **EMAIL)])
    made.runs = [run] = runs_of(made)
    run.done = 1
    made.unit.table = table(**hides)
    assert rebind(made)
    assert made.runs == [run], "it is partly applied"
    made.unit.table = table(bound=[HANDLER, BoundHandler("h1", (Scripted(),))], **hides)
    assert rebind(made)
    assert not made.runs
    assert made.decode(refuse) is None
    assert [change.after for change in made.batch(0, 1, 1).changes] == [{"id": 1}]


def test_what_a_handler_has_that_a_reload_removes_keeps_no_rules_for_the_others() -> None:
    others = BoundHandler("h1", (Scripted(),))
    made = decoded(table(bound=[HANDLER, others]), [record(0, **EMAIL)])
    made.runs = [run, _] = runs_of(made)
    run.done = 1
    made.unit.table = table(bound=[others], columns={"exclude": ["email"]})
    assert rebind(made)
    assert not made.runs
    assert made.decode(refuse) is None
    assert [change.after for change in made.batch(0, 1, 1).changes] == [{"id": 1}]


@pytest.mark.parametrize("done", [1, 2])
def test_the_rest_of_a_batch_goes_by_present_rules_unless_a_handler_has_some_of_it(done: int) -> None:
    made = decoded(table(), [record(number, **EMAIL) for number in range(3)])
    made.runs = [run] = runs_of(made)
    run.done = done
    made.finish_records(1)
    before = made.unit.table
    made.unit.table = table(columns={"exclude": ["email"]})
    assert rebind(made) is (done > 1)
    if done > 1:
        assert (made.runs, made.ruled_by) == ([run], before)


def test_a_batch_that_is_partly_done_keeps_its_rules_though_its_handler_had_the_rows() -> None:
    """They are decoded again. By other rules, `done` would count other changes."""
    own: dict[str, Any] = {"handlers": [{"type": "my_package:Handler"}]}
    rows = [{**EMAIL, "data": [{"id": str(number), "email": "ada@x"}]} for number in range(4)]
    made = decoded(table(**own), [record(number, **row) for number, row in enumerate(rows)])
    made.runs = [run] = runs_of(made)
    first, *_ = made.batch(0, 4, 1).changes
    (first.after or {}).clear()  # a handler may do this
    run.done = 2
    made.unit.table = table(filter="id > 1", deletes="ignore", **own)  # leaves two changes of four
    rebind(made)
    assert [change.offset for change in made.batch(2, 4, 1).changes] == [2, 3]


def test_a_statement_leaves_under_the_rules_too() -> None:
    rules = table(columns={"exclude": ["x"], "rename": {"y": "z"}})
    statements = [
        ddl(0),  # ALTER TABLE orders ADD x int
        record(1, isDdl=True, type="ALTER", sql="ALTER TABLE orders ADD y int COMMENT 'hidden-1'", data=None),
    ]
    left = []
    for each in statements:
        made = work(Unit(rules, 0), chunk(assignment(), [each], alone=True))
        assert made.decode(refuse) is None
        left += [change.sql for change in made.changes or ()]
    assert left == ["ALTER TABLE `shop`.`orders` ADD COLUMN `z` int"]


def test_a_statement_goes_by_the_rules_after_a_reload_though_its_own_table_has_the_same() -> None:
    handlers = [BoundHandler("h0", (Scripted(),))]
    plain: dict[str, Any] = {"match": "*"}
    book = TableBook(configuration({"match": "shop.users"}, plain, **SECRET), lambda _: handlers)
    unit = book.meet("shop", "orders")
    assert unit is not None
    hides = {"match": "shop.users", "columns": {"exclude": ["ssn"]}}
    assert book.adopt(configuration(hides, plain, **SECRET)) == []
    fields: dict[str, Any] = {"isDdl": True, "type": "ALTER", "data": None}
    statement = record(0, sql="ALTER TABLE users ADD ssn int COMMENT 'secret'", **fields)
    made = work(unit, chunk(assignment(), [statement], alone=True))
    assert made.decode(refuse) is None
    assert made.changes == ()


def test_a_statement_that_waits_for_its_target_goes_by_the_rules_after_a_reload() -> None:
    """They may hide what rows show after it, though its own table has the same rule as before."""
    handlers = [BoundHandler("h0", (Scripted(),))]
    plain, one = {"match": "*"}, {**SECRET, "lanes": {"count": 1}}
    book = TableBook(configuration({"match": "shop.users"}, plain, **one), lambda _: handlers)
    unit, stage = book.meet("shop", "people"), Stage()
    assert unit is not None
    rename = {"isDdl": True, "type": "ALTER", "sql": "RENAME TABLE users TO people", "data": None}
    stage.lanes.offer(delivery((unit, chunk(stage.partition, [record(0, "people", **rename)], alone=True))))
    made = stage.lanes.take(0)
    assert made is not None
    assert made.decode(refuse) is None
    made.runs = runs = runs_of(made)
    stage.lanes.give_back(0, made, delay=0.0, error="it is down")
    assert stage.lanes.take(0) is made
    assert made.runs is runs  # attempts are counted on
    stage.lanes.give_back(0, made, delay=0.0, error="it is down")
    hides = {"match": "shop.users", "columns": {"exclude": ["ssn"]}}
    stage.lanes.give_tables(book.adopt(configuration(hides, plain, **one)))
    assert stage.lanes.take(0) is made
    assert not made.runs  # so that it is decoded anew
    _, fault = made.decode(refuse) or (None, None)
    assert "its rows would show hidden data from now on" in str(fault)


def test_rows_that_wait_in_their_shards_go_by_the_rules_after_a_reload() -> None:
    whole = Unit(table(), 0)
    whole.shards = Shards()
    rows = {"data": [{"id": str(n), "email": "ada@x"} for n in range(40)]}
    made = work(whole, chunk(assignment(), [record(n, **{**EMAIL, **rows}) for n in range(3)]))
    assert made.decode(refuse) is None
    parts = spread(made).parts
    before = {number: [(c.offset, c.index) for c in part.changes] for number, part in parts}
    assert len(parts) > 1
    whole.table = table(columns={"exclude": ["email"]})
    for number, part in parts:
        after = work(whole.shards.get(whole, number, 4), part.part(0, 2))
        assert after.decode(refuse) is None
        assert {tuple(change.after or {}) for change in after.changes or ()} == {("id",)}
        assert [(c.offset, c.index) for c in after.changes or ()] == [
            each for each in before[number] if each[0] < 2
        ]


def test_rows_that_wait_are_judged_by_the_expectations_after_a_reload() -> None:
    """In shards, and in a batch that waits for its retry."""
    expecting = table(expect={"known": {"check": "email <> 'ada@x'", "on_failure": "halt"}})
    whole = Unit(table(), 0)
    whole.shards = Shards()
    made = work(whole, chunk(assignment(), [record(0, **EMAIL)]))
    assert made.decode(refuse) is None
    [(number, part)] = spread(made).parts
    whole.table = expecting
    shard = work(whole.shards.get(whole, number, 4), part)
    waiting = decoded(table(), [record(0, **EMAIL)])
    waiting.runs = runs_of(waiting)
    waiting.unit.table = expecting
    rebind(waiting)
    assert waiting.runs == []
    for each in (shard, waiting):
        assert (found := each.decode(refuse)) is not None
        assert isinstance(found[1], Unmet)


def test_rows_by_other_rules_wait_for_those_that_were_spread_before_a_reload() -> None:
    """By these a row may have another key, and so another shard: the earlier change of it comes first."""
    unit = Unit(table(), 0)
    unit.shards = Shards()

    def spread_one(offset: int) -> tuple[int, int]:
        made = work(unit, chunk(assignment(), [record(offset, **EMAIL)]))
        assert made.decode(refuse) is None
        result = spread(made)
        return len(result.parts), sum(each.alone for each in result.rest)

    assert spread_one(0) == (1, 0)
    unit.table = table(columns={"mask": {"id": "hash"}})
    assert spread_one(1) == (0, 1)
    unit.shards.key_columns = None  # as after the barrier
    assert spread_one(2) == (1, 0)


def test_a_statement_about_users_is_no_change_of_the_table() -> None:
    """It may hold a password, which handlers would log, write or apply."""
    of = Unit(table(), 0)
    grant = record(0, isDdl=True, type="QUERY", sql="GRANT ALL ON *.* TO a IDENTIFIED BY 'x'", data=None)
    alone = chunk(assignment(), [grant])
    alone.alone = True
    made = work(of, alone)
    assert made.decode(refuse) is None
    assert made.changes == ()
    assert list(made.ends) == [0]
