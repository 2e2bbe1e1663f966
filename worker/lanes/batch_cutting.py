"""How much of a unit's queue becomes its next batch (when: `schedule`), and putting batches back."""

from __future__ import annotations

from collections.abc import Sequence

from worker.attempts.circuit import BoundHandler
from worker.attempts.retry_and_split import HandlerRun
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk, offset_at, whole_records
from worker.units.unit import Unit
from worker.units.work import Work

_SPREAD_RECORDS, _SPREAD_BYTES = 1_000, 4 << 20
"""The most records and bytes that are decoded at once, to distribute their rows over a table's shards."""

_TopicIds = dict[str, str | None]
"""Topic -> Kafka's id of the topic, None if it is unknown."""


def cut(unit: Unit, room: tuple[int, int] | None = None, *, others_wait: bool = False) -> Work:
    """Cut the next batch of a unit that has records: the head of its queue within the table's batch bounds.

    A DDL record is a batch of its own. A record larger than the bounds forms a batch alone. While
    `others_wait` for a lane, a table without `max_wait` may get a shorter batch (see Turns)."""
    table = unit.table
    most, most_bytes = table.max_records, table.max_bytes
    if unit.shards is not None:
        most, most_bytes = _SPREAD_RECORDS, _SPREAD_BYTES
    if unit.parked and room is not None:  # more than a lane's records and bytes may be parked
        most, most_bytes = min(most, room[0]), min(most_bytes, room[1])
    shortened, parked = False, unit.parked > 0
    if (
        others_wait
        and unit.shards is None
        and table.max_wait <= 0
        and not table.whole
        and (turn := unit.turns.most_records(unit.records)) is not None
    ):
        most = min(most, turn)
        shortened = True
    if unit.records <= most and unit.bytes <= most_bytes and not _divided(unit):
        work = Work(unit, list(unit.chunks), unit.records, unit.bytes)
        unit.chunks.clear()
        unit.records = unit.bytes = unit.parked = 0
    else:
        work = Work.of(unit, _head(unit, most, most_bytes))
        unit.records -= work.records
        unit.bytes -= work.bytes
        if parked:
            unit.parked -= sum(len(chunk.messages) for chunk in work.chunks if chunk.parked)
    if table.whole:
        work = _whole(unit, work)
    work.shortened = shortened
    work.parked = parked and any(chunk.parked for chunk in work.chunks)
    if unit.orders:
        at = [(chunk.assignment, offset) for chunk, offset in work.offsets()]
        work.orders = {number: unit.orders.pop(each) for number, each in enumerate(at) if each in unit.orders}
    return work


def _whole(unit: Unit, work: Work) -> Work:
    """Put a last transaction back that goes on behind the batch, unless the batch has no other."""
    first, last = work.chunks[0], work.chunks[-1]
    if not (last.alone or (unit.chunks and unit.chunks[0].alone)):
        behind = (c for c in unit.chunks if c.assignment is last.assignment and c.messages)
        following = next((offset_at(chunk.messages, 0) for chunk in behind), None)
        count = whole_records(work.chunks, following)
        if 0 < count < work.records:
            unit.push_back(work.unfinished_chunks(count))
            work = work.head(count)
    begins, tail = offset_at(first.messages, 0), unit.tail
    work.continues = (
        tail is not None
        and tail[0] is first.assignment
        and first.assignment.transactions.begin(begins) <= tail[1] < begins
    )
    mark_tail(work)
    return work


def mark_tail(work: Work) -> None:
    """Remember the last record of the unit's last batch."""
    last = work.chunks[-1]
    work.unit.tail = last.assignment, offset_at(last.messages, len(last.messages) - 1)


def keep_orders(work: Work, first: int) -> None:
    """Keep the orders about the work's records from `first` on, because these records are queued again."""
    if work.orders:
        for number, (chunk, offset) in enumerate(work.offsets()):
            if number >= first and number in work.orders and not chunk.assignment.closed:
                work.unit.orders[chunk.assignment, offset] = work.orders[number]


def rebind(work: Work) -> bool:
    """Continue with the table's present rule and handlers. Attempts start again at 1. A handler that already
    finished the batch stays finished if the table still has it. With other rules, a batch comes anew, as
    after a restart, if a handler is new or none has any unfinished record. False: unfold it for this."""
    known = list(zip(work.table.handlers, work.runs, strict=True)) if work.runs else []
    before, work.table = work.table, work.unit.table
    work.judged_by = work.table.statement_rules
    shows_alike = work.rule.shows_as(work.ruled_by.rule) and not work.chunks[0].alone
    comes_anew = not {*work.table.handlers} <= {*before.handlers}
    runs = rebound(work.table.handlers, work.total, known) if known else []
    if not shows_alike and (comes_anew or all(run.done <= (0, *work.ends)[work.finished] for run in runs)):
        if work.finished:
            return False  # what is finished must not come again
        runs = []
    work.ruled_by = work.ruled_by if runs else work.table
    work.runs = runs
    return True


def rebound(
    handlers: Sequence[BoundHandler], total: int, known: list[tuple[BoundHandler, HandlerRun]]
) -> list[HandlerRun]:
    """Return a run for each handler. Reuse the known run of the same handler, or of one with its name."""
    runs = []
    for bound in handlers:
        same = [pair for pair in known if pair[0].name == bound.name]
        if same:
            own = min(same, key=lambda pair: pair[0] is not bound)
            known.remove(own)
            own[1].begin_anew()
            runs.append(own[1])
        else:
            runs.append(HandlerRun(bound, 0, total))
    return runs


def unfold(work: Work) -> list[Chunk]:
    """Queue a kept batch's unfinished records again, except those of closed partitions.

    Returns the chunks that the unit no longer has."""
    unfinished = work.unfinished_chunks()
    keep_orders(work, work.finished)
    work.unit.push_back(chunk for chunk in unfinished if not chunk.assignment.closed)
    return work.head(work.finished).chunks + [c for c in unfinished if c.assignment.closed]


def _head(unit: Unit, most: int, most_bytes: int) -> list[Chunk]:
    """Take the queue's first records within these bounds, or a record that must be a batch of its own."""
    chunks: list[Chunk] = []
    records = size = 0
    ids: _TopicIds = {}
    while unit.chunks:
        chunk = unit.chunks[0]
        if chunks and (chunk.alone or _another_id(ids, chunks[0].assignment, chunk)):
            break
        if records + len(chunk.messages) > most or size + chunk.bytes > most_bytes:
            count = chunk.head(most - records, most_bytes - size)
            if count == 0 and not chunks:
                count = 1
            if count == 0:
                break
            if count < len(chunk.messages):
                head, unit.chunks[0] = chunk.split(count)
                chunks.append(head)
                break
        unit.chunks.popleft()
        chunks.append(chunk)
        if chunk.alone:
            break
        records += len(chunk.messages)
        size += chunk.bytes
    return chunks


def _divided(unit: Unit) -> bool:
    """Whether the queued records must not form one batch."""
    chunks = unit.chunks
    if len(chunks) == 1:
        return False
    first = chunks[0].assignment
    ids: _TopicIds = {}
    for chunk in chunks:
        if chunk.alone or (chunk.assignment is not first and _another_id(ids, first, chunk)):
            return True
    return False


def _another_id(ids: _TopicIds, first: Assignment, chunk: Chunk) -> bool:
    """Whether a topic was recreated between earlier chunks and this one: a batch has one id for each topic.

    `ids`: ids of the earlier chunks' topics, empty at first. `first`: the first chunk's assignment."""
    if not ids:
        ids[first.partition.topic] = first.topic_id
    topic_id = chunk.assignment.topic_id
    return ids.setdefault(chunk.assignment.partition.topic, topic_id) != topic_id
