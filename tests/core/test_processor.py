"""Processors on real lanes: handlers side by side, failures of every kind."""

from __future__ import annotations

import threading
import time

import pytest
from building import Scripted, chunk, delivery, record, seen, unit
from processing import NOW, Stage, raising
from structlog.testing import capture_logs

from handlers import Batch, PartialFailure, StopWorker
from offsets.types import Checkpoint, OffsetRange
from worker.units.unit import UnitState


def test_what_is_handled_is_finished_and_released() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    stage.offer((table, range(5)))
    stage.run(table)
    assert seen(handler) == [[0, 1, 2, 3, 4]]
    assert stage.checkpoint() == Checkpoint(5)
    assert table.finished_records == 5
    assert stage.lanes.lanes[0].records == 0
    assert stage.lanes.lanes[0].busy_seconds > 0


def test_a_batch_without_any_row_is_finished_without_a_call() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    empty = [record(n, rows=0) for n in range(2)]
    stage.lanes.offer(delivery((table, chunk(stage.partition, empty))))
    stage.run(table)
    assert handler.calls == []
    assert stage.checkpoint() == Checkpoint(2)


def test_a_transient_failure_is_tried_again_and_told() -> None:
    stage, handler = Stage(), Scripted(raising(ValueError("not\nnow"), times=2))
    table = unit("orders", handler, retry=NOW)
    stage.offer((table, range(3)))
    with capture_logs() as logs:
        stage.run(table)
    assert [attempt for attempt, _ in handler.calls] == [1, 2, 3]
    assert stage.checkpoint() == Checkpoint(3)
    assert (table.failed_batches, table.error) == (2, None)
    assert [log["attempt"] for log in logs if log["event"] == "batch_failed"] == [1, 2]
    assert {log["error"] for log in logs if log["event"] == "batch_failed"} == {"ValueError: not now"}
    assert stage.counted('binlane_retries_total{table="shop.orders"} 2.0')
    assert stage.counted('binlane_handler_failures_total{handler="h0"} 2.0')


def test_backing_off_leaves_the_processor_to_other_tables() -> None:
    stage = Stage()
    bad = unit("bad", Scripted(raising(ValueError())), retry={"initial_delay": 60.0})
    good = unit("good")
    stage.offer((bad, [0]), (good, [1]))
    stage.run(until=lambda: good.finished_records)
    assert bad.state is UnitState.BACKOFF
    assert stage.checkpoint() == Checkpoint(0, (OffsetRange(1, 2),))


def test_a_halted_table_keeps_its_failing_change_and_all_later_ones() -> None:
    def script(batch: Batch) -> None:
        if any(change.offset == 5 for change in batch.changes):
            raise ValueError("never")

    stage, handler = Stage(), Scripted(script)
    table, other = unit("orders", handler, retry=NOW | {"max_attempts": 2}), unit("other")
    stage.offer((table, range(8)), (other, [8]))
    with capture_logs() as logs:
        stage.run(table, other)
    assert (table.state, table.error) == (UnitState.HALTED, "ValueError: never (handler h0)")
    assert stage.checkpoint() == Checkpoint(5, (OffsetRange(8, 9),))
    assert not any(6 in call and 5 not in call for call in seen(handler)), "nothing overtakes it"
    [halted] = [log for log in logs if log["event"] == "table_halted"]
    assert (halted["table"], halted["position"]) == ("shop.orders", "cdc.shop[0] offset 5 row 0")


def test_skipping_passes_over_the_failing_change_and_names_it() -> None:
    def script(batch: Batch) -> None:
        if any(change.offset == 1 for change in batch.changes):
            raise ValueError("never")

    stage, handler = Stage(), Scripted(script)
    table = unit("orders", handler, retry=NOW | {"max_attempts": 2}, on_failure="skip")
    stage.offer((table, range(3)))
    with capture_logs() as logs:
        stage.run(table)
    assert stage.checkpoint() == Checkpoint(3)
    [skipped] = [log for log in logs if log["event"] == "change_skipped"]
    assert (skipped["position"], skipped["handler"]) == ("cdc.shop[0] offset 1 row 0", "h0")
    assert stage.counted('binlane_records_skipped_total{reason="failed"} 1.0')


def test_each_handler_is_called_only_with_what_it_has_not_done() -> None:
    fine, slow = Scripted(), Scripted(raising(PartialFailure(2, ValueError()), times=1))
    stage = Stage()
    table = unit("orders", fine, slow, retry=NOW)
    stage.offer((table, range(5)))
    stage.run(table)
    assert seen(fine) == [[0, 1, 2, 3, 4]]
    assert seen(slow) == [[0, 1, 2, 3, 4], [2, 3, 4]]
    assert stage.checkpoint() == Checkpoint(5)


def test_a_record_is_finished_only_when_all_handlers_have_done_it() -> None:
    ahead = Scripted(raising(PartialFailure(4, ValueError())))
    behind = Scripted(raising(PartialFailure(2, ValueError())))
    stage = Stage()
    table = unit("orders", Scripted(), ahead, behind, retry={"initial_delay": 60.0})
    stage.offer((table, range(6)))
    stage.run(until=lambda: table.state is UnitState.BACKOFF)
    assert stage.checkpoint() == Checkpoint(2)
    assert table.finished_records == 2


def test_all_handlers_of_a_table_run_at_the_same_time() -> None:
    """However many there are: each waits for all the others."""
    together = threading.Barrier(12)
    handlers = [Scripted(lambda _: together.wait(10)) for _ in range(12)]
    stage = Stage()
    table = unit("orders", *handlers)
    stage.offer((table, range(2)))
    stage.run(table)
    assert not stage.errors
    assert stage.checkpoint() == Checkpoint(2)
    assert stage.counted('binlane_handler_seconds_count{handler="h11"} 1.0')


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("handlers", [1, 2])
def test_a_handler_cannot_end_its_processor(error: BaseException, handlers: int) -> None:
    stage = Stage()
    table = unit("orders", *(Scripted(raising(error, times=1)) for _ in range(handlers)), retry=NOW)
    stage.offer((table, range(2)))
    stage.run(table)
    assert not stage.errors
    assert stage.checkpoint() == Checkpoint(2)


@pytest.mark.parametrize("place", [0, 1])
def test_stop_worker_ends_it_after_the_other_handlers_returned(place: int) -> None:
    slow = Scripted(lambda _: time.sleep(0.05))
    handlers = [slow, slow]
    handlers.insert(place, Scripted(raising(StopWorker("the JVM is gone"))))
    stage = Stage()
    table = unit("orders", *handlers)
    stage.offer((table, range(2)))
    stage.run(table)
    assert [str(error) for error in stage.errors] == ["the JVM is gone"]
    assert len(slow.calls) == 2
    assert stage.checkpoint() == Checkpoint(0)
    assert not stage.lanes.seen.running()


@pytest.mark.parametrize("handlers", [1, 2])
def test_a_batch_that_stops_the_worker_is_given_to_no_other_lane(handlers: int) -> None:
    stage = Stage(lanes=4)
    scripted = [Scripted(raising(StopWorker("the JVM is gone"))) for _ in range(handlers)]
    table = unit("orders", *scripted)
    stage.offer((table, range(2)))
    stage.run(table)
    assert table.state is UnitState.HALTED
    assert [len(each.calls) for each in scripted] == [1] * handlers
    assert len(stage.errors) == 1


class Awaiting(Scripted):
    """As behind a decorator, which hides that nothing runs."""

    def handle(self, batch: Batch) -> None:
        async def later() -> None:
            super(Awaiting, self).handle(batch)

        return later()  # type: ignore[return-value]


@pytest.mark.parametrize("handlers", [1, 2])
def test_a_batch_that_returned_without_having_run_is_not_finished(handlers: int) -> None:
    stage = Stage()
    table = unit("orders", *(Awaiting() for _ in range(handlers)))
    stage.offer((table, range(2)))
    stage.run(table)
    assert str(stage.errors[0]).startswith("Awaiting.handle returned a coroutine")
    assert stage.checkpoint() == Checkpoint(0)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_told_is_an_error_like_others() -> None:
    stage = Stage()
    table = unit("orders", Scripted(raising(Unspeakable(), times=1)), retry=NOW)
    stage.offer((table, range(2)))
    stage.run(table)
    assert not stage.errors
    assert stage.checkpoint() == Checkpoint(2)


def test_a_handler_that_runs_when_the_worker_stops_goes_on_to_its_end() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def script(_batch: Batch) -> None:
        inside.set()
        go_on.wait(10)

    stage = Stage()
    table = unit("orders", Scripted(script))
    stage.offer((table, range(3)))
    stage.processors[0].start()
    assert inside.wait(10)
    stage.processors[0].call_off()
    stage.lanes.stop()
    go_on.set()
    stage.processors[0].join(10)
    assert stage.checkpoint() == Checkpoint(3)
    assert not stage.lanes.seen.running()
