"""Batches that child processes decode and handle: the same order, failures and ends as with threads alone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import TOPIC, chunk, ddl, delivery, record, work
from process_stage import ProcessStage
from processing import BAD, NOW
from structlog.testing import capture_logs

from handlers import StopWorker
from offsets.restore import Start
from offsets.types import Checkpoint, OffsetRange, TopicPartition
from worker.configuration.formats import formats_of
from worker.formats.interface import SeparateDDL
from worker.processes import beginning, process
from worker.processing.slow_calls import origin_of
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Barrier, BarrierChunk
from worker.units.unit import UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def test_tables_are_handled_in_order_in_processes_of_their_own(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()], "batch": {"max_records": 3}})
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, range(7)), (items, range(7, 14)))
    stage.run(orders, items)
    assert stage.ids("orders") == [[0, 100, 200], [300, 400, 500], [600]]
    assert stage.ids("items") == [[700, 800, 900], [1000, 1100, 1200], [1300]]
    assert stage.checkpoint() == Checkpoint(14)
    assert {line["pid"] for line in stage.events(table="shop.orders")} == {stage.pids()[0]}
    assert {line["pid"] for line in stage.events(table="shop.items")} == {stage.pids()[1]}
    assert os.getpid() not in stage.pids()


def test_a_process_that_ends_is_a_failed_attempt_of_the_batch_that_it_ran(
    make: Make, writing: Entry, tmp_path: Path
) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing(does={"300": "die"}, once=str(once))], "retry": NOW})
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, range(5)), (items, range(5, 8)))
    with capture_logs() as logs:
        stage.run(orders, items)
    assert stage.ids("orders") == [[0, 100, 200, 300, 400]]
    assert stage.events(table="shop.orders")[0]["attempt"] == 2
    assert stage.checkpoint() == Checkpoint(8)
    [ended] = [log for log in logs if log["event"] == "lane_process_ended"]
    assert (ended["process"], ended["how"], ended["tables"]) == (0, "SIGKILL", ["shop.orders"])
    [failed] = [log for log in logs if log["event"] == "batch_failed"]
    assert failed["error"].startswith("ProcessDied: lane process 0 (pid ")
    assert stage.counted("binlane_lane_processes_ended_total 1.0")


def test_a_record_that_ends_its_process_is_found_and_skipped(make: Make, writing: Entry) -> None:
    stage = make(
        {
            "handlers": [writing(does={"300": "die"})],
            "retry": NOW | {"max_attempts": 2},
            "on_failure": "skip",
        },
    )
    orders = stage.unit("orders")
    stage.offer((orders, range(6)))
    stage.run(orders, seconds=60)
    assert sorted(number for ids in stage.ids("orders") for number in ids) == [0, 100, 200, 400, 500]
    assert stage.checkpoint() == Checkpoint(6)
    assert stage.counted('binlane_records_skipped_total{reason="failed"} 1.0')


def test_no_attempt_of_the_batches_beside_it_is_used_up(make: Make, writing: Entry) -> None:
    stage = make(
        {"match": "shop.bad", "handlers": [writing(does={"100": "die"})], "retry": NOW | {"max_attempts": 3}},
        {"handlers": [writing(does={"0": "sleep"})], "retry": NOW | {"max_attempts": 1}},
        processes=1,
    )
    good, bad = stage.unit("good"), stage.unit("bad")
    stage.offer((good, [0]))
    stage.start()
    stage.wait(lambda: stage.processes._slots[0]._calls)
    stage.offer((bad, [1]))
    with capture_logs() as logs:
        stage.wait(lambda: (good.state, bad.state) == (UnitState.IDLE, UnitState.HALTED))
        stage.stop()
    assert good.failed_batches == 0
    assert stage.events(table="shop.good")[-1]["attempt"] == 1
    first, *others = [log["tables"] for log in logs if log["event"] == "lane_process_ended"]
    assert set(first) == {"shop.good", "shop.bad"}, "nobody knows whose fault it is"
    assert others == [["shop.bad"]] * 3, "each of its attempts, alone"


def test_each_kind_of_failure_means_the_same(make: Make, writing: Entry, tmp_path: Path) -> None:
    (once := tmp_path / "once").touch()
    rule = {"retry": NOW | {"max_attempts": 1}, "on_failure": "skip"}
    stage = make(
        {"match": "shop.rejects", "handlers": [writing(does={"200": "reject"}, name="rejecting")], **rule},
        {"match": "shop.parts", "handlers": [writing(does={"1200": "part"})], **rule},
        {"match": "shop.fails", "handlers": [writing(does={"2200": "fail"})], **rule},
        {"match": "shop.down", "handlers": [writing(does={"3200": "down"}, once=str(once))], **rule},
    )
    units = [stage.unit(name) for name in ("rejects", "parts", "fails", "down")]
    stage.offer(*((unit, range(10 * n, 10 * n + 4)) for n, unit in enumerate(units)))
    with capture_logs() as logs:
        stage.run(*units)
    assert stage.ids("rejects") == [[0, 100], [300]]
    assert stage.counted('binlane_handler_failures_total{handler="rejecting"} 1.0'), (
        "it says which: no halving"
    )
    assert stage.ids("parts") == [[1300]], "the first two are done, as it says"
    assert sorted(n for ids in stage.ids("fails") for n in ids) == [2000, 2100, 2300]
    assert stage.ids("down") == [[3000, 3100, 3200, 3300]]
    skipped = {log["table"]: log["error"] for log in logs if log["event"] == "change_skipped"}
    assert skipped == {
        "shop.rejects": "Rejected: no",
        "shop.parts": "ValueError: the rest",
        "shop.fails": "OwnError: never ever",
    }
    positions = {log["table"]: log["position"] for log in logs if log["event"] == "change_skipped"}
    assert positions["shop.fails"] == "cdc.shop[0] offset 22 row 0"
    assert [log["event"] for log in logs if log["event"].startswith("target")] == ["target_down", "target_up"]


def test_the_traceback_of_the_process_is_logged(make: Make, writing: Entry, tmp_path: Path) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing(does={"0": "fail"}, once=str(once))], "retry": NOW})
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders)
    [failed] = [log for log in logs if log["event"] == "batch_failed"]
    assert "in _do" in str(failed["exc_info"].__cause__)


@pytest.mark.parametrize("how", ["stop", "told"])
def test_a_handler_that_cannot_go_on_stops_the_worker(make: Make, writing: Entry, how: str) -> None:
    stage = make({"handlers": [writing(does={"0": how})]})
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.run(until=lambda: stage.errors)
    assert isinstance(stage.errors[0], StopWorker)
    assert str(stage.errors[0]) == {"stop": "gone", "told": "told"}[how]


def test_undecodable_records_halt_at_their_place(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]})
    orders = stage.unit("orders")
    stage.offer((orders, [0, 1, BAD, 3]))
    stage.run(orders)
    assert orders.state is UnitState.HALTED
    assert "undecodable record" in (orders.error or "")
    assert stage.ids("orders") == [[0, 100]]
    assert stage.checkpoint() == Checkpoint(2)


def test_undecodable_records_may_be_skipped(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, on_undecodable="skip")
    orders = stage.unit("orders")
    stage.offer((orders, [0, BAD, 2, BAD, 4]))
    with capture_logs() as logs:
        stage.run(orders)
    assert stage.ids("orders") == [[0, 200, 400]]
    assert stage.checkpoint() == Checkpoint(5)
    skipped = [log["position"] for log in logs if log["event"] == "record_skipped"]
    assert skipped == ["cdc.shop[0] offset 1", "cdc.shop[0] offset 3"]


def test_a_record_whose_decoding_ends_the_process_is_undecodable(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = beginning._PROGRAM.replace("main(", "from process_handlers import poison; poison(); main(")
    monkeypatch.setattr(beginning, "_PROGRAM", program)
    stage = make({"handlers": [writing()]}, processes=1)
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, range(4)), (items, range(4, 6)))
    stage.run(orders, items, seconds=120)
    assert orders.state is UnitState.HALTED
    assert "undecodable record: the process that reads it ends: lane process 0" in (orders.error or "")
    assert [number for ids in stage.ids("orders") for number in ids] == [0, 100, 200]
    assert stage.ids("items") == [[400, 500]]
    assert stage.checkpoint() == Checkpoint(3, (OffsetRange(4, 6),))


def test_records_of_several_rows_keep_their_places(make: Make, writing: Entry) -> None:
    stage = make(
        {
            "handlers": [writing(does={"102": "fail"})],
            "retry": NOW | {"max_attempts": 1},
            "on_failure": "skip",
        }
    )
    orders = stage.unit("orders")
    records = [record(n, rows=3) for n in range(3)]
    stage.lanes.offer(delivery((orders, chunk(stage.partition, records))))
    with capture_logs() as logs:
        stage.run(orders)
    assert sorted(n for ids in stage.ids("orders") for n in ids) == [0, 1, 2, 100, 101, 200, 201, 202]
    [skipped] = [log for log in logs if log["event"] == "change_skipped"]
    assert skipped["position"] == "cdc.shop[0] offset 1 row 2"
    assert stage.checkpoint() == Checkpoint(3)


def test_a_handler_may_modify_its_rows(make: Make, writing: Entry, tmp_path: Path) -> None:
    (once := tmp_path / "once").touch()
    stage = make({"handlers": [writing("Changing", once=str(once))], "retry": NOW})
    orders = stage.unit("orders")
    stage.offer((orders, range(3)))
    stage.run(orders)
    assert stage.ids("orders") == [[0, 100, 200]] * 2, "decoded again for the second attempt"


def test_handlers_of_one_table_get_its_batch_beside_each_other(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(name="a"), writing("Changing", name="b")]})
    orders = stage.unit("orders")
    stage.offer((orders, range(3)))
    stage.run(orders)
    assert stage.ids("orders") == [[0, 100, 200]] * 2
    assert stage.checkpoint() == Checkpoint(3)


def test_a_handler_that_stays_keeps_its_tables_in_the_worker(make: Make, writing: Entry) -> None:
    stage = make(
        {"match": "shop.here", "handlers": [writing("InWorker", name="a"), writing(name="b")]},
        {"handlers": [writing()]},
    )
    here, there = stage.unit("here"), stage.unit("there")
    stage.offer((here, range(2)), (there, range(2, 4)))
    stage.run(here, there)
    assert {line["pid"] for line in stage.events(table="shop.here")} == {os.getpid()}
    assert {line["pid"] for line in stage.events(table="shop.there")} <= set(stage.pids())


def test_each_lane_has_its_own_object_if_the_class_says_so(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing("PerLane")]}, processes=1, lanes=3)
    assert [line["lane"] for line in stage.events("open")] == [0, 1, 2]
    orders = stage.unit("orders")
    stage.offer((orders, range(2)))
    stage.run(orders)
    assert stage.checkpoint() == Checkpoint(2)


def test_lines_and_metrics_of_handlers_go_through_the_worker(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "log"}, name="h")]})
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders)
        stage.wait(lambda: any(log["event"] == "seen" for log in logs))
    [seen] = [log for log in logs if log["event"] == "seen"]
    assert (seen["log_level"], seen["table"], seen["handler"]) == ("warning", "shop.orders", "h")
    stage.wait(lambda: stage.counted('binlane_handler_passed_over_total{handler="h"} 3.0'))


def test_the_stack_of_a_slow_call_is_that_of_the_process(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "hang"})]})
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(stage.calls.current)
    [(thread, call)] = stage.calls.current().items()
    time.sleep(0.5)
    assert "in _hang" in (stage.calls.stack(thread, call) or "")


def test_status_and_release_reach_every_process(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]})
    [told] = stage.handlers.statuses()
    assert {name: one["pid"] for name, one in told.items() if name.startswith("process ")} == {
        f"process {number}": pid for number, pid in enumerate(stage.pids())
    }
    stage.handlers.release([("t", 1)], 5.0)
    assert [line["partitions"] for line in stage.events("release")] == [[["t", 1]]] * 2


def test_a_process_that_was_idle_is_started_again(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1)
    [old] = stage.pids()
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(lambda: orders.finished_records == 1)
    os.kill(old, signal.SIGKILL)
    stage.wait(lambda: stage.pids() not in ([old], []))
    stage.offer((orders, [1]))
    stage.wait(lambda: orders.finished_records == 2)
    assert orders.failed_batches == 0


def test_a_statement_about_several_tables_renews_the_other_processes(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]})
    before = stage.pids()
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, [0]), (items, [1]))
    stage.start()
    stage.wait(lambda: items.finished_records == 1)
    statement = chunk(stage.partition, [ddl(2)], alone=True)
    statement.barrier = Barrier(orders, (items,))
    behind = BarrierChunk(statement, statement.barrier)
    stage.lanes.offer(delivery((orders, statement), (items, behind)))
    stage.wait(lambda: stage.checkpoint() == Checkpoint(3))
    stage.wait(lambda: len(stage.pids()) == 2)
    assert stage.pids()[0] == before[0]
    assert stage.pids()[1] != before[1]
    stage.wait(lambda: stage.events("close"))
    assert {line["pid"] for line in stage.events("close")} == {before[1]}


def test_a_small_batch_is_one_question(make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = process.Process.ask

    def noted(self: process.Process, name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        return ask(self, name, *rest, **more)

    monkeypatch.setattr(process.Process, "ask", noted)
    stage = make({"handlers": [writing()], "batch": {"max_records": 2}}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, range(5)))
    stage.run(orders)
    assert asked == ["configure", "open", *["decode_and_handle"] * 3]
    assert stage.checkpoint() == Checkpoint(5)


def test_what_is_called_off_before_its_question_is_not_lost(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    orders = stage.unit("orders")
    stage.offer((orders, range(5)))
    failures = stage.processors[0]._failures
    answers = iter([False, True, True])
    called_off = failures.called_off
    failures.called_off = lambda work: next(answers, None) or called_off(work)  # type: ignore[method-assign]
    stage.run(until=lambda: orders.finished_records == 5)
    assert stage.ids("orders") == [[0, 100, 200, 300, 400]]
    assert next(answers, None) is None, "it was called off"


def test_what_waits_for_long_leaves_no_rows_in_its_process(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()]}, processes=1, lanes=1)
    orders = stage.unit("orders")
    batch = work(orders, chunk(stage.partition, [record(n) for n in range(3)]))
    [present] = [slot.present for slot in stage.processes._slots]
    assert present is not None
    assert batch.decode(lambda _record, _fault: False) is None
    assert present.ask("kept") == 1
    batch.forget_rows()
    other = work(orders, chunk(stage.partition, [record(3)]))
    assert other.decode(lambda _record, _fault: False) is None
    assert present.ask("kept") == 1, "the other one's"
    assert origin_of(batch, 1) == "cdc.shop[0] offset 1 row 0", "what is set aside meanwhile is known"
    [handler] = orders.table.handlers
    handler.of(0).handle(batch.batch(0, 3, 1))
    assert stage.ids("orders") == [[0, 100, 200]]


CREATED = {
    "type": "table-create",
    "database": "shop",
    "table": "orders",
    "def": {
        "database": "shop",
        "charset": "utf8mb4",
        "table": "orders",
        "columns": [{"name": "id", "type": "bigint", "signed": False}],
        "primary-key": ["id"],
    },
    "ts": 1763000000999,
    "sql": "CREATE TABLE orders (id bigint unsigned PRIMARY KEY)",
    "position": "mysql-bin.000001:4",
}


@pytest.mark.parametrize("restarted", [False, True])
def test_processes_learn_what_ddl_topics_define(make: Make, writing: Entry, restarted: bool) -> None:
    stage = make({"handlers": [writing()]}, processes=1, format="maxwell")
    format_ = formats_of(stage.configuration, wrapped=stage.processes.given.noting).of(TOPIC)
    assert isinstance(format_, SeparateDDL)
    format_.learn(record(0, value=json.dumps(CREATED).encode()))
    partition = Assignment(TopicPartition(TOPIC, 0), 1, Start("earliest", (), "initial", "a test"), format_)
    orders = stage.unit("orders")
    stage.start()
    for offset in range(1 + restarted):
        row = {"type": "insert", "database": "shop", "table": "orders", "ts": 1763000000, "data": {"id": 7}}
        value = json.dumps({**row, "position": "mysql-bin.000001:9"}).encode()
        stage.lanes.offer(delivery((orders, chunk(partition, [record(offset, value=value)]))))
        stage.wait(lambda offset=offset: orders.finished_records == offset + 1)
        if not offset and restarted:
            [old] = stage.pids()
            os.kill(old, signal.SIGKILL)
            stage.wait(lambda old=old: stage.pids() not in ([old], []))
    assert [line["types"] for line in stage.events()] == [{"id": "bigint unsigned"}] * (1 + restarted)


def test_batches_that_are_done_are_forgotten(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing()], "batch": {"max_records": 1}}, processes=1, lanes=1)
    orders = stage.unit("orders")
    stage.offer((orders, range(20)))
    stage.run(orders)
    [present] = [slot.present for slot in stage.processes._slots]
    assert present is not None
    assert present.ask("kept") <= 2


def test_coroutines_wait_on_the_loop_of_their_process_and_are_cancelled_there(
    make: Make, writing: Entry
) -> None:
    stage = make({"handlers": [writing("Awaiting")], "batch": {"max_records": 3}, "retry": NOW})
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.start()
    with capture_logs() as logs:
        stage.offer((orders, range(5)), (items, range(5, 8)))
        stage.wait(lambda: items.at_rest and any(log["event"] == "waits" for log in logs))
    [waits] = [log for log in logs if log["event"] == "waits"]
    assert (waits["table"], waits["attempt"]) == ("shop.orders", 1)
    [(thread, call)] = stage.calls.current().items()
    stack = stage.calls.stack(thread, call) or ""
    assert "await asyncio.sleep(60)" in stack
    assert stack.index("in process ") < stack.index("on the event loop")
    for processor in stage.processors:
        processor.call_off()
    stage.lanes.stop()
    assert stage.calls.cancel("the time is over")
    for processor in stage.processors:
        processor.join(10)
        assert not processor.is_alive()
    assert stage.ids("orders") == [[0, 100, 200]]
    assert stage.ids("items") == [[500, 600, 700]]
    assert orders.error == "CancelledError: the time is over"
