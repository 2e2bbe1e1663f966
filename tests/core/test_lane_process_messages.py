"""Messages of child processes: nothing that a handler logs, forks or sets there damages them."""

from __future__ import annotations

import signal
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from process_stage import ProcessStage
from processing import NOW
from structlog.testing import capture_logs

from worker.processes.child import Child
from worker.processes.messages import Frames
from worker.units.unit import UnitState

Make = Callable[..., ProcessStage]
Entry = Callable[..., dict[str, Any]]


def test_a_line_that_the_worker_could_not_make_again_silences_no_later_one(
    make: Make, writing: Entry
) -> None:
    does = {"0": "log what cannot be made again", "100": "log more"}
    stage = make({"handlers": [writing(does=does)], "batch": {"max_records": 1}}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, range(2)))
    with capture_logs() as logs:
        stage.run(orders, seconds=30)
        stage.wait(lambda: [log["event"] for log in logs].count("more") == 5_000)
    [odd] = [log for log in logs if log["event"] == "odd"]
    assert (odd["error"], odd["number"]) == ("never ever", 2**70)
    assert stage.ids("orders") == [[0], [100]]


def test_a_line_of_a_library_with_wrong_arguments_fails_no_batch(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "log with wrong arguments"})], "retry": NOW}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders)
        stage.wait(lambda: any(log["event"] == "%d rows" for log in logs))
    assert orders.state is UnitState.IDLE
    assert stage.ids("orders") == [[0]]


def test_a_forked_copy_that_comes_back_answers_nothing(make: Make, writing: Entry, tmp_path: Path) -> None:
    (once := tmp_path / "once").touch()
    does = {"0": "fork and exit", "200": "sleep"}
    handler = writing(does=does, once=str(once))
    stage = make({"handlers": [handler], "batch": {"max_records": 1}, "retry": NOW}, processes=1, lanes=1)
    orders = stage.unit("orders")
    stage.offer((orders, range(4)))
    stage.run(orders, seconds=30)
    assert orders.failed_batches == 0
    assert stage.ids("orders") == [[0], [100], [200], [300]]
    assert {line["pid"] for line in stage.events()} == set(stage.pids())


def test_lines_of_forked_copies_disturb_no_other(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "fork and log"})]}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    with capture_logs() as logs:
        stage.run(orders, seconds=60)
        stage.wait(lambda: [log["event"] for log in logs].count("own") == 300)
    assert {log["event"] for log in logs} <= {"own", "handler_slow"}


def test_a_time_limit_for_all_sockets_of_a_handler_ends_no_process(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "limit sockets", "100": "sleep"})]}, processes=1)
    orders, items = stage.unit("orders"), stage.unit("items")
    before = stage.pids()
    stage.offer((orders, [0]))
    stage.start()
    stage.wait(lambda: orders.finished_records == 1)
    for offset in (1, 3):
        stage.offer((orders, [offset]), (items, [offset + 1]))
        stage.wait(lambda offset=offset: items.finished_records == offset // 2 + 1)
        time.sleep(0.5)
    assert (orders.failed_batches, items.failed_batches) == (0, 0)
    assert stage.pids() == before


def test_a_time_limit_for_all_sockets_of_the_worker_ends_no_call(make: Make, writing: Entry) -> None:
    socket.setdefaulttimeout(0.2)
    try:
        stage = make({"handlers": [writing(does={"0": "sleep"})]}, processes=1)
        orders = stage.unit("orders")
        stage.offer((orders, [0]))
        stage.run(orders, seconds=30)
    finally:
        socket.setdefaulttimeout(None)
    assert stage.events(attempt=1)
    assert orders.failed_batches == 0


def test_a_handler_can_end_what_it_starts(make: Make, writing: Entry) -> None:
    stage = make({"handlers": [writing(does={"0": "start and end others"})]}, processes=1)
    orders = stage.unit("orders")
    stage.offer((orders, [0]))
    stage.run(orders)
    assert [line["codes"] for line in stage.events("ended")] == [[-signal.SIGTERM] * 2]


def test_a_request_that_is_answered_leaves_nothing_in_memory() -> None:
    class Thing:
        """Stands for the rows of a batch."""

    class Requests:
        sent: weakref.ref[Thing] | None = None
        left: Thing | None = None

        def receive(self) -> Any:
            if self.sent is not None:
                self.left = self.sent()
                raise EOFError
            thing = Thing()
            self.sent = weakref.ref(thing)
            return ["take", thing]

        def send(self, answer: Any) -> None:
            assert answer == (True, None)

    child, requests = Child(), Requests()
    child._answers["take"] = lambda _: None
    child.serve(0, cast(Frames, requests))
    assert requests.sent is not None
    assert requests.left is None
