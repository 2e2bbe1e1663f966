"""Worker processes that write one log until they are done, or killed."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection

from log_lab import change, rows, take

from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import AlreadyThere
from handlers.spark.log.stores.local import LocalFiles

__all__ = ["put_all", "write_for_ever", "write_shared"]


def put_all(folder: str, who: int, paths: int, won: Connection) -> None:
    """Put each of `paths` once; says which it got."""
    files = LocalFiles()
    won.recv()
    got = []
    for number in range(paths):
        try:
            files.put(f"{folder}/{number}", b"%d" % who * 50_000)
        except AlreadyThere:
            continue
        got.append(number)
    won.send(got)


def write_shared(folder: str, who: int, count: int, start: Connection) -> None:
    """Changes of a partition of its own, and those of partition 0, which all hold."""
    log = SegmentLog(LocalFiles(), folder)
    log.load()
    start.recv()
    for offset in range(count):
        take(log, [change(offset, partition=who), change(offset, partition=0)])
    start.send(log.last)


def write_for_ever(folder: str, seed: int, acknowledged: Connection) -> None:
    """Goes on where the log ends, says the number of each segment that it has put, removes old ones."""
    chance = random.Random(seed)
    log = SegmentLog(LocalFiles(), folder)
    log.load()
    offset = log.last * 1_000
    while True:
        size = chance.randint(1, 400)
        changes = [change(offset + number) for number in range(size)]
        log.append(rows(changes), log.marks.advanced(changes, None), key=["id"])
        acknowledged.send(log.last)
        offset = log.last * 1_000
        if chance.random() < 0.2:
            log.remove(log.last - chance.randint(1, 4))
