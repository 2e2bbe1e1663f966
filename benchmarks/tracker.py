"""The cost of tracking every offset, in time and in memory."""

from __future__ import annotations

import gc
import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence

from sortedcontainers import SortedSet

from benchmarks.context import Context
from benchmarks.processes import BenchmarkError
from benchmarks.results import Report, at_most
from offsets.run import Run
from offsets.tracker import OffsetTracker

__all__ = ["run"]

_POLL = 1_000
_WORKERS = 20
_CHECKPOINT_EVERY = 500  # polls: three times as often as at 300,000 records/s and every 5 s
_MICROSECONDS = 0.3
_BYTES = 2.0
_REPEATS = 3

Part = tuple[int, list[int]]
"""(number of the poll, offsets that one worker finishes at once)"""


def run(context: Context) -> Report:
    """Finish 1,000,000 offsets in polls of 1,000, in an order shuffled over 20 workers."""
    records = context.pick(1_000_000, 100_000)
    polls = [list(range(first, first + _POLL)) for first in range(0, records, _POLL)]
    queues = _parts(polls)
    order = _order(queues)
    report = Report(
        "tracker",
        f"Tracker: {records:,} offsets in polls of {_POLL:,}, finished in any order by {_WORKERS} workers",
        {"what": "What", "micros": "us a record", "bytes": "Bytes a finished-ahead offset"},
    )
    one = min(_seconds(lambda: _one_thread(polls, order)) for _ in range(_REPEATS)) / records * 1e6
    many = min(_seconds(lambda: _many_threads(polls, queues)) for _ in range(_REPEATS)) / records * 1e6
    single = _seconds(lambda: _single_offsets(polls, order)) / records * 1e6
    ahead = {name: _bytes_ahead(polls, every) for name, every in (("", 1), (" (every second offset)", 2))}
    report.row(what="register, finish, checkpoint: one thread", micros=one)
    report.row(what=f"the same, {_WORKERS} threads finish", micros=many)
    report.row(what="for comparison: a sorted set of offsets", micros=single)
    for name, size in ahead.items():
        report.row(what=f"finished behind one stuck offset{name}", bytes=size)
    report.goals += [
        at_most(_MICROSECONDS, one, "us", "a record"),
        at_most(_MICROSECONDS, many, "us", f"a record, {_WORKERS} threads"),
        at_most(_BYTES, ahead[""], "bytes", "memory behind one stuck offset"),
    ]
    report.notes.append(
        f"Best of {_REPEATS} runs, with a checkpoint every {_CHECKPOINT_EVERY} polls. The peers' trackers "
        "cannot be measured alone."
    )
    return report


def _parts(polls: Sequence[list[int]]) -> list[list[Part]]:
    """Return the parts that each worker finishes, poll by poll."""
    pick = random.Random(7).randrange
    queues: list[list[Part]] = [[] for _ in range(_WORKERS)]
    for number, offsets in enumerate(polls):
        parts: list[list[int]] = [[] for _ in range(_WORKERS)]
        for offset in offsets:
            parts[pick(_WORKERS)].append(offset)
        for queue, part in zip(queues, parts, strict=True):
            queue.append((number, part))
    return queues


def _order(queues: Sequence[list[Part]]) -> list[Part]:
    """Return the parts in the order of workers of random speed. Each worker keeps its own order."""
    turns = [worker for worker, queue in enumerate(queues) for _ in queue]
    random.Random(11).shuffle(turns)
    left = [iter(queue) for queue in queues]
    return [next(left[worker]) for worker in turns]


def _one_thread(polls: Sequence[list[int]], order: Sequence[Part]) -> None:
    tracker = OffsetTracker(0)
    runs: list[Run] = []
    for offsets in polls:
        runs.append(_register(tracker, offsets))
        if len(runs) % _CHECKPOINT_EVERY == 0:
            tracker.checkpoint()
    for done, (poll, offsets) in enumerate(order):
        runs[poll].finish(offsets)
        if done % (_CHECKPOINT_EVERY * _WORKERS) == 0:
            tracker.checkpoint()
    _expect(tracker, polls[-1][-1] + 1)


def _many_threads(polls: Sequence[list[int]], queues: Sequence[list[Part]]) -> None:
    tracker = OffsetTracker(0)
    runs: list[Run] = []
    fetched = threading.Event()

    def finish(queue: Sequence[Part]) -> None:
        fetched.wait()
        for poll, offsets in queue:
            runs[poll].finish(offsets)

    workers = [
        threading.Thread(target=finish, args=(queue,), name=f"worker-{number}")
        for number, queue in enumerate(queues)
    ]
    for worker in workers:
        worker.start()
    for offsets in polls:
        runs.append(_register(tracker, offsets))
    fetched.set()
    while any(worker.is_alive() for worker in workers):
        tracker.checkpoint()
        for worker in workers:
            worker.join(0.05)
    _expect(tracker, polls[-1][-1] + 1)


def _register(tracker: OffsetTracker, offsets: list[int]) -> Run:
    """Register as the worker does. Offsets that are surely new are not looked up one by one."""
    if offsets[0] < tracker.fresh_from:
        offsets = tracker.unknown(offsets)
    return tracker.register(offsets)


def _single_offsets(polls: Sequence[list[int]], order: Sequence[Part]) -> None:
    """Do the same with one entry for each offset. The lowest entry may be committed."""
    unfinished = SortedSet()
    for offsets in polls:
        for offset in offsets:
            unfinished.add(offset)
    for _, offsets in order:
        for offset in offsets:
            unfinished.discard(offset)


def _bytes_ahead(polls: Sequence[list[int]], every: int) -> float:
    """Return the tracker's bytes for each finished offset behind the first one, which is unfinished.

    The maximum of two moments: everything since the last checkpoint is finished, and after a checkpoint.
    """
    gc.collect()
    tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        tracker = OffsetTracker(0)
        finished = 0
        runs = []
        for offsets in polls:
            run = tracker.register(offsets)
            runs.append(run)
            done = [offset for offset in offsets[::every] if offset]
            run.finish(done)
            finished += len(done)
        del runs, run, done
        gc.collect()
        before = tracemalloc.get_traced_memory()[0] - begin
        checkpoint = tracker.checkpoint()
        if checkpoint is None or checkpoint.offset != 0:
            raise BenchmarkError(f"the tracker passed an unfinished offset: {checkpoint}")
        del checkpoint
        gc.collect()
        after = tracemalloc.get_traced_memory()[0] - begin
    finally:
        tracemalloc.stop()
    return max(before, after) / finished


def _expect(tracker: OffsetTracker, offset: int) -> None:
    checkpoint = tracker.checkpoint()
    if checkpoint is None or checkpoint.offset != offset or checkpoint.ahead:
        raise BenchmarkError(f"the tracker ends at {checkpoint}, not at {offset}")


def _seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
