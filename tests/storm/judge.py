"""Judges the marks of all workers: what was lost, out of order, inside two batches at once, or repeated."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Incident", "Judge"]

_SOON = 0.1
"""Seconds from the end of a freeze to the mark of a batch that had begun before it."""


class Incident(NamedTuple):
    """Something that must not be."""

    when: float
    """Seconds on the machine's monotonic clock."""
    what: str
    """`out of order` or `overlapping`."""
    topic: str
    text: str


@dataclass(slots=True)
class _Table:
    head: int = 0
    """All records below it are finished."""
    ahead: set[int] = field(default_factory=set)
    last: int = -1
    topic: str = ""
    open: dict[tuple[str, int], bool] = field(default_factory=dict)
    """(worker, batch) -> whether it is excused."""


class Judge:
    """Reads the marks as they are written (`look`), in bounded memory.

    A process that was frozen for longer than its session goes on with the batch that it was in, though
    another has its partitions: no consumer of Kafka can know. What was open at `frozen` is excused from
    overlapping, and from what comes after it; never from coming before an unfinished record. So is one batch
    that it begins immediately after `wakes`: the worker had let it begin, but the handler had not marked it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND)
        self._read = 0
        self._lock = threading.Lock()  # guards all below against two looks at once
        self._tables: dict[str, _Table] = defaultdict(_Table)
        self.incidents: list[Incident] = []
        self.repeated: Counter[tuple[int, str]] = Counter()
        """(second of the monotonic clock, topic) -> records."""
        self.finished = 0
        """Records, repeated ones counted once."""
        self.finishes: dict[tuple[str, int], array[float]] = defaultdict(lambda: array("d"))
        """(topic, partition) -> when batches of it were finished, 20 ms apart at least."""
        self._delays: list[float] = []
        self._woken: dict[str, float] = {}

    # ---- told from outside, in the same order as the marks

    def note_end_of(self, worker: str) -> None:
        """This process (name:pid) has ended, and those that it had started (name:pid/pid): what they had open
        stays open for ever."""
        self._note("g", worker)

    def frozen(self, worker: str) -> None:
        self._note("z", worker)

    def wakes(self, worker: str) -> None:
        """Before it goes on."""
        self._note("w", worker)

    def _note(self, kind: str, worker: str) -> None:
        os.write(self._out, json.dumps([kind, time.monotonic(), worker]).encode() + b"\n")

    # ---- judging

    def look(self) -> None:
        """Judge what was written since the last look."""
        with self._lock, self.file.open("rb") as lines:
            lines.seek(self._read)
            whole, newline, _ = lines.read().rpartition(b"\n")  # the last line may be half written
            self._read += len(whole + newline)
            for line in whole.splitlines():
                self._judge(*json.loads(line))

    def _judge(self, kind: str, when: float, worker: str, *fields: Any) -> None:
        if kind == "b":
            self._begin(when, worker, *fields)
        elif kind == "e":
            self._end(when, worker, *fields)
        elif kind == "x":
            self._tables[fields[0]].open.pop((worker, fields[1]), None)
        elif kind == "g":
            for table in self._tables.values():
                table.open = {who: each for who, each in table.open.items() if not _is_of(who[0], worker)}
        elif kind == "w":
            self._woken[worker] = when
        else:
            for table in self._tables.values():
                table.open = {who: each or _is_of(who[0], worker) for who, each in table.open.items()}

    def _begin(self, when: float, worker: str, name: str, batch: int) -> None:
        table = self._tables[name]
        begun_before = when - self._woken.pop(worker, -math.inf) < _SOON
        if not begun_before and (others := [who for who, fine in table.open.items() if not fine]):
            text = f"{worker} begins batch {batch} while {others} is inside"
            self._broken(when, "overlapping", table.topic, name, text)
        table.open[worker, batch] = begun_before

    def _end(  # noqa: PLR0917 - the fields of a line
        self,
        when: float,
        worker: str,
        name: str,
        batch: int,
        topic: str,
        partition: int,
        runs: Iterable[tuple[int, int]],
        oldest: int,
    ) -> None:
        table = self._tables[name]
        table.topic = topic
        excused = table.open.pop((worker, batch), False)
        for first, count in runs:
            end = first + count
            if first > table.head:
                text = f"{worker} finishes {first} while {table.head} is not finished"
                self._broken(when, "out of order", topic, name, text)
            elif not excused and first > table.last + 1:
                text = f"{worker} finishes {first} right after {table.last}"
                self._broken(when, "out of order", topic, name, text)
            before = min(max(table.head - first, 0), count) + len(table.ahead & set(range(first, end)))
            if before:
                self.repeated[int(when), topic] += before
            self.finished += count - before
            if first <= table.head:
                table.head = max(table.head, end)
                table.ahead -= set(range(first, end))
            else:
                table.ahead |= set(range(first, end))
            while table.head in table.ahead:
                table.ahead.remove(table.head)
                table.head += 1
            if not excused or first <= table.last + 1 < end:  # it may have kept its partitions
                table.last = end - 1
        times = self.finishes[topic, partition]
        if not times or when >= times[-1] + 0.02:
            times.append(when)
        self._delays.append(time.time() - (time.monotonic() - when) - oldest / 1000)

    def _broken(self, when: float, what: str, topic: str, table: str, text: str) -> None:
        self.incidents.append(Incident(when, what, topic, f"{when:.3f} {table}: {text}"))

    # ---- what is asked

    def head(self, table: str) -> int:
        """All records below it are finished."""
        return self._tables[table].head

    def unfinished(self, table: str, sent: int) -> int:
        """How many of so many records."""
        known = self._tables[table]
        return sent - known.head - len(known.ahead)

    def had_begun(self, place: tuple[str, int], when: float) -> bool:
        """Whether a batch of it was finished before: a partition that is added later was none."""
        times = self.finishes[place]
        return bool(times) and times[0] < when

    def take_delays(self) -> list[float]:
        """Seconds from the time of each batch's oldest record to its end, since they were taken last."""
        found, self._delays = self._delays, []
        return found

    def next_finish(self, place: tuple[str, int], after: float) -> float | None:
        times = self.finishes[place]
        at = bisect_left(times, after)
        return times[at] if at < len(times) else None


def _is_of(process: str, worker: str) -> bool:
    return process == worker or process.startswith(f"{worker}/")
