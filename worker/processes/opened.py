"""The open handlers of a child process, and its batches."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

from handlers import Batch, Change, Handler, HandlerContext
from handlers.loading.registry import create
from handlers.loading.user_code import refuse_unrun
from handlers.rows import borders
from offsets.restore import Start
from offsets.types import TopicPartition
from worker.attempts.circuit import BoundHandler
from worker.attempts.steps import ProcessAway
from worker.column_rules.applying import skips
from worker.column_rules.transforms import passed
from worker.configuration import Configuration, HandlerEntry, TableRule
from worker.configuration.formats import formats_of
from worker.formats.decoding import learn
from worker.formats.interface import Record, SeparateDDL, UndecodableRecord
from worker.formats.registry import FormatChoice
from worker.observing import logs
from worker.processes.messages import Events, Frames, packed_error, packed_fault
from worker.processes.records import made
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.table import Table
from worker.units.unit import Unit
from worker.units.work import Work

unpacked_rule: Callable[[bytes], TableRule] = lru_cache(256)(pickle.loads)
"""Tables share their rules."""

MOST_TABLES = 20_000
"""Most known tables. Beyond this number, all are forgotten, and the worker describes them again."""

_Place = tuple[str, int, int]


@dataclass(frozen=True)
class _Passed:
    """Trace headers that the worker has computed."""

    batch: Mapping[str, str]
    records: Mapping[_Place, Mapping[str, str]]

    def of_batch(self) -> Mapping[str, str]:
        return self.batch

    def of_record(self, topic: str, partition: int, offset: int) -> Mapping[str, str]:
        return self.records.get((topic, partition, offset), {})


asked_by = ContextVar[Frames]("asked_by")
"""The connection whose requests this thread answers."""


class OpenedHandlers:
    """Any thread. The worker numbers the handlers."""

    def __init__(self, batches: Batches, events: Events) -> None:
        self._batches = batches
        self._events = events
        self._all: dict[int, Handler] = {}

    def open(self, number: int, pickled: bytes, folder: str, fields: Mapping[str, Any]) -> None:
        """Make and open a handler. Raises what `create` and its `open` raise."""
        entry: HandlerEntry = pickle.loads(pickled)
        handler = create(entry, Path(folder))
        context = HandlerContext(
            folder=Path(folder),
            metrics=self._events,
            stop_worker=self._events.stop_worker,
            handles=lambda table: self._batches.configuration.handles(entry, table),
            **fields,
        )
        handler.open(context)
        self._all[number] = handler

    def decode_and_handle(
        self, what: Sequence[Any], call: Sequence[Any], latest: float
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Decode a batch and pass it to its handler. Returns the answer of `Batches.decode`, and the packed
        error of the handler."""
        answer = self._batches.decode(*what)
        if answer is None or "ticket" not in answer:
            return answer, None
        total = self._batches.kept(answer["ticket"]).total
        try:
            if total:
                self.handle(answer["ticket"], (0, total, 1), call, latest)
        except BaseException as error:
            return answer, packed_error(error)
        return answer, None

    def handle(self, ticket: int, piece: Sequence[int], call: Sequence[Any], latest: float) -> None:
        """Pass changes of a decoded batch to a handler. Raises what it raises, and ProcessAway.

        `piece`: the first change, the end, the attempt. `call`: the handler's number, the fields of its log
        lines, and the answer of `records.traced`. `latest`: it begins before."""
        work = self._batches.kept(ticket)
        self._call(work.batch(*piece), work.call, call, latest)

    def handle_rows(self, packed_rows: bytes, call: Sequence[Any], latest: float) -> None:
        """As `handle`, with changes that the worker has decoded."""
        table, changes, fields, rule = pickle.loads(packed_rows)
        transform = None if rule is None else unpacked_rule(rule).transforming
        pass_on = partial(passed, transform=transform, by_row=True)
        self._call(Batch(table, changes, **fields), pass_on, call, latest)

    def _call(self, batch: Batch, pass_on: Callable[..., object], call: Sequence[Any], latest: float) -> None:
        number, fields, traced = call
        handler = self._all[number]
        if traced is not None:
            records = {(topic, partition, offset): own for topic, partition, offset, own in traced[1]}
            batch.traced_by = _Passed(traced[0], records)
        token = logs.context.set(lambda: dict(fields))
        try:
            # Immediately before the call: this process may have been stopped, or busy, since it was asked.
            if time.monotonic() >= latest:
                raise ProcessAway("the worker's session may be over", 0.0)
            if asked_by.get().is_over:
                raise ProcessAway("a partition was revoked", 0.0)
            refuse_unrun(pass_on(handler, batch), handler)
        finally:
            logs.context.reset(token)

    def release(self, number: int, partitions: Sequence[tuple[str, int]]) -> None:
        self._all[number].release([(topic, partition) for topic, partition in partitions])

    def status(self, number: int) -> Mapping[str, Any] | None:
        return self._all[number].status()

    def close(self, number: int) -> None:
        handler = self._all.pop(number, None)
        if handler is not None:
            handler.close()


class Batches:
    """Batches that are decoded by the same `Work` as in the worker, and kept until released.

    Any thread. A batch's requests come one after the other, except calls of a table's several handlers."""

    def __init__(self, rebuilt: Callable[[], object]) -> None:
        """`rebuilt`: see `formats_of`."""
        self._rebuilt = rebuilt
        self.configuration: Configuration
        """The latest one, from the first `configure` on."""
        self._formats: FormatChoice | None = None
        self._tables: dict[int, Table] = {}
        self._partitions: dict[tuple[str, int, str | None], Assignment] = {}
        self._kept: dict[int, Work] = {}
        self._tickets = itertools.count(1)

    def configure(self, pickled: bytes) -> Configuration:
        configuration: Configuration = pickle.loads(pickled)
        self.configuration = configuration
        if self._formats is None:
            self._formats = formats_of(
                configuration, patience=None, rebuilt=self._rebuilt, present=lambda: self.configuration
            )
        for table in list(self._tables.values()):
            self._adopt(table)
        return configuration

    def learn(self, records: Iterable[Sequence[Any]]) -> None:
        """Remember the table definitions of these records."""
        assert self._formats is not None  # it is configured first
        for topic, partition, *columns in records:
            format_ = self._formats.of_assigned(topic)
            for record in made(topic, partition, columns):
                learn(cast(SeparateDDL, format_), record)

    def keep(self, schemas: Iterable[Sequence[bytes]]) -> None:
        cast(Any, self._formats).schemas.keep(schemas)

    def decode(
        self,
        token: int,
        described: Sequence[Any] | None,
        most_bytes: int,
        chunks: Iterable[Sequence[Any]],
        released: Iterable[int],
    ) -> dict[str, Any] | None:
        """Decode a batch, and keep it under a ticket. `released`: tickets of batches that nobody needs.

        Returns None if the table is unknown and not `described`."""
        for ticket in released:
            self._kept.pop(ticket, None)
        if described is not None:
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            self._tables[token] = self._table(*described)
        table = self._tables.get(token)
        if table is None:
            return None
        work = Work.of(Unit(table, 0), [self._chunk(*fields) for fields in chunks])
        passed: list[tuple[int, Any]] = []

        def may_skip(message: Record, fault: UndecodableRecord) -> bool:
            if not skips(fault, self.configuration.on_undecodable):
                return False
            number = next(place for place, (_, own) in enumerate(work.messages()) if own is message)
            passed.append((number, packed_fault(fault)))
            return True

        if (found := work.decode(may_skip, most_bytes)) is not None:
            return {"place": found[0], "fault": packed_fault(found[1])}
        ticket = next(self._tickets)
        self._kept[ticket] = work
        changes = cast(Sequence[Change], work.changes)
        plain = len(changes) == work.records and work.ends == list(range(1, work.records + 1))
        numbers = [change.index for change in changes]
        return {
            "ticket": ticket,
            "ends": None if plain else work.ends,
            "numbers": numbers if any(numbers) else None,
            "joined": _joined(changes),
            "passed": passed,
        }

    def compute(self, ticket: int, first: int, end: int, pickled: bytes) -> bytes:
        """See `handlers.rows.on_rows`."""
        changes = cast(Sequence[Change], self._kept[ticket].changes)
        return pickle.dumps(pickle.loads(pickled)(changes[first:end]))

    def kept(self, ticket: int) -> Work:
        return self._kept[ticket]

    def count(self) -> int:
        return len(self._kept)

    def _table(self, pickled: bytes, database: str, name: str) -> Table:
        rule = unpacked_rule(pickled)
        bound = [BoundHandler(entry.name, ()) for entry in rule.handlers]
        table = Table(database, name, rule, bound)
        self._adopt(table)  # it may be from before a reload, and this process from after it
        return table

    def _adopt(self, table: Table) -> None:
        """As in `TableBook.adopt`: a statement in its records may name a table whose rules have changed."""
        rule = self.configuration.rule_for(table.label)
        if rule is None or not rule.is_as(table.rule):  # all tables have the same ones
            rule = self.configuration.tables[0]
        table.statement_rules = rule.statement_rules

    def _chunk(
        self, topic: str, partition: int, topic_id: str | None, alone: bool, *columns: Sequence[Any]
    ) -> Chunk:
        assignment = self._assignment(topic, partition, topic_id)
        return Chunk(assignment, assignment.tracker, made(topic, partition, columns), alone=alone)

    def _assignment(self, topic: str, partition: int, topic_id: str | None) -> Assignment:
        key = topic, partition, topic_id
        if (found := self._partitions.get(key)) is None:
            assert self._formats is not None  # it is configured before the first batch
            start = Start("earliest", (), "initial", "the worker knows")
            found = Assignment(TopicPartition(topic, partition), 0, start, self._formats.of_assigned(topic))
            found.topic_id = topic_id
            self._partitions[key] = found
        return found


def _joined(changes: Sequence[Change]) -> list[int]:
    """Return the places before which the changes may not be split."""
    if not any(change.moves_key for change in changes):
        return []
    return sorted(set(range(len(changes) + 1)).difference(borders(changes, 0, len(changes))))
