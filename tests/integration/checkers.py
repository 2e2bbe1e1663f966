"""What is promised of every run, as objects that judge the recorded events of any run.

After Decaton's ProcessingGuarantee and ProcessOrdering: a test says which guarantees a run must have held,
not how to look for them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "Guarantee",
    "NeverTwoAtOnce",
    "NothingLost",
    "NothingTwice",
    "NothingTwiceButWhatRan",
    "Run",
    "TableOrder",
]

Event = dict[str, Any]


class Run:
    """The events of a run, in the order in which they happened, whichever process wrote them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._events: list[Event] = []
        self._read = 0  # bytes

    def events(self) -> list[Event]:
        """All events so far; only what is new is read."""
        if self.file.exists():
            with self.file.open("rb") as lines:
                lines.seek(self._read)
                # The last line may be half written just now.
                whole, newline, _ = lines.read().rpartition(b"\n")
            self._read += len(whole + newline)
            self._events += map(json.loads, whole.splitlines())
        return self._events

    def rows(self, handler: str | None = None) -> list[Event]:
        return [
            event
            for event in self.events()
            if event["event"] == "row" and (handler is None or event["handler"] == handler)
        ]

    def seqs(self) -> dict[str, list[int]]:
        """{table: the numbers of its rows, as they were handled}."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.rows():
            found[row["table"]].append(row["seq"])
        return dict(found)

    def note_end_of(self, worker: str) -> None:
        """Write down that this process (name:pid) is gone: what it had open will never end by itself."""
        with self.file.open("ab", buffering=0) as out:
            out.write(json.dumps({"event": "gone", "worker": worker}).encode() + b"\n")

    def handled(self) -> int:
        """How many rows were handled; repeated ones count once."""
        return len({(row["handler"], row["table"], row["seq"]) for row in self.rows()})

    def mark(self) -> int:
        """A place to look at later events from: `run.events()[mark:]`."""
        return len(self.events())


class Guarantee(Protocol):
    def broken(self, events: Sequence[Event]) -> list[str]:
        """What breaks the guarantee, in words; empty when it holds."""
        ...


class NothingLost:
    """Every row that was sent was handled, by each of the handlers."""

    def __init__(self, sent: Mapping[str, Iterable[int]], handlers: Sequence[str] = ()) -> None:
        self.sent = {table: set(rows) for table, rows in sent.items()}
        self.handlers = handlers

    def broken(self, events: Sequence[Event]) -> list[str]:
        handled: dict[tuple[str, str], set[int]] = defaultdict(set)
        for event in events:
            if event["event"] == "row":
                handled[event["handler"], event["table"]].add(event["seq"])
        found = []
        for handler in self.handlers or sorted({handler for handler, _ in handled}) or ["any handler"]:
            for table, rows in sorted(self.sent.items()):
                if missing := sorted(rows - handled[handler, table]):
                    found.append(f"{handler}: {len(missing)} rows of {table} never came: {missing[:5]} ...")
                if strange := sorted(handled[handler, table] - rows):
                    found.append(f"{handler}: rows of {table} that were never sent: {strange[:5]}")
        return found


class NothingTwice:
    """No row came a second time."""

    def broken(self, events: Sequence[Event]) -> list[str]:
        seen: set[tuple[str, str, int]] = set()
        found = []
        for event in events:
            if event["event"] == "row":
                row = (event["handler"], event["table"], event["seq"])
                if row in seen:
                    found.append(f"{row[0]}: row {row[2]} of {row[1]} came again")
                seen.add(row)
        return found[:10]


class NothingTwiceButWhatRan:
    """No row came a second time but those of batches that ran when their worker was killed: of which nobody
    can tell how far they were. So of each thread the rows of one batch, its last."""

    def broken(self, events: Sequence[Event]) -> list[str]:
        last: dict[tuple[str, str], int] = {}  # (worker, thread) -> its last batch
        for event in events:
            if event["event"] == "start":
                last[event["worker"], event["thread"]] = event["batch"]
        before: dict[tuple[str, str, int], Event] = {}
        found = []
        for event in events:
            if event["event"] == "row":
                row = (event["handler"], event["table"], event["seq"])
                first = before.get(row)
                if first is not None and last[first["worker"], first["thread"]] != first["batch"]:
                    found.append(f"{row[0]}: row {row[2]} of {row[1]} came again, which {first} had finished")
                before[row] = event
        return found[:10]


class TableOrder:
    """The rows of each table come in source order.

    A suffix may come again, from an earlier row, in order: so a row is the next one after its predecessor,
    or an earlier one; it never jumps ahead. With `first`, a table begins at that row instead of 0.
    """

    def __init__(self, first: Mapping[str, int] | None = None) -> None:
        self.first = first or {}

    def broken(self, events: Sequence[Event]) -> list[str]:
        last: dict[tuple[str, str], int] = {}
        found = []
        for event in events:
            if event["event"] == "row":
                unit = (event["handler"], event["table"])
                before = last.get(unit, self.first.get(event["table"], 0) - 1)
                if event["seq"] > before + 1:
                    found.append(f"{unit[0]}: row {event['seq']} of {unit[1]} came after row {before}")
                last[unit] = event["seq"]
        return found[:10]


class NeverTwoAtOnce:
    """At no time two batches of a table are inside a handler, in whichever processes."""

    def broken(self, events: Sequence[Event]) -> list[str]:
        inside: dict[tuple[str, str], tuple[str, int, str | None]] = {}
        found = []
        for event in events:
            kind = event["event"]
            if kind == "gone":
                inside = {unit: who for unit, who in inside.items() if event["worker"] not in who}
            elif kind in ("start", "row", "end"):
                unit = (event["handler"], event["table"])
                who = (event["worker"], event["batch"], event.get("process"))
                if kind == "start" and unit in inside:
                    found.append(f"{who[:2]} began a batch of {unit[1]} while {inside[unit][:2]} was inside")
                elif kind != "start" and inside.get(unit) != who:
                    other = inside[unit][:2] if unit in inside else None
                    found.append(f"{who[:2]} is inside {unit[1]}, which {other} entered after it")
                if kind == "start":
                    inside[unit] = who
                elif kind == "end" and inside.get(unit) == who:
                    del inside[unit]
        return found[:10]
