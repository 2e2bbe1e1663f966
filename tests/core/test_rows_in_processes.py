"""Handlers of the worker that look at rows in child processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from building import chunk, record, work
from process_stage import ProcessStage
from processing import NOW

from offsets.types import Checkpoint
from worker.attempts.steps import ProcessAway
from worker.processes.process import Process
from worker.processes.slot import Slot
from worker.running.handler_set import HandlerOpenError

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def test_a_change_whose_rows_end_the_process_is_set_aside_alone(make: Make, writing: Entry) -> None:
    handlers = [writing("AskingForRows", does={"100": "die"}), writing()]
    rule = {"handlers": handlers, "retry": NOW | {"max_attempts": 1}, "on_failure": "skip"}
    stage = make(rule, processes=1)
    orders, items = stage.unit("orders"), stage.unit("items")
    stage.offer((orders, range(3)), (items, range(10, 12)))
    stage.start()
    stage.wait(lambda: stage.checkpoint() == Checkpoint(12))
    stage.stop()
    ids = [number for line in stage.events("rows", table="shop.orders") for number in line["ids"]]
    assert sorted(ids) == [0, 200]
    assert [line["ids"] for line in stage.events("rows", table="shop.items")] == [[1000, 1100]]
    assert {number for call in stage.ids("orders") for number in call} == {0, 100, 200}


def test_a_process_keeps_rows_as_long_as_a_handler_asks_for_them(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing("AskingForRows")]}, processes=1)
    batch = work(stage.unit("orders"), chunk(stage.partition, [record(0)]))
    assert batch.decode(lambda _record, _fault: False) is None
    changes: Any = batch.changes
    ask = Slot.ask

    def asked(self: Slot, table: str, process: Any, name: str, *rest: Any, **more: Any) -> Any:
        changes.reading.forget()  # another handler of the table has had the batch decoded again
        assert not process.released
        return ask(self, table, process, name, *rest, **more)

    monkeypatch.setattr(Slot, "ask", asked)
    assert changes.computed(len) == 1


def test_processes_that_cannot_be_asked_refuse_a_reload(
    make: Make, writing: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make({"handlers": [writing("InWorker")]})
    after = stage.configured({"handlers": [writing("AskingForRows")]}, lanes={"processes": 2, "count": 2})
    with monkeypatch.context() as patched:
        patched.setattr(Process, "_connect", refuse)
        with pytest.raises(HandlerOpenError, match=r"lanes\.processes cannot be started.*cannot be asked"):
            stage.handlers.plan(after)
    stage.handlers.adopt(stage.handlers.plan(after))
    assert len(stage.pids()) == 2


def refuse(*_: object) -> None:
    raise ProcessAway("lane process 0 cannot be asked: Too many open files", 1.0)


@pytest.mark.parametrize("there", [True, False], ids=["leaves", "comes"])
def test_a_batch_that_waits_is_decoded_where_a_reload_wants_it(
    make: Make, writing: Entry, there: bool
) -> None:
    plain = {
        "handlers": [writing("AskingForRows", does={"300": "fail"})],
        "retry": NOW | {"max_attempts": 10**6},
    }
    mended = plain | {"handlers": [writing("AskingForRows")]}
    changed = {"transform": "process_handlers:same"}
    before, after = (plain, mended | changed) if there else (plain | changed, mended)
    stage = make(before)
    orders = stage.unit("orders")
    stage.offer((orders, range(6)))
    stage.start()
    stage.wait(lambda: orders.failed_batches > 1)
    stage.handlers.adopt(stage.handlers.plan(stage.configured(after, lanes={"processes": 2, "count": 2})))
    orders.table = stage.unit("orders").table
    stage.wait(lambda: stage.checkpoint() == Checkpoint(6))
    stage.stop()
    found = stage.events("rows")
    assert [number for line in found for number in line["ids"]] == [*range(0, 600, 100)]
    assert all((line["rows_of"] == os.getpid()) is there for line in found)
