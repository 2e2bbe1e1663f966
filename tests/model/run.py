"""One example: a source's steps, a tool's records, batches, a target, and where it differs from the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from captured import CapturedRecord

from handlers import Batch, Change, PartialFailure, Rejected, StopWorker, TargetUnavailable
from worker.column_rules.applying import bring_under
from worker.column_rules.plan import RuleFault
from worker.configuration import Configuration, TableRule
from worker.formats.interface import Record, UndecodableRecord

from .rules import SECRET, Rules
from .source import Event, Source, Step
from .targets.interface import Target
from .told import Expected, Move, Untold
from .without_key import ExpectedRows
from .writers.writing import Names, Writer, Written

_names = itertools.count(1)


@dataclass(frozen=True)
class Example:
    key: tuple[str, ...]
    writer: Writer
    rules: Rules
    steps: list[Step]
    read_at_once: int
    """How many steps a tool reads at once."""
    batch: int
    """How many records a batch has at most."""
    again: int
    """How many records come again after each batch, as after a crash before Kafka took the commit."""
    restarts: bool = False
    """Whether worker and target are other ones then."""


@cache
def _rule(rules: Rules, type_: str) -> TableRule:
    handlers = {"sql": {"type": "sql", "url": "sqlite:///x"}}
    [made] = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]},
            "masking": {"secret": SECRET},
            "tables": [
                {"match": "*", "handlers": [handlers.get(type_, {"type": "log"})], **rules.settings()}
            ],
        }
    ).tables
    return made


class _Run:
    def __init__(self, example: Example, target: Target) -> None:
        self.names = Names(f"d{next(_names)}", "t", example.key)
        self.example, self.target = example, target
        self.expected: Expected | ExpectedRows = (
            Expected(example.key, example.rules, target.limits)
            if example.key
            else ExpectedRows(example.rules, target.limits)
        )
        self.told: list[str] = []
        """What is wrong."""
        self._format = example.writer.format(self.names)
        self._marks = itertools.count(1)
        self._taught: list[Record] = []

    def hand_over(self) -> None:
        if self.target.prepare is not None:
            self.target.prepare(self.names)
        self._hand_over(list(self._written()))

    def differences(self) -> list[str]:
        """Of what the target holds now."""
        told = self.told or self.expected.differences(self.target.rows(self.names))
        return [f"{self.example}", *told] if told else []

    def _written(self) -> Iterator[Written]:
        source = Source(self.example.key)
        steps_told = [
            step
            for step in self.example.steps
            if not (step.kind == "truncate" and not self.target.limits.truncates)
        ]
        for steps in _chunks(steps_told, self.example.read_at_once):
            events: list[Event] = [event for step in steps for event in source.run(step)]
            yield from self.example.writer.write(self.names, events)

    def _hand_over(self, records: Sequence[Written]) -> None:
        numbered = list(enumerate(records))
        failed: dict[int, BaseException] = {}
        states: list[Any] = []
        """What is expected before each record."""
        for group in _chunks(numbered, self.example.batch):
            self._take(group, failed)
            self._expect_all(group, failed, states)
            self._hand_out()
            if self.example.again:
                # A batch of another size; what is in the target already comes upon what came after it.
                end = group[-1][0] + 1
                again = numbered[max(0, end - self.example.again) : end]
                self._restart()
                self._take(again, failed)
                if self.target.hand_out is None:  # else it passes over what it has done
                    self.expected = states[again[0][0]]
                    del states[again[0][0] :]
                    self._expect_all(again, failed, states)

    def _take(self, group: Sequence[tuple[int, Written]], failed: dict[int, BaseException]) -> None:
        changes: list[Change] = []
        for offset, record in group:
            try:
                changes += self._decoded(record, offset)
            except (UndecodableRecord, RuleFault) as fault:
                failed[offset] = fault
        for batch in _batches(changes):
            self._handle(batch, failed)

    def _restart(self) -> None:
        if not self.example.restarts:
            return
        if self.target.restart is not None:
            self.target.restart()
        self._format = self.example.writer.format(self.names)
        for record in self._taught:
            self._format.learn(record)

    def _expect_all(
        self, group: Sequence[tuple[int, Written]], failed: dict[int, BaseException], states: list[Any]
    ) -> None:
        for offset, record in group:
            if self.example.again:
                states.append(self.expected.copied())
            self._expect(record, offset, failed.get(offset))

    def _hand_out(self) -> None:
        if self.target.hand_out is not None:
            mark = f"own {next(self._marks)}"
            self.target.hand_out(self.names, mark)
            self.expected.hand_out(mark)

    def _decoded(self, record: Written, offset: int) -> list[Change]:
        topic = f"cdc.{self.names.database}"
        headers: list[tuple[str, bytes | None]] = list(record.headers)
        place = CapturedRecord(topic, 0, offset, 1_763_000_000_123, record.key, record.value, headers)
        changes: list[Change] = []
        if record.teaches is not None:
            self._format.learn(record.teaches)
            self._taught.append(record.teaches)
        self._format.decode(place, changes)
        count = sum(2 if isinstance(one, Move) else 1 for one in record.told)
        if len(changes) != count:
            self.told.append(f"record {offset} became {len(changes)} changes, expected {count}: {record}")
        rule = _rule(self.example.rules, self.target.type)
        names = {"database": self.names.database, "table": self.names.table}
        bring_under(rule.row_rules, rule.statement_rules, changes, 0, **names)
        return changes

    def _handle(self, changes: Sequence[Change], failed: dict[int, BaseException]) -> None:
        """As a worker does: what is rejected is left out, and the others go on."""
        if not changes:
            return
        table = f"{self.names.database}.{self.names.table}"
        batch = Batch(table, tuple(changes), database=self.names.database, name=self.names.table)
        try:
            self.target.handler.handle(batch)
        except (StopWorker, TargetUnavailable):
            raise
        except PartialFailure as failure:
            at = failure.done
            failed[changes[at].offset] = failure.cause or failure
        except Rejected as rejected:
            if rejected.at is None and len(changes) > 1:
                self._handle(changes[: len(changes) // 2], failed)
                self._handle(changes[len(changes) // 2 :], failed)
                return
            at = rejected.at or 0
            failed[changes[at].offset] = rejected
            self._handle(changes[:at], failed)
        else:
            return
        self._handle(changes[at + 1 :], failed)

    def _expect(self, record: Written, offset: int, fault: BaseException | None) -> None:
        may_fail = fault is None
        for told in record.told:
            if fault is None and isinstance(told, Untold):
                self.told.append(f"record {offset} is in no error, and does not tell its row: {record}")
            elif fault is None:
                self.expected.apply(told)
                continue
            may_fail = may_fail or self.expected.may_fail(told)
            self.expected.lose(told)
        if not may_fail:
            self.told.append(f"record {offset} is in an error, {fault!r}: {record}")


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[place : place + size] for place in range(0, len(items), size))


def _batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """A statement stands alone."""
    alone = frozenset(("ddl", "truncate"))
    groups = itertools.groupby(enumerate(changes), lambda one: one[0] if one[1].op in alone else -1)
    return ([change for _, change in group] for _, group in groups)


def differences(examples: Sequence[Example], target: Target) -> list[str]:
    """Where the target differs from the model; empty: nowhere."""
    runs = [_Run(example, target) for example in examples]
    try:
        for run in runs:
            run.hand_over()
        if target.settle is not None:
            target.settle()
        return [line for run in runs for line in run.differences()]
    finally:
        for run in runs:
            target.forget(run.names)
