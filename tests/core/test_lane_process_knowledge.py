"""What child processes know: configurations, table definitions, and what statements make wrong."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from building import TOPIC, chunk, ddl, delivery, record
from process_stage import ProcessStage
from processing import NOW
from structlog.testing import capture_logs

from worker.configuration import Configuration, TableRule
from worker.configuration.formats import formats_of
from worker.formats.interface import SeparateDDL
from worker.processes import process
from worker.units.chunk import Barrier, BarrierChunk
from worker.units.unit import UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


@contextmanager
def noted_asks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    asked: list[tuple[Any, ...]] = []
    ask = process.Process.ask

    def noted(self: process.Process, *what: Any, **more: Any) -> Any:
        asked.append(what)
        return ask(self, *what, **more)

    with monkeypatch.context() as patched:
        patched.setattr(process.Process, "ask", noted)
        yield asked


def test_a_statement_that_fails_renews_processes_once_for_its_other_tables(
    make: Make, writing: Entry
) -> None:
    rule = {"retry": NOW | {"max_attempts": 5}, "on_failure": "skip"}
    stage = make({"handlers": [writing(does={"None": "fail"}, name="h")], **rule}, processes=3, lanes=3)
    before = stage.pids()
    units = [stage.unit(name) for name in ("orders", "items", "users")]
    orders, items, users = units
    stage.offer((orders, [0]), (items, [1]), (users, [2]))
    stage.start()
    stage.wait(lambda: all(unit.finished_records == 1 for unit in units))
    statement = chunk(stage.partition, [ddl(3)], alone=True)
    statement.barrier = Barrier(orders, (items,))
    with capture_logs() as logs:
        stage.lanes.offer(delivery((orders, statement), (items, BarrierChunk(statement, statement.barrier))))
        stage.wait(lambda: orders.finished_records == 2)
        assert stage.pids() == before, "none of its attempts has changed anything"
        stage.offer((users, [4]))
        stage.wait(lambda: users.finished_records == 2)
        assert stage.pids() == before, "the statement is not about this table"
        stage.offer((items, [5]))
        stage.wait(lambda: stage.ids("items") == [[100], [500]])
    failed = [log for log in logs if log["event"] == "handler_failed" and "never ever" in log["error"]]
    assert len(failed) == 5, "each of its attempts"
    stage.wait(lambda: len(stage.pids()) == 3)
    assert [log["event"] for log in logs].count("lane_process_started") <= 2
    assert stage.events(table="shop.items")[1]["pid"] not in before
    assert stage.pids()[0] == before[0]


def test_nothing_runs_where_a_table_may_be_outdated_while_that_is_renewed(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing()]}, processes=3)
    first, second, third = stage.processes._slots
    old, retire, met = third.present, second.retire, list[Any]()

    def meanwhile() -> None:
        met.append(stage.processes._slot("shop.orders", 2).present)

    other = threading.Thread(target=meanwhile)

    def retires() -> None:
        if not other.ident:
            other.start()
            other.join(0.5)
        retire()

    monkeypatch.setattr(second, "retire", retires)
    stage.processes._outdated["shop.orders"] = first
    stage.processes._slot("shop.orders", 1)
    other.join(30)
    assert old is not None
    assert old not in met


def test_a_process_gets_the_present_configuration_alone(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    orders = stage.unit("orders")  # of the first one
    for _ in range(5):
        stage.processes.given.adopt(stage.configured({"handlers": [writing()]}))
    [old] = stage.pids()
    stage.kill(old)
    stage.offer((orders, [0]))
    with noted_asks(monkeypatch) as asked:
        stage.run(orders)
    assert [what[0] for what in asked].count("configure") == 1
    assert stage.ids("orders") == [[0]]


def test_a_definition_that_is_read_again_is_kept_once(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing()]}, processes=1, format="maxwell")
    format_ = formats_of(stage.configuration, wrapped=stage.processes.given.noting).of(TOPIC)
    assert isinstance(format_, SeparateDDL)
    for offset in (0, 1, 0, 1):
        format_.learn(record(offset, value=b"{}"))
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with noted_asks(monkeypatch) as asked:
        stage.run(orders)
    assert [len(what[1]) for what in asked if what[0] == "learn"] == [2]


def test_a_statement_that_new_rules_refuse_waits_and_gets_no_other_batch(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    (once := tmp_path / "once").touch()
    handler = writing(does={"None": "fail"}, once=str(once))
    orders_rule = {"match": "shop.orders", "handlers": [handler], "retry": {"initial_delay": "3s"}}
    other = {"handlers": [writing(does={"100": "hang"}, name="other")]}
    stage = make(orders_rule, other, processes=1, lanes=2)
    orders, items = stage.unit("orders"), stage.unit("items")
    sql = "RENAME TABLE orders TO archive"
    rename = record(0, isDdl=True, type="RENAME", sql=sql, data=None)
    stage.lanes.offer(delivery((orders, chunk(stage.partition, [rename], alone=True))))
    stage.start()
    stage.wait(lambda: orders.state is UnitState.BACKOFF)
    hidden = {"match": "shop.archive", "columns": {"exclude": ["ssn"]}, **other}
    stage.processes.given.adopt(stage.configured(orders_rule, hidden, other))
    [old] = stage.pids()
    stage.kill(old)
    stage.offer((items, [1]))
    stage.wait(lambda: orders.blocked)
    assert "hide data" in (orders.error or "")
    stage.wait(lambda: items.finished_records == 1)
    assert stage.ids("items") == [[100]]
    assert stage.ids("orders") == []


def test_a_rule_reaches_a_process_with_its_column_rules() -> None:
    columns = {"mask": {"ssn": "hash"}}
    configuration = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "unused:1", "group_id": "g", "topics": ["cdc"]},
            "masking": {"secret": "s" * 32},
            "tables": [{"match": "*", "handlers": [{"type": "log"}], "columns": columns, "filter": "id < 7"}],
        }
    )
    [rule] = configuration.tables
    there: TableRule = pickle.loads(pickle.dumps(rule))
    assert rule.row_rules is not None
    assert there.row_rules is not None
    assert there.is_as(rule)
    assert there.row_rules.hides_no_more_than(rule.row_rules)
    assert rule.row_rules.hides_no_more_than(there.row_rules)
