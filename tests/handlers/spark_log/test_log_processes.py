"""Several worker processes at one log, and kills at any moment."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from log_lab import places_of
from log_writers import put_all, write_for_ever, write_shared

from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import is_temporary
from handlers.spark.log.stores.local import LocalFiles

FILES = LocalFiles()
Start = Callable[..., tuple[BaseProcess, Connection]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with one end of a pipe as its last argument; all end with the test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["handlers.spark.log.stores.local", "handlers.spark.log.segments", "log_writers"]
    )
    started: list[tuple[BaseProcess, Connection]] = []

    def begin(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
        mine, theirs = context.Pipe()
        process = context.Process(target=target, args=(*arguments, theirs))
        process.start()
        theirs.close()
        started.append((process, mine))
        return process, mine

    yield begin
    for process, connection in started:
        process.kill()
        process.join()
        connection.close()


def test_of_processes_that_put_one_path_at_once_exactly_one_does(tmp_path: Path, start: Start) -> None:
    workers = [start(put_all, str(tmp_path), who, 40)[1] for who in range(8)]
    for worker in workers:
        worker.send("go")
    won = [worker.recv() for worker in workers]
    assert sorted(number for numbers in won for number in numbers) == list(range(40))
    for who, numbers in enumerate(won):
        for number in numbers:
            assert (tmp_path / str(number)).read_bytes() == b"%d" % who * 50_000


def test_workers_that_write_one_log_lose_nothing_and_repeat_nothing(tmp_path: Path, start: Start) -> None:
    folder = str(tmp_path / "pending")
    workers = [start(write_shared, folder, who, 4)[1] for who in range(1, 9)]
    for worker in workers:
        worker.send("go")
    for worker in workers:
        worker.recv()
    log = SegmentLog(FILES, folder)
    log.load()
    places = places_of(FILES, log)
    assert sorted(places) == [(partition, offset, 0) for partition in range(9) for offset in range(4)]
    for partition in range(9):
        offsets = [offset for one, offset, _ in places if one == partition]
        assert offsets == sorted(offsets)


def test_a_writer_that_is_killed_leaves_no_torn_segment_and_loses_none(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "orders" / "pending"
    chance = random.Random(20261121)
    last, temporary = 0, 0
    for turn in range(20):
        process, acknowledged = start(write_for_ever, str(folder), turn)
        for _ in range(chance.randint(1, 4)):
            acknowledged.recv()
            last += 1
        time.sleep(chance.uniform(0, 0.02))  # anywhere in a write
        process.kill()
        process.join()
        while acknowledged.poll():
            try:
                last = acknowledged.recv()
            except EOFError:
                break
        temporary += sum(is_temporary(path.name) for path in folder.iterdir())
        log = SegmentLog(FILES, str(folder))
        log.load()
        # One more may have been put, whose answer the kill cut off.
        assert last <= log.last <= last + 1
        last = log.last
        for segment in log.segments:
            assert pq.read_table(segment.path).num_rows == segment.rows > 0
        ((_, (offset, _)),) = log.marks.highest().items()
        assert places_of(FILES, log)[-1] == (0, offset, 0)
    assert temporary > 0, "no kill came within a write"
