"""Processors and records: undecoded, undecodable, DDL, of partitions that left."""

from __future__ import annotations

from building import Scripted, assignment, chunk, ddl, delivery, record, seen, unit
from processing import BAD, NOW, Stage, raising
from structlog.testing import capture_logs

from handlers import Batch, PartialFailure
from offsets.types import Checkpoint
from worker.units.unit import UnitState


def test_a_failing_batch_is_split_down_to_its_record() -> None:
    handler = Scripted()

    def script(batch: Batch) -> None:
        (first, last), *_ = batch.positions.values()
        if first <= 3 <= last:
            raise ValueError("never")

    handler.script = script
    stage = Stage()
    table = unit("orders", handler, retry=NOW | {"max_attempts": 2})
    stage.offer((table, range(6)))
    stage.run(table)
    assert table.state is UnitState.HALTED
    assert stage.checkpoint() == Checkpoint(3)


def test_of_two_handlers_only_the_failing_one_is_called_again() -> None:
    fine, failing = Scripted(), Scripted(raising(ValueError(), times=1))
    stage = Stage()
    table = unit("orders", fine, failing, retry=NOW)
    stage.offer((table, range(3)))
    stage.run(table)
    assert (len(fine.batches), len(failing.batches)) == (1, 2)
    assert stage.checkpoint() == Checkpoint(3)


def test_a_partial_failure_counts_changes_not_records() -> None:
    """Two of the four changes of two records are done: the second record is not."""
    handled: list[tuple[int, int]] = []

    def script(batch: Batch) -> None:
        part = batch.changes[:2] if not handled else batch.changes
        handled.extend((change.offset, change.index) for change in part)
        if len(handled) == 2:
            raise PartialFailure(2, ValueError())

    stage, handler = Stage(), Scripted(script)
    table = unit("orders", handler, retry=NOW)
    records = [record(n, rows=2) for n in range(2)]
    stage.lanes.offer(delivery((table, chunk(stage.partition, records))))
    stage.run(table)
    assert handled == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert stage.checkpoint() == Checkpoint(2)


def test_a_partial_failure_of_a_whole_batch_is_a_success() -> None:
    stage, handler = Stage(), Scripted(raising(PartialFailure(3), times=1))
    table = unit("orders", handler, retry=NOW)
    stage.offer((table, range(3)))
    stage.run(table)
    assert not stage.errors
    assert len(handler.batches) == 1
    assert stage.checkpoint() == Checkpoint(3)


def test_at_an_undecodable_record_the_table_halts_after_all_before_it_is_handled() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    stage.offer((table, [0, 1, BAD]))
    stage.offer((table, [3, 4]))
    with capture_logs() as logs:
        stage.run(table)
    assert seen(handler) == [[0, 1]]
    assert table.state is UnitState.HALTED
    assert (table.error or "").startswith("undecodable record: not a Canal message")
    assert stage.checkpoint() == Checkpoint(2)
    assert [log["position"] for log in logs if log["event"] == "table_halted"] == ["cdc.shop[0] offset 2"]


def test_undecodable_records_are_passed_over_where_the_rule_says_skip() -> None:
    stage, handler = Stage(on_undecodable="skip"), Scripted()
    table = unit("orders", handler)
    stage.offer((table, [0, BAD, BAD, 3]))
    with capture_logs() as logs:
        stage.run(table)
    assert seen(handler) == [[0, 3]]
    assert stage.checkpoint() == Checkpoint(4)
    places = [log["position"] for log in logs if log["event"] == "record_skipped"]
    assert places == ["cdc.shop[0] offset 1", "cdc.shop[0] offset 2"]
    assert stage.counted('binlane_records_skipped_total{reason="undecodable"} 2.0')


def test_ddl_reaches_the_handler_alone_between_what_came_before_and_after() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    pieces = [
        chunk(stage.partition, [record(0), record(1)]),
        chunk(stage.partition, [ddl(2)], alone=True),
        chunk(stage.partition, [record(3)]),
    ]
    stage.lanes.offer(delivery(*((table, piece) for piece in pieces)))
    stage.run(table)
    assert seen(handler) == [[0, 1], [2], [3]]


def test_nothing_of_a_partition_that_left_begins_or_is_decoded() -> None:
    stage, handler = Stage(), Scripted()
    table = unit("orders", handler)
    stage.offer((table, [BAD]))
    stage.partition.closed = True
    with capture_logs() as logs:
        stage.run(table)
    assert handler.calls == []
    assert logs == []
    assert stage.lanes.lanes[0].records == 0


def test_what_stays_of_a_batch_runs_when_another_partition_of_it_left() -> None:
    stage, handler = Stage(), Scripted()
    table, staying = unit("orders", handler), assignment(1)
    stage.offer((table, [0, 1]))
    stage.offer((table, [7]), of=staying)
    stage.partition.closed = True
    stage.run(table)
    assert seen(handler) == [[7]]
    assert staying.tracker.unfinished == 0


def test_a_call_off_begins_no_further_attempt_and_decodes_nothing() -> None:
    """An undecoded batch must not turn out bad because the worker stops."""
    stage = Stage()
    handler = Scripted(raising(ValueError(), times=1))
    table = unit("orders", handler)
    stage.offer((table, [BAD]))
    for processor in stage.processors:
        processor.call_off()
    stage.run(until=lambda: True)
    assert handler.batches == []
    assert table.state is UnitState.READY
