"""`transform` in a worker: retries, splitting, dead letters, rows in shards, child processes, reloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import row_functions
from building import Scripted, assignment, chunk, configuration, delivery, record, runs_of, seen, unit, work
from process_stage import ProcessStage
from processing import NOW, Stage
from row_building import key_change, rows
from test_dead_letters import Letters, staged

from handlers import Batch, Handler, PartialFailure, Rejected
from handlers.rows import on_rows, shard_of
from offsets.types import Checkpoint
from worker.attempts.circuit import BoundHandler
from worker.configuration import TableRule
from worker.lanes.batch_cutting import rebind
from worker.units.table import Table
from worker.units.unit import Shards, Unit, UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def named(function: str, *, per_batch: bool = False) -> dict[str, Any]:
    return {"transform": {"function": f"{row_functions.__name__}:{function}", "per_batch": per_batch}}


def rule_of(function: str, *, per_batch: bool = False, **keys: Any) -> TableRule:
    rule = {"retry": NOW | {"max_attempts": 2}, "on_failure": "dead_letter"}
    sections = {"masking": {"secret": "0123456789abcdef"}}
    return configuration({**rule, **named(function, per_batch=per_batch), **keys}, **sections).tables[0]


def table(rule: TableRule, *handlers: Handler, by_row: bool = False) -> Unit:
    bound = [BoundHandler(f"h{place}", (handler,)) for place, handler in enumerate(handlers)]
    made = Unit(Table("shop", "orders", rule, bound, by_row=by_row), 0)
    made.shards = Shards() if by_row else None
    return made


def ids(handler: Scripted) -> list[list[int]]:
    """Of each call. The records 0, 1, 2 ... of the tests have the rows 0, 100, 200 ..."""
    return [[change.after["id"] for change in batch.changes if change.after] for batch in handler.batches]


# ---- failures


@pytest.mark.parametrize(
    ("function", "per_batch", "reason"),
    [
        ("fails", False, "RuntimeError: transform row_functions:fails: KeyError: 'no such country'"),
        ("fails_for_some", True, "transform row_functions:fails_for_some: ValueError: 7 is among"),
        ("rejects", False, "Rejected: transform row_functions:rejects: no 7"),
        ("rejects_in_batch", True, "Rejected: transform row_functions:rejects_in_batch: no 7"),
    ],
)
def test_the_failing_row_is_a_dead_letter_and_the_others_are_handled(
    function: str, per_batch: bool, reason: str
) -> None:
    letters = Letters()
    stage, handler = staged(letters), Scripted()
    orders = table(rule_of(function, per_batch=per_batch), handler)
    stage.offer((orders, range(12)))
    stage.run(orders)
    assert letters.sent == [(7, "shop.orders", "h0", 0)]
    assert reason in letters.errors[0]
    assert [number for call in ids(handler) for number in call] == [n * 100 for n in range(12) if n != 7]
    assert stage.checkpoint() == Checkpoint(12)


def test_an_error_is_retried_before_it_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def flaky(change: Any) -> Any:
        calls.append(change.after["id"])
        if len(calls) == 2:
            raise OSError("the lookup was slow")
        return change

    monkeypatch.setattr(row_functions, "note", flaky)
    stage, handler = Stage(), Scripted()
    orders = table(rule_of("note"), handler)
    stage.offer((orders, range(3)))
    stage.run(orders)
    assert calls == [0, 100, 0, 100, 200]
    assert handler.calls == [(2, [(0, 0), (1, 0), (2, 0)])]
    assert stage.checkpoint() == Checkpoint(3)


def test_while_its_lookup_is_away_only_this_table_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROW_FUNCTIONS_FILE", str(tmp_path / "there"))
    stage, handler = Stage(), Scripted()
    orders = table(rule_of("waits"), handler)
    bound = orders.table.handlers[0]
    items = unit("items")
    items.table = Table("shop", "items", items.table.rule, [bound])
    stage.offer((orders, [0]), (items, [1]))
    stage.start()
    stage.wait(lambda: items.finished_records == 1 and orders.blocked)
    assert bound.circuit.closed
    (tmp_path / "there").touch()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert {batch.attempt for batch in handler.batches} == {1}


@pytest.mark.parametrize("place", range(8))
def test_places_in_a_handlers_errors_are_those_of_its_changes(place: int) -> None:
    """The function makes two changes of each: a rejected one leads back to its record."""
    letters, done = Letters(), list[int]()

    def script(batch: Batch) -> None:
        found = [change.after["id"] for change in batch.changes if change.after]
        bad = (place // 2) * 100 + place % 2 * 100
        wanted = [
            at for at, change in enumerate(batch.changes) if (change.offset, at % 2) == divmod(place, 2)
        ]
        if wanted:
            raise Rejected(f"no {bad}", at=wanted[0])
        done.extend(found)

    stage, handler = staged(letters), Scripted(script)
    orders = table(rule_of("double", per_batch=True), handler)
    stage.offer((orders, range(4)))
    stage.run(orders)
    assert [letter[0] for letter in letters.sent] == [place // 2]
    assert done == [one for n in range(4) if n != place // 2 for one in (n * 100, n * 100 + 100)]


@pytest.mark.parametrize(("done", "first"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_partial_failure_continues_with_the_first_change_that_is_not_done_completely(
    done: int, first: int
) -> None:
    failures = [PartialFailure(done, ValueError("the rest"))]

    def script(_batch: Batch) -> None:
        if failures:
            raise failures.pop()

    stage, handler = Stage(), Scripted(script)
    orders = table(rule_of("double", per_batch=True), handler)
    stage.offer((orders, range(4)))
    stage.run(orders)
    assert [sorted(set(call)) for call in seen(handler)] == [[0, 1, 2, 3], list(range(first, 4))]
    assert stage.checkpoint() == Checkpoint(4)


@pytest.mark.parametrize("error", [PartialFailure(3), Rejected("no", at=3), Rejected("no", at=-1)])
def test_a_place_that_the_handler_was_not_given_is_none(error: Exception) -> None:
    """The function leaves out two of four changes: no other change is skipped, or counts as done."""
    letters = Letters()

    def script(batch: Batch) -> None:
        if any(change.after and change.after["id"] == 200 for change in batch.changes):
            raise error

    stage, handler = staged(letters), Scripted(script)
    orders = table(rule_of("without_odd"), handler)
    stage.offer((orders, range(4)))
    stage.run(orders)
    assert [letter[0] for letter in letters.sent] == [2]
    assert [0] in ids(handler)


def test_changes_that_it_leaves_out_are_finished_and_count_as_done() -> None:
    failures = [PartialFailure(1, ValueError("the rest"))]

    def script(_batch: Batch) -> None:
        if failures:
            raise failures.pop()

    names = ["x", "draft", "draft", "y"]
    types = {"mysqlType": {"id": "bigint", "name": "text"}}
    records = [record(n, data=[{"id": str(n), "name": name}], **types) for n, name in enumerate(names)]
    stage, handler = Stage(), Scripted(script)
    orders = table(rule_of("without_drafts"), handler)
    stage.lanes.offer(delivery((orders, chunk(stage.partition, records))))
    stage.run(orders)
    assert seen(handler) == [[0, 3], [3]]
    assert stage.checkpoint() == Checkpoint(4)


def test_each_handler_gets_rows_of_its_own() -> None:
    def changing(batch: Batch) -> None:
        for change in batch.changes:
            assert change.after == {"id": change.offset * 100}
            change.after["id"] = -1

    stage = Stage()
    orders = table(rule_of("note"), Scripted(changing), Scripted(changing))
    stage.offer((orders, range(3)))
    stage.run(orders)
    assert stage.checkpoint() == Checkpoint(3)


# ---- rows in shards


def test_in_row_order_all_handlers_get_transformed_rows() -> None:
    stage, handler = Stage(lanes=4), Scripted()
    orders = table(rule_of("upper"), handler, by_row=True)
    types = {"mysqlType": {"id": "bigint", "name": "text"}}
    records = [record(n, data=[{"id": str(n % 5), "name": "x"}], **types) for n in range(20)]
    stage.lanes.offer(delivery((orders, chunk(stage.partition, records))))
    stage.run(until=lambda: stage.checkpoint() == Checkpoint(20))
    found = [change for batch in handler.batches for change in batch.changes]
    assert {change.after["name"] for change in found if change.after} == {"X"}
    assert sorted(change.offset for change in found) == list(range(20))


def test_in_row_order_a_row_whose_key_changes_is_a_dead_letter() -> None:
    letters = Letters()
    stage, handler = Stage(lanes=2, letters=letters), Scripted()  # type: ignore[arg-type]  # only `send`
    orders = table(rule_of("lower_key"), handler, by_row=True)
    records = [rows(0, "A"), rows(1, "b"), rows(2, "C")]
    stage.lanes.offer(delivery((orders, chunk(stage.partition, records))))
    stage.run(until=lambda: stage.checkpoint() == Checkpoint(3))
    assert sorted(letter[0] for letter in letters.sent) == [0, 2]
    assert all("changed a key, but lanes.order_by is row" in error for error in letters.errors)


@pytest.mark.parametrize(
    ("columns", "refused"), [({"rename": {"id": "key"}}, 0), ({"mask": {"id": "hash"}}, 4)]
)
def test_in_row_order_targets_get_keys_of_the_shard(columns: dict[str, Any], refused: int) -> None:
    """Targets keep marks for each shard, and ask to which shard a change belongs."""
    letters = Letters()
    stage, handler = Stage(lanes=4, letters=letters), Scripted()  # type: ignore[arg-type]  # only `send`
    orders = table(rule_of("upper", columns=columns), handler, by_row=True)
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rows(n, n) for n in range(4)]))))
    stage.run(until=lambda: stage.checkpoint() == Checkpoint(4))
    assert len(letters.sent) == refused
    assert all("or columns changed a key" in error for error in letters.errors)
    for batch in handler.batches:
        assert {shard_of(change) for change in batch.changes} == {batch.shard}


def test_a_key_that_the_columns_refuse_is_told_when_its_row_is_handled() -> None:
    letters = Letters()
    stage = Stage(lanes=2, letters=letters)  # type: ignore[arg-type]  # only `send` is used
    orders = table(rule_of("upper", columns={"exclude": ["id"]}), Scripted(), by_row=True)
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rows(0, 1), rows(1, 2)]))))
    stage.run(until=lambda: stage.checkpoint() == Checkpoint(2))
    assert [letter[0] for letter in letters.sent] == [0, 1]
    assert "id is a primary key column, and columns leaves it out" in letters.errors[0]


# ---- child processes


@pytest.mark.parametrize("by_row", [False, True])
def test_it_runs_in_the_child_processes(make: Make, writing: Entry, by_row: bool) -> None:
    function = {"transform": "row_functions:" + ("with_pid_alone" if by_row else "with_pid")}
    stage = make({"handlers": [writing()], "batch": {"max_records": 3}, **function}, lanes=4)
    orders = stage.unit("orders")
    if by_row:
        orders.table = Table("shop", "orders", orders.table.rule, orders.table.handlers, by_row=True)
        orders.shards = Shards()
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rows(n, n) for n in range(40)]))))
    stage.start()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(40))
    calls = stage.events(table="shop.orders")
    moved = 0 if by_row else 1000
    assert sorted(number for call in calls for number in call["ids"]) == [n + moved for n in range(40)]
    assert {call["pid"] for call in calls} <= set(stage.pids())
    assert all(f"of {call['pid']}" in call["types"] for call in calls)


def test_a_failing_row_in_a_child_process_is_skipped_alone(make: Make, writing: Entry) -> None:
    rule = {"retry": NOW | {"max_attempts": 2}, "on_failure": "skip"}
    stage = make({"handlers": [writing()], **rule, **named("fails")})
    orders = stage.unit("orders")
    stage.offer((orders, range(12)))
    stage.run(orders)
    assert [number for call in stage.ids("orders") for number in call] == [
        n * 100 for n in range(12) if n != 7
    ]
    assert stage.counted('binlane_records_skipped_total{reason="failed"} 1.0')


def test_a_move_reaches_a_child_process_whole(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()], **named("upper")}, lanes=4)
    orders = stage.unit("orders")
    orders.table = Table("shop", "orders", orders.table.rule, orders.table.handlers, by_row=True)
    orders.shards = Shards()
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rows(0, 1), key_change(1, 1, 3)]))))
    stage.start()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(2))
    assert stage.ids("orders") == [[1], [None, 3]]


# ---- reloads


def test_a_batch_of_which_nothing_is_done_takes_another_transform() -> None:
    made = work(table(rule_of("fails"), Scripted()), chunk(assignment(), [record(7)]))
    made.runs = runs_of(made)
    made.unit.table = Table("shop", "orders", rule_of("note"), made.table.handlers)
    rebind(made)
    assert made.ruled_by is made.unit.table
    handler = Scripted()
    made.call(handler, made.batch(0, 1, 1))
    assert ids(handler) == [[700]]


def test_a_batch_that_is_partly_done_keeps_its_transform() -> None:
    """Rows that its handlers have got and the rest of them were made alike: no mask is applied twice."""
    masked = {"columns": {"mask": {"id": "hash"}}}
    rule = {**masked, "on_failure": "dead_letter"}
    before = configuration(rule, masking={"secret": "0123456789abcdef"}).tables[0]
    made = work(table(before, Scripted()), chunk(assignment(), [record(0), record(1)]))
    made.runs = [run] = runs_of(made)
    run.done = 1
    made.unit.table = Table("shop", "orders", rule_of("fails", **masked), made.table.handlers)
    rebind(made)
    handler = Scripted()
    made.call(handler, made.batch(1, 2, 1))
    expected = made.changes[1].after if made.changes else None
    assert [change.after for change in handler.batches[0].changes] == [expected]


def test_a_batch_that_is_partly_done_keeps_its_transform_when_its_rows_go_to_a_child_process(
    make: Make, writing: Entry
) -> None:
    """Without a transform, the child decodes for a handler that stays here. It does not know the former one,
    which also applies the column rules."""
    rule = {"handlers": [writing("AskingForRows")], "columns": {"mask": {"name": "redact"}}}
    stage = make({**rule, **named("upper")})
    records = [record(n, data=[{"id": str(n), "name": "secret"}]) for n in range(2)]
    made = work(stage.unit("orders"), chunk(stage.partition, records))
    assert made.table.elsewhere is None
    made.runs = [run] = runs_of(made)
    run.done = 1
    stage.handlers.adopt(stage.handlers.plan(stage.configured(rule)))
    made.unit.table = stage.unit("orders").table
    assert made.unit.table.elsewhere is not None
    rebind(made)
    rows: list[Any] = []
    handler = Scripted(lambda batch: rows.extend(each.after for each in on_rows(batch.changes, list)))
    made.call(handler, made.batch(1, 2, 1))
    assert [row["name"] for row in rows] == ["***"]


def test_all_of_it_is_taken_by_a_table_that_halted() -> None:
    stage, handler = Stage(), Scripted()
    orders = table(rule_of("fails", on_failure="halt"), handler)
    stage.offer((orders, [7]))
    stage.start()
    stage.wait(lambda: orders.state is UnitState.HALTED)
    other = Table("shop", "orders", rule_of("upper"), orders.table.handlers)
    with stage.lanes.lock:
        stage.lanes.schedule.give_table(orders, other)
        stage.lanes.schedule.wake()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(8))
    assert ids(handler) == [[700]]
