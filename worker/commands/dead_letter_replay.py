"""`binlane dead-letters replay`: replay letters one by one, with a result for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from handlers import StopWorker
from offsets.types import TopicPartition
from worker.attempts.backoff import describe
from worker.commands.output import Output
from worker.configuration import Configuration
from worker.dead_letters.record import DeadLetter
from worker.dead_letters.topic import DeadLetterTopic
from worker.running.dead_letter_replay import Plan, Reader, Replay, ReplayFault

_SAVE_SECONDS = 1.0
"""Time between two saves. After a crash, letters replayed since the last one are replayed again."""


def replay_letters(
    configuration: Configuration,
    topic: DeadLetterTopic,
    letters: Sequence[Sequence[DeadLetter]],
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Replay the letters in this order. Of letters of the same failure, only the first is replayed.

    Returns 0; 1 if a letter could not be applied, or the user declined; 2 if nobody can be asked.

    Raises ReadFault: the replayed letters cannot be recorded."""
    if not letters:
        print("no dead letters to replay")
        return 0
    if not dry_run and not yes:
        code = _asked(len(letters), output)
        if code is not None:
            return code
    run = _Run(configuration, topic, output, dry_run=dry_run)
    try:
        for alike in letters:
            run.one(*alike)
    except StopWorker as error:
        run.tell(f"stopped: {describe(error)}")
        run.failed += 1
    finally:
        run.end()
    left = len(letters) - run.applied - run.failed
    done = "would be replayed" if dry_run else "replayed"
    run.tell(
        f"{run.applied} of {len(letters)} dead letters {done}, {run.failed} failed"
        + (f", {left} not tried" if left else "")
    )
    return 1 if run.failed or left else 0


class _Run:
    """One call of the command."""

    def __init__(
        self, configuration: Configuration, topic: DeadLetterTopic, output: Output, *, dry_run: bool
    ) -> None:
        self._clean = output.clean
        self.applied = 0
        self.failed = 0
        self._topic = topic
        self._dry_run = dry_run
        self._reader = Reader(configuration)
        self._replay = Replay(configuration, topic.topic_id)
        self._unsaved: set[TopicPartition] = set()
        self._saved = time.monotonic()

    def one(self, letter: DeadLetter, *alike: DeadLetter) -> None:
        """Replay a letter, also on behalf of `alike`, which are of the same failure. Print the result. Raises
        StopWorker and ReadFault."""
        try:
            plan = self._reader.plan(letter)
            if not self._dry_run:
                self._replay.apply(plan)
        except ReplayFault as fault:
            self.failed += 1
            self.tell(f"{letter.name}  {letter.table or 'unknown table'}  failed: {fault}")
            return
        self.applied += 1
        same = f" (and {', '.join(each.name for each in alike)}, the same failure)" if alike else ""
        self.tell(f"{letter.name}  {_told(plan)}{same}")
        if not self._dry_run:
            for each in (letter, *alike):
                self._topic.remember(each)
                self._unsaved.add(each.place)
            if time.monotonic() - self._saved > _SAVE_SECONDS:
                self._save()

    def end(self) -> None:
        """Close the handlers and save which letters were replayed."""
        for name, error in self._replay.close():
            self.failed += 1
            self.tell(f"handler {name} could not be closed: {describe(error)}")
        self._save()

    def tell(self, text: str) -> None:
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
