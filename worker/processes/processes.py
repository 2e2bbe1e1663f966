"""The child processes of a worker, and which table is handled in which."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from handlers import Batch, Change
from handlers.hanging_calls import Bounded
from handlers.metrics import HandlerMetrics
from worker.attempts.backoff import text_of
from worker.attempts.steps import ProcessAway, ProcessDied
from worker.configuration import Configuration
from worker.formats.interface import UndecodableRecord
from worker.observing.logs import context
from worker.processes.beginning import Begun
from worker.processes.changes import Carried, ChangesElsewhere, Held, Reading, latest_begin
from worker.processes.given import Given, Opening
from worker.processes.messages import Listener, unpacked_error, unpacked_fault
from worker.processes.process import Process
from worker.processes.records import packed_chunks, packed_rows, traced
from worker.processes.slot import Slot
from worker.units.chunk import Chunk
from worker.units.decoded import Decoded, Undecodable
from worker.units.table import Table

_MOST_DEATHS = 3
"""A batch whose decoding has ended a process as often is split. A single record then is undecodable."""
_AGAIN_SECONDS = 0.1


class Processes:
    """Any thread. A table stays in its process, which knows what earlier batches of the table have shown."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        metrics: HandlerMetrics,
        fail: Callable[[BaseException], None],
        rebuilt: Callable[[], object],
        trusted_until: Callable[[], float],
        ready: Callable[[], object],
        ended: Callable[[], object],
        forked: Sequence[Begun] = (),
    ) -> None:
        """`trusted_until`: of `Lanes`. `ended`: called when a process has ended. `ready`: when it is back.
        `forked`: the first processes, if they have begun."""
        self._trusted_until = trusted_until
        self.given = Given(configuration)
        listener = Listener(metrics, fail, rebuilt)
        self._forked = list(forked)
        self._slots = [
            Slot(number, partial(self._process, number, listener), ready=ready, ended=ended)
            for number in range(configuration.lanes.processes)
        ]
        self._lock = threading.Lock()  # guards the attributes below
        self._of_table: dict[str, Slot] = {}
        self._tokens: WeakKeyDictionary[Table, int] = WeakKeyDictionary()
        self._next_token = itertools.count()
        self._deaths: Counter[str] = Counter()
        self._outdated: dict[str, Slot] = {}  # table -> where a statement about it and others was tried

    def start(self) -> None:
        """Start the processes that are not started yet, without waiting for them. Raises OSError."""
        for slot in self._slots:
            slot.start()

    def need_no_more(self) -> None:
        """End forked processes that are not used."""
        while self._forked:
            own = self._forked.pop()
            own.close()
            own.child.wait()

    def _process(self, number: int, listener: Listener, ended: Callable[[Process], None]) -> Process:
        return Process(number, listener, ended, self._forked.pop() if self._forked else None)

    # -- handlers

    def open(self, opening: Opening) -> None:
        """Open a handler in every process. Raises what its `open` raises there, OSError and ProcessAway."""
        self.start()
        end, stopping = time.monotonic() + opening.context.start_timeout, opening.context.stopping
        for slot in self._slots:
            while True:
                try:
                    self.given.open(slot.process, opening)
                    break
                except ProcessAway:  # it has ended, and is started again
                    if time.monotonic() >= end or (stopping and stopping()):
                        raise
                    time.sleep(_AGAIN_SECONDS)

    def everywhere(self, name: str, number: int, *rest: Any) -> dict[str, Any]:
        """Ask each process with this handler, side by side: one may hang. Returns process -> answer, without
        those that have ended. Raises what they raise."""
        asked = {
            slot.number: Bounded(f"{name}-{slot.number}", partial(process.ask, name, number, *rest))
            for slot in self._slots
            if (process := slot.present) is not None and number in process.knows.handlers
        }
        answers = {}
        for where, call in asked.items():
            with suppress(EOFError, OSError):
                answers[f"process {where}"] = call.within(threading.TIMEOUT_MAX)
        return answers

    def handle(self, opening: Opening, batch: Batch) -> None:
        """Pass a batch to a handler in its table's process. Raises its error, ProcessDied and ProcessAway."""
        changes, label = batch.changes, batch.table
        assert isinstance(changes, ChangesElsewhere | Carried)  # by `decoded` or `Table.carried`
        slot = self._slot(label, batch.shard)
        if batch.shard is not None:
            label = f"{label}/{batch.shard}"
        process = slot.process
        self.given.give(process)
        if opening.number not in process.knows.handlers:
            self._reopen(slot, process, opening)
        call = opening.number, context.get()(), traced(batch, changes.chunks)
        others = [
            each.table.label for chunk in changes.chunks if chunk.barrier for each in chunk.barrier.others
        ]
        try:
            with slot.calling(label):
                if isinstance(changes, Carried):
                    if any(change.op == "ddl" for change in changes):
                        others.append(label)  # other processes handle its shards
                    rows = packed_rows(batch, changes.rule)
                    slot.ask(label, process, "handle_rows", rows, call, latest=self._latest(changes.chunks))
                elif (reading := changes.reading).promised:
                    self._decode(reading, slot, process, call)
                else:
                    held = self._held(reading, slot, process)
                    piece = changes.first, changes.end, batch.attempt
                    latest = self._latest(reading.chunks)
                    slot.ask(label, process, "handle", held.ticket, piece, call, latest=latest)
        finally:
            with self._lock if others else nullcontext():
                self._outdated.update(dict.fromkeys(others, slot))
        if others:
            self._renew_others(slot)

    def _compute(self, changes: ChangesElsewhere, function: bytes) -> Any:
        """See `ChangesElsewhere.computed`."""
        reading, label = changes.reading, changes.reading.table.label
        slot = self._slot(label)
        process = slot.process
        self.given.give(process)
        with slot.calling(label):
            held = self._held(reading, slot, process)  # named: another handler may have it decoded again
            found = slot.ask(label, process, "compute", held.ticket, changes.first, changes.end, function)
        return pickle.loads(found)

    def close(self) -> None:
        """End the processes, whose handlers are closed."""
        for call in [Bounded(f"end-{slot.number}", slot.close) for slot in self._slots]:
            call.within(threading.TIMEOUT_MAX)

    # -- decoding

    def decoded(
        self, chunks: Iterable[Chunk], table: Table, undecodable: Undecodable, most_bytes: int
    ) -> Decoded:
        """As `worker.units.decoded.decoded`, in the table's process. Raises ProcessAway."""
        reading = Reading(list(chunks), table, most_bytes, self._compute)
        records = sum(len(chunk.messages) for chunk in reading.chunks)
        slot = self._slot(table.label)
        process = slot.process
        self.given.give(process)
        try:
            answer = self._decode(reading, slot, process)
        except ProcessDied as died:
            with self._lock:
                self._deaths[table.label] += 1
                if self._deaths[table.label] < _MOST_DEATHS:
                    raise ProcessAway(text_of(died), _AGAIN_SECONDS) from died
                if records == 1:
                    del self._deaths[table.label]
            fault = UndecodableRecord(f"the process that reads it ends: {died}")
            if records == 1 and undecodable(reading.chunks[0].messages[0], fault):
                reading.ends, reading.promised = [0], False
                return Decoded(ChangesElsewhere(reading, 0, 0), reading.ends, None)
            return Decoded([], [0] * (records // 2), fault)
        if "fault" in answer:
            return Decoded([], [0] * answer["place"], unpacked_fault(*answer["fault"]))
        return self._taken(reading, undecodable)

    def promised(self, chunks: Iterable[Chunk], table: Table, most_bytes: int) -> Sequence[Change]:
        return ChangesElsewhere(Reading(list(chunks), table, most_bytes, self._compute), 0, 0)

    def kept_promise(self, changes: Sequence[Change] | None, undecodable: Undecodable) -> Decoded | None:
        if not isinstance(changes, ChangesElsewhere) or changes.reading.promised:
            return None
        return self._taken(changes.reading, undecodable)

    def _taken(self, reading: Reading, undecodable: Undecodable) -> Decoded:
        if reading.passed:
            messages = [message for chunk in reading.chunks for message in chunk.messages]
            for number, fault in reading.passed:
                undecodable(messages[number], unpacked_fault(*fault))
        self._deaths.pop(reading.table.label, None)
        total = reading.ends[-1] if reading.ends else 0
        return Decoded(ChangesElsewhere(reading, 0, total), reading.ends, None)

    def carried(self, changes: Iterable[Change], chunks: Sequence[Chunk], rule: Any) -> Sequence[Change]:
        return Carried(changes, chunks, rule)

    def forget(self, changes: Sequence[Change] | None) -> None:
        if isinstance(changes, ChangesElsewhere):
            changes.reading.forget()

    def _decode(
        self, reading: Reading, slot: Slot, process: Process, call: tuple[Any, ...] | None = None
    ) -> dict[str, Any]:
        """`call`: of a handler with the whole batch, if it is decoded. Raises what the handler raises."""
        table = reading.table
        token = self._token(table)
        released = []
        while process.released:
            released.append(process.released.popleft())
        chunks = packed_chunks(reading.chunks)
        known = token in process.knows.tables
        answer = raised = None
        while answer is None:
            described = None if known else (pickle.dumps(table.rule), table.database, table.name)
            what = token, described, reading.most_bytes, chunks, released
            try:
                if call is None:
                    answer = slot.ask(table.label, process, "decode", *what)
                else:
                    latest = self._latest(reading.chunks)
                    answer, raised = slot.ask(
                        table.label, process, "decode_and_handle", what, call, latest=latest
                    )
            except ProcessAway:
                process.released.extend(released)  # it may not have been asked
                raise
            known, released = False, []
        process.knows.tables.add(token)
        found: dict[str, Any] = answer
        if "ticket" in found:
            reading.decoded(process, found)
        if raised is not None:
            raise unpacked_error(raised)
        return found

    def _held(self, reading: Reading, slot: Slot, process: Process) -> Held:
        """Let this process decode it again, if it has not. Raises as `_decode`, and ProcessAway."""
        held = reading.held
        if held is None or held.process is not process:
            fault = self._decode(reading, slot, process).get("fault")
            if fault is not None or (held := reading.held) is None:  # by later rules for statements
                raise ProcessAway(f"it cannot be decoded any more: {fault}", 5.0)
        return held

    def _reopen(self, slot: Slot, process: Process, opening: Opening) -> None:
        """Raises ProcessAway: its changes are valid, whatever prevents the handler from being opened."""
        try:
            # Else another batch is to blame if that ends the process.
            with slot.entered(f"handler {opening.number}: {opening.entry.name}", process, opens=True):
                self.given.open(process, opening)
        except ProcessAway:
            raise
        except Exception as error:
            reason = f"lane process {slot.number} cannot open handler {opening.entry.name}: {text_of(error)}"
            raise ProcessAway(reason, 1.0) from error

    def _renew_others(self, slot: Slot) -> None:
        """What the handlers elsewhere know of the tables of a statement may be wrong now."""
        with self._lock:
            for other in self._slots:
                if other is not slot:
                    other.retire()
            self._outdated = {label: own for label, own in self._outdated.items() if own is not slot}

    def _latest(self, chunks: Iterable[Chunk]) -> Callable[[], float]:
        return partial(latest_begin, chunks, self._trusted_until)

    def _slot(self, label: str, shard: int | None = None) -> Slot:
        slot = self._of_table.get(label) if shard is None else self._slots[shard % len(self._slots)]
        if slot is None:
            with self._lock:
                # Not a hash: two busy tables would often share a process.
                slot = self._of_table.setdefault(label, self._slots[len(self._of_table) % len(self._slots)])
        tried = self._outdated.get(label)
        if tried not in (None, slot):  # and failed: it may have changed something, too
            self._renew_others(tried)
        return slot

    def _token(self, table: Table) -> int:
        with self._lock:
            return self._tokens.setdefault(table, next(self._next_token))
