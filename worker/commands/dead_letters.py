"""`binlane dead-letters list|show|replay`: show the dead-letter topic, and replay its letters one by one."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from handlers import StopWorker
from handlers.values.change_json import line
from offsets.types import TopicPartition
from worker.attempts.backoff import describe
from worker.commands.output import Output, begin, table_with, wide_console
from worker.configuration import Configuration
from worker.dead_letters.topic import DeadLetter, DeadLetterTopic, open_topic
from worker.kafka.connection import ReadFault
from worker.observing.visible_text import visible
from worker.running.dead_letter_replay import Plan, Reader, Replay, ReplayFault, by_failure, in_order

_TOLD = ("table", "handler", "error", "attempts", "time", "worker")


def list_letters(
    config: Path,
    table: str | None = None,
    since: datetime | None = None,
    limit: int | None = None,
    as_json: bool = False,
) -> int:
    """Print the letters, oldest first; with `limit` only that many of the newest.

    Returns 0, or 1 if the topic cannot be read. Raises ConfigurationError."""
    configuration, output = begin("dead-letters", config, check_handlers=False)
    try:
        with open_topic(configuration) as topic:
            kept: deque[DeadLetter] = deque(maxlen=limit)
            # Values may be large, and are not shown.
            found = (
                msgspec.structs.replace(letter, value=None, key=None)
                for letter in topic.read(since)
                if table in (None, letter.table)
            )
            kept.extend(in_order(found))
            rows = [(letter, topic.is_replayed(letter)) for letter in kept]
    except ReadFault as error:
        return output.failed(error)
    if as_json:
        output.json([_as_json(*row) for row in rows])
        return 0
    console = wide_console()
    if rows:
        console.print(_table(rows, output))
    console.print(Text(f"{len(rows)} dead letters, {sum(not done for _, done in rows)} not replayed"))
    return 0


def show(config: Path, place: str) -> int:
    """Print one letter completely: headers, key, value, and its changes by the current configuration.

    Returns 0; 1 if it cannot be read; 2 if `place` is not valid. Raises ConfigurationError."""
    found = _place(place)
    if found is None:
        return _no_place(place)
    configuration, output = begin("dead-letters", config, check_handlers=False)
    try:
        with open_topic(configuration) as topic:
            letter = topic.get(*found)
            replayed = topic.is_replayed(letter)
    except ReadFault as error:
        return output.failed(error)
    console = wide_console()

    def tell(name: str, value: object) -> None:
        shown = output.clean(str(value), lines=True)
        console.print(Text.assemble((f"{name}: ", "bold"), shown), soft_wrap=True)

    tell("dead letter", f"{letter.place} offset {letter.offset}{' (replayed)' if replayed else ''}")
    tell("source", letter.source)
    for name in _TOLD:
        value = getattr(letter, name)
        tell(name, "all" if name == "handler" and value is None else "unknown" if value is None else value)
    for name, header in letter.headers:
        tell(f"header {visible(name)}", _readable(header))
    tell("key", _readable(letter.key))
    tell("value", _readable(letter.value))
    try:
        plan = Reader(configuration).changes(letter)
    except ReplayFault as fault:
        tell("changes", fault)
        return 0
    if plan.skipped is not None:
        tell("changes", f"none ({plan.skipped})")
    for change in plan.changes:
        tell(f"change of {plan.table}", line(change, plan.database, plan.name).decode().rstrip())
    return 0


def replay(
    config: Path,
    places: Sequence[str] | None = None,
    table: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> int:
    """Replay letters through their handlers: those at `places`, or all (of a table) not replayed yet.

    Returns 0; 1 if a letter could not be applied, or the user declined; 2 for an invalid place. Raises
    ConfigurationError."""
    wanted: list[tuple[int, int]] = []
    for place in places or ():
        found = _place(place)
        if found is None:
            return _no_place(place)
        wanted.append(found)
    configuration, output = begin("dead-letters", config)
    try:
        with open_topic(configuration) as topic:
            letters = _chosen(topic, wanted, table)
            if not letters:
                print("no dead letters to replay")
                return 0
            if not (dry_run or yes) and (code := _asked(len(letters), output)) is not None:
                return code
            return _Run(configuration, topic, output, dry_run=dry_run).all(letters)
    except ReadFault as error:
        return output.failed(error)


def _chosen(
    topic: DeadLetterTopic, wanted: Sequence[tuple[int, int]], table: str | None
) -> list[list[DeadLetter]]:
    """Return each chosen letter with the others of the same failure, which are replayed with it."""
    if wanted:
        named = in_order(topic.get(*place) for place in sorted(set(wanted)))
        about = {letter.about for letter in named}
        return by_failure([*named, *in_order(each for each in topic.read_new() if each.about in about)])
    return by_failure(in_order(each for each in topic.read_new() if table in (None, each.table)))


def _table(rows: Sequence[tuple[DeadLetter, bool]], output: Output) -> Table:
    table = table_with(("place", "time", "table", "handler", "source", "attempts", "replayed", "error"))
    for letter, replayed in rows:
        cells = (
            letter.name,
            letter.time or "",
            letter.table or "",
            letter.handler or "all",
            letter.source,
            "" if letter.attempts is None else str(letter.attempts),
            "yes" if replayed else "no",
            letter.error or "",
        )
        table.add_row(*(Text(output.clean(cell)) for cell in cells))
    return table


def _as_json(letter: DeadLetter, replayed: bool) -> dict[str, Any]:
    source = {name: getattr(letter, name) for name in ("topic", "partition", "index")}
    told = {name: getattr(letter, name) for name in _TOLD}
    source["offset"] = letter.source_offset
    return {"place": letter.name, **told, "source": source, "replayed": replayed}


def _readable(data: bytes | None) -> str:
    """Format bytes: JSON indented, other text unchanged, and anything else in hexadecimal digits."""
    if data is None:
        return "none"
    try:
        return msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else f"{len(data)} bytes: {data.hex(' ')}"


def _place(text: str) -> tuple[int, int] | None:
    """Parse `0:17` as (0, 17). Return None if it is invalid."""
    numbers = text.split(":")
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


def _no_place(text: str) -> int:
    allowed = "partition:offset of a dead letter, such as 0:17"
    return Output("dead-letters").failed(f"found {text!r}; allowed: {allowed}", 2)


_SAVE_SECONDS = 1.0
"""Time between two saves. After a crash, letters replayed since the last one are replayed again."""


class _Run:
    """One call of the command."""

    def __init__(
        self, configuration: Configuration, topic: DeadLetterTopic, output: Output, *, dry_run: bool
    ) -> None:
        self._clean = output.clean
        self._applied = self._failures = 0
        self._topic = topic
        self._dry_run = dry_run
        self._reader = Reader(configuration)
        self._replay = Replay(configuration, topic.topic_id)
        self._unsaved: set[TopicPartition] = set()
        self._saved = time.monotonic()

    def all(self, letters: Sequence[Sequence[DeadLetter]]) -> int:
        """Replay the letters in this order; of those of one failure, only the first. Returns 0, or 1 if a
        letter could not be applied. Raises ReadFault: the replayed letters cannot be recorded."""
        try:
            for alike in letters:
                self._one(*alike)
        except StopWorker as error:
            self._failed(f"stopped: {describe(error)}")
        finally:
            for name, fault in self._replay.close():
                self._failed(f"handler {name} could not be closed: {describe(fault)}")
            self._save()
        left = len(letters) - self._applied - self._failures
        done = "would be replayed" if self._dry_run else "replayed"
        not_tried = f", {left} not tried" if left else ""
        self._tell(
            f"{self._applied} of {len(letters)} dead letters {done}, {self._failures} failed{not_tried}"
        )
        return 1 if self._failures or left else 0

    def _one(self, letter: DeadLetter, *alike: DeadLetter) -> None:
        """Replay a letter, also on behalf of `alike`, which are of the same failure. Print the result. Raises
        StopWorker and ReadFault."""
        try:
            plan = self._reader.plan(letter)
            if not self._dry_run:
                self._replay.apply(plan)
        except ReplayFault as fault:
            self._failed(f"{letter.name}  {letter.table or 'unknown table'}  failed: {fault}")
            return
        self._applied += 1
        same = f" (and {', '.join(each.name for each in alike)}, the same failure)" if alike else ""
        self._tell(f"{letter.name}  {_told(plan)}{same}")
        if not self._dry_run:
            for each in (letter, *alike):
                self._topic.remember(each)
                self._unsaved.add(each.place)
            if time.monotonic() - self._saved > _SAVE_SECONDS:
                self._save()

    def _failed(self, told: str) -> None:
        self._failures += 1
        self._tell(told)

    def _tell(self, text: str) -> None:
        print(self._clean(text), flush=True)

    def _save(self) -> None:
        self._topic.save(self._unsaved)
        self._unsaved.clear()
        self._saved = time.monotonic()


def _told(plan: Plan) -> str:
    if plan.skipped is not None:
        return f"nothing to apply ({plan.skipped})"
    changes = f"{len(plan.changes)} changes" if len(plan.changes) != 1 else plan.changes[0].op
    names = ", ".join(entry.name for entry in plan.entries)
    return f"{plan.table}  {changes} of {plan.letter.source} → {names}"


def _asked(count: int, output: Output) -> int | None:
    """Ask for confirmation. Return None to continue, else the exit code."""
    if not sys.stdin.isatty():
        return output.failed(f"{count} letters would be replayed; without a terminal, confirm with --yes", 2)
    print(f"Replay {count} dead letters? [y/N] ", end="", flush=True)
    return None if sys.stdin.readline().strip().lower() in ("y", "yes") else 1
