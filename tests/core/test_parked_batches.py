"""Kept batches that are parked: their rows stay as the source sent them, and memory stays bounded."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from building import Clock, Scripted, assignment, chunk, configuration, ddl, delivery, record, unit
from confluent_kafka import Message
from lane_building import Source, closed, lanes_of, taken
from processing import Stage, raising

from handlers import Batch, Handler, TargetUnavailable
from offsets.stores.interface import CheckpointError
from worker.attempts.circuit import BoundHandler
from worker.attempts.steps import SetAside
from worker.fetching.parking import written
from worker.lanes.lanes import Lanes
from worker.lanes.parking import Parkable, standing
from worker.units.chunk import Barrier, BarrierChunk, DecodedChunk, first_of, offset_at, place_of
from worker.units.parked import ParkedRecords
from worker.units.parking_files import ParkingLot
from worker.units.table import Table
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


def begun(lanes: Lanes, table: Unit) -> Work:
    """A running batch of three records, decoded."""
    assert lanes.offer(delivery((table, chunk(assignment(), [record(number) for number in range(3)]))))
    work = taken(lanes, 0)
    assert work.decode(lambda _record, _fault: False) is None
    return work


def rows(work: Work, attempt: int) -> list[dict[str, Any]]:
    return [change.after for change in work.batch(0, work.total, attempt).changes if change.after is not None]


def spoilt(row: dict[str, Any]) -> None:
    row["id"] = -1


def unwritable(row: dict[str, Any]) -> None:
    row["lock"] = threading.Lock()


@pytest.mark.parametrize("spoil", [spoilt, unwritable])
@pytest.mark.parametrize("runs_meanwhile", [False, True])
def test_rows_that_a_handler_has_modified_are_never_read_back(
    lot: ParkingLot, spoil: Callable[[dict[str, Any]], None], runs_meanwhile: bool
) -> None:
    rule = configuration({"handlers": [{"type": "building:Scripted"}]}).tables[0]
    lanes = lanes_of(Clock(), 1)
    table = Unit(Table("shop", "orders", rule, [BoundHandler("h0", (Scripted(),))]), 0)
    work = begun(lanes, table)
    for row in rows(work, 1):
        spoil(row)
    lanes.give_back(0, work, delay=0.0, error="it failed")
    parked = written(lot, Parkable(table, work, ()))
    if runs_meanwhile:
        assert taken(lanes, 0) is work
        assert [row["id"] for row in rows(work, 2)] == [0, 100, 200]
        lanes.give_back(0, work, delay=0.0, error="it failed")
    lanes.parked.park(parked)
    assert work.total == 3
    assert (work.changes is None) == (not runs_meanwhile), "they are decoded again"
    assert taken(lanes, 0) is work
    if work.parked:
        work.load()
    for attempt in (3, 4):
        assert [dict(row) for row in rows(work, attempt)] == [{"id": 0}, {"id": 100}, {"id": 200}]
    assert work.finish_records(3) == 3


def test_a_batch_that_was_decoded_again_meanwhile_keeps_its_new_rows(lot: ParkingLot) -> None:
    """Its table may have other rules by then: hidden columns, for example."""
    lanes, table = lanes_of(Clock(), 1), unit()
    work = begun(lanes, table)
    for row in rows(work, 1):
        spoilt(row)
    lanes.give_back(0, work, delay=0.0, error="it failed")
    parked = written(lot, Parkable(table, work, ()))
    assert taken(lanes, 0) is work
    assert work.decode(lambda _record, _fault: False) is None
    lanes.give_back(0, work, delay=0.0, error="it failed")
    lanes.parked.park(parked)
    assert taken(lanes, 0) is work
    work.load()
    assert [row["id"] for row in rows(work, 3)] == [0, 100, 200]


class Changing:
    """A value that is being modified by another thread."""

    def __reduce__(self) -> str:
        raise RuntimeError("dictionary changed size during iteration")


def test_a_batch_whose_rows_change_meanwhile_stays_in_memory(lot: ParkingLot) -> None:
    lanes, table = lanes_of(Clock(), 1), unit()
    work = begun(lanes, table)
    rows(work, 1)[0]["x"] = Changing()
    lanes.halt(0, work, "it failed")
    lanes.parked.park(written(lot, Parkable(table, work, ())))
    assert not work.parked
    assert len(work.changes or ()) == 3


def test_rows_that_are_nested_too_deeply_stay_in_memory(lot: ParkingLot) -> None:
    """Files of other records are written, and the worker continues."""
    value: Any = 1
    for _ in range(900):
        value = [value]
    lanes, table = lanes_of(Clock(), 1), unit()
    work = begun(lanes, table)
    assert work.changes is not None
    deep = [msgspec.structs.replace(work.changes[1], after={"id": value})]
    chunks = [
        DecodedChunk(work.chunks[0], [record(place)], changes, [1], table=table.table)
        for place, changes in enumerate(([work.changes[0]], deep, [work.changes[2]]))
    ]
    parked = written(lot, Parkable(table, None, chunks))
    assert parked.error is None
    assert [chunk for chunk, _, _ in parked.chunks] == [chunks[0], chunks[2]]


def test_a_chunk_that_cannot_be_written_stays_in_memory(lot: ParkingLot) -> None:
    class Unforeseen(Message):
        def key(self) -> bytes:
            raise KeyError("a defect")

    unwritable = [Unforeseen(topic="cdc", partition=0, offset=1)]
    chunks = [chunk(assignment(), each) for each in ([record(0)], unwritable, [record(2)])]  # type: ignore[arg-type]
    parked = written(lot, Parkable(unit(), None, chunks))
    assert parked.error is None
    assert [each for each, _, _ in parked.chunks] == [chunks[0], chunks[2]]


def test_an_error_keeps_no_files(lot: ParkingLot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, place = unit(), assignment()
    chunks = [chunk(place, [record(number)]) for number in range(2)]
    free = iter([1 << 40, 0])
    monkeypatch.setattr(
        os, "fstatvfs", lambda _: SimpleNamespace(f_blocks=1, f_bavail=next(free), f_frsize=1)
    )
    parked = written(lot, Parkable(table, None, chunks))
    error = parked.error
    assert len(parked.chunks) == 1
    gc.disable()
    try:
        del parked
        lot.tidy()
    finally:
        gc.enable()
    assert error is not None
    assert [each.name for each in tmp_path.iterdir()] == ["parked-1.lock"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"100.00", b"900.00"),
        lambda data: data[:8] + bytes(len(data) - 8),
        lambda data: bytes(len(data)),
    ],
    ids=["a digit", "a part is lost", "all is lost"],
)
def test_a_damaged_file_is_no_row(lot: ParkingLot, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """The worker ends, and the status goes on."""
    own = chunk(assignment(), [record(number, value=b'{"amount": "100.00"}') for number in range(2)])
    work = Work.of(unit(), [own])
    records = ParkedRecords.write(lot, "t", own.assignment.partition, own.messages)
    own.park(records, None)
    path = tmp_path / "parked-1.1"
    path.write_bytes(damage(path.read_bytes()))
    assert first_of(records) is None
    with pytest.raises(CheckpointError, match="is not what was written; the next start reads them from"):
        work.load()


def test_a_batch_whose_file_is_gone_ends_the_worker_and_says_what_a_start_does(
    lot: ParkingLot, tmp_path: Path
) -> None:
    lanes, table = lanes_of(Clock(), 1), unit()
    work = begun(lanes, table)
    lanes.give_back(0, work, delay=0.0, error="it failed")
    lanes.parked.park(written(lot, Parkable(table, work, ())))
    assert taken(lanes, 0) is work
    (tmp_path / "parked-1.1").unlink()
    what = r"^parked records of shop\.orders cannot be read: .*parked-1\.1'; the next start reads them from"
    with pytest.raises(CheckpointError, match=what):
        work.load()


def park(lanes: Lanes, lot: ParkingLot, tables: list[Unit]) -> None:
    for each in lanes.parked.to_park(tables):
        lanes.parked.park(written(lot, each))


def fail(lanes: Lanes) -> None:
    work = taken(lanes, 0)
    if work.parked:
        work.load()
    lanes.give_back(0, work, delay=5.0, error="the target is down")


def test_batches_that_are_retried_stay_within_the_bounds_and_are_written_once(lot: ParkingLot) -> None:
    clock = Clock()
    lanes, tables = lanes_of(clock, 1, max_records=100), [unit(f"t{number}") for number in range(20)]
    source = Source(lanes)
    for table in tables:
        if not source.offer((table, 20)):
            park(lanes, lot, tables)
            assert lanes.room.refused is not None
            assert lanes.offer(lanes.room.refused)
        fail(lanes)
    sizes = []
    for _ in range(4):
        clock.now += 10.0
        for _ in tables:
            fail(lanes)
            park(lanes, lot, tables)
            assert lanes.lanes[0].records <= 100
        sizes.append(lot.bytes)
    assert len(set(sizes[1:])) == 1, sizes


def test_nothing_but_the_batch_itself_reads_its_file(lot: ParkingLot) -> None:
    """The status, a revocation and an order about a record need offsets alone, perhaps under the lock."""
    lanes, table = lanes_of(Clock(), 1), unit()
    work = begun(lanes, table)
    lanes.halt(0, work, "it failed")
    lanes.parked.park(written(lot, Parkable(table, work, ())))
    for path in lot.folder.glob("parked-*"):
        path.unlink()
    piece = work.chunks[0]
    assert first_of(piece.messages) is None
    assert (offset_at(piece.messages, 1), place_of(piece.messages, 2)) == (1, 2)
    work.orders = {1: SetAside("skip", "a person")}
    gone = closed(piece.assignment)
    assert [offset for _, offset in work.offsets()] == [0, 1, 2]
    assert lanes.withdraw([table], gone, 0.0) == []
    assert (lanes.lanes[0].records, table.at_rest) == (0, True)


def test_tables_that_wait_behind_one_that_waits_for_a_standing_table_stand_too() -> None:
    lanes = lanes_of(Clock(), 1)
    source = Source(lanes)
    halted, second, third, free = (unit(name) for name in ("halted", "second", "third", "free"))
    assert source.offer((halted, 1))
    lanes.halt(0, taken(lanes, 0), "it failed")
    for number, (home, other) in enumerate([(halted, second), (second, third)], start=1):
        statement = chunk(source.assignment, [ddl(number)], alone=True)
        statement.barrier = Barrier(home, (other,))
        parts = (home, statement), (other, BarrierChunk(statement, statement.barrier))
        assert lanes.offer(delivery(*parts))
    assert [standing(each) for each in (halted, second, third, free)] == [[halted], [second], [third], []]


class Failing(Handler):
    """Its error was caused by another one. The frames of both have the rows."""

    def handle(self, batch: Batch) -> None:
        rows = [change.after for change in batch.changes]
        try:
            int("x" * len(rows))
        except ValueError as cause:
            raise ValueError("it failed") from cause


def test_errors_of_parked_batches_keep_no_rows_in_memory(lot: ParkingLot) -> None:
    stage, table = Stage(), unit("without_rows", Failing(), retry={"initial_delay": 60.0})
    stage.offer((table, range(5)))
    stage.run(until=lambda: table.error)
    stage.lanes.parked.park(written(lot, Parkable(table, stage.lanes.schedule.kept[table], ())))
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Batch and each.table == table.table.label]
    assert table.error == "ValueError: it failed"


def test_a_batch_whose_target_is_down_is_read_only_to_ask_the_target(lot: ParkingLot) -> None:
    """Thousands of tables may wait for one target. They ask every second while a probe hangs."""
    handler = Scripted(raising(TargetUnavailable("down")))
    stage, table = Stage(), unit("orders", handler, retry={"initial_delay": 60.0})
    stage.offer((table, range(5)))
    given_back = stage.lanes.lanes[0].batches

    def asked_again() -> bool:
        if given_back["given_back"] == 1 and table.state is UnitState.BACKOFF:
            stage.lanes.parked.park(written(lot, Parkable(table, stage.lanes.schedule.kept[table], ())))
            assert stage.lanes.lanes[0].records == 0
            stage.lanes.unblock()
        return given_back["given_back"] == 2

    stage.run(until=asked_again)
    work = stage.lanes.schedule.kept[table]
    assert len(handler.calls) == 1
    assert isinstance(work.chunks[0].messages, ParkedRecords)
    assert (table.blocked, table.error) == (True, "TargetUnavailable: down (handler h0)")
    before = lot.bytes
    stage.lanes.parked.park(written(lot, Parkable(table, work, ())))
    assert (stage.lanes.lanes[0].records, lot.bytes) == (0, before), "it is not written again"
    work.load()
    assert [message.offset() for _, message in work.messages()] == list(range(5))


@pytest.mark.parametrize("first", ["fails", "is parked alone"])
def test_processors_that_wait_for_work_keep_no_files(lot: ParkingLot, first: str) -> None:
    handler = Scripted(raising(ValueError("not now"), times=1) if first == "fails" else lambda _: None)
    stage, table = Stage(2), unit("orders", handler, retry={"initial_delay": 0.2, "jitter": 0.0})
    stage.offer((table, range(5)))
    parkable = Parkable(table, None, tuple(table.chunks))
    if first == "is parked alone":
        stage.lanes.parked.park(written(lot, parkable))

    def parked_and_done() -> bool:
        if table.state is UnitState.BACKOFF and not stage.lanes.schedule.kept[table].parked:
            stage.lanes.parked.park(written(lot, Parkable(table, stage.lanes.schedule.kept[table], ())))
        lot.tidy()
        return table.finished_records == 5 and table.at_rest and lot.bytes == 0

    del parkable
    stage.run(until=parked_and_done)
    assert lot.folder.joinpath("parked-1.lock").exists()
