"""The open handlers of a child process."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from handlers import Batch, Handler, HandlerContext
from handlers.loading.registry import create
from handlers.loading.user_code import refuse_unrun
from worker.attempts.steps import ProcessAway
from worker.column_rules.transforms import passed
from worker.configuration import HandlerEntry
from worker.observing import logs
from worker.processes.batches import Batches, unpacked_rule
from worker.processes.events import Events
from worker.processes.faults import packed
from worker.processes.frames import Frames

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
            handles=lambda table: self._handles(entry, table),
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
            return answer, packed(error)
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

    def _handles(self, entry: HandlerEntry, table: str) -> bool:
        rule = self._batches.configuration.rule_for(table)
        return rule is not None and any(map(entry.is_like, rule.handlers))
