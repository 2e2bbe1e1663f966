"""When each batch ran, in which lane, and whether its table's order was kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from worker.demo.commits import Commit
from worker.demo.recorder import RecordedBatch
from worker.demo.source import Place

__all__ = ["LaneWork", "Span", "TableWork", "at_once", "lane_work", "order_faults", "spans", "table_work"]


class Span(NamedTuple):
    """A batch from its beginning to its commit in the Delta table. Times in seconds since 1970."""

    table: str
    lane: int
    began: float
    ended: float
    changes: int
    behind: float
    """Seconds from the source's commit of the first change to the Delta table's."""


class LaneWork(NamedTuple):
    lane: int
    batches: int
    changes: int
    busy_seconds: float
    tables: tuple[str, ...]


class TableWork(NamedTuple):
    table: str
    lanes: tuple[int, ...]
    batches: int
    changes: int
    busy_seconds: float
    behind_seconds: float
    """The longest."""


def spans(batches: Iterable[RecordedBatch], commits: Mapping[str, Sequence[Commit]]) -> list[Span]:
    """Each batch with the commit that holds its changes; a batch without one is left out (`order_faults`
    tells of it)."""
    ends = {
        (table, commit.first_offset, commit.last_offset, commit.rows): commit.ended
        for table, of_table in commits.items()
        for commit in of_table
    }
    found = []
    for batch in batches:
        ended = ends.get(_identity(batch))
        if ended is not None:
            behind = ended - batch.source_time_ms / 1000
            found.append(Span(batch.table, batch.lane, batch.began, ended, len(batch.places), behind))
    return found


def order_faults(
    table: str, history: Sequence[Place], batches: Iterable[RecordedBatch], commits: Sequence[Commit]
) -> list[str]:
    """What is wrong with the way one table's changes took; empty: each came once, in order, alone.

    The handlers must have seen the source's changes row by row in the source's order; the Delta table must
    hold each batch as one commit, in the same order; and each commit must be there before the next batch
    begins.
    """
    own = [batch for batch in batches if batch.table == table]
    faults = []
    seen = [place for batch in own for place in batch.places]
    for before, after in pairwise(seen):
        if after <= before:
            faults.append(f"the change at offset {after[0]}[{after[1]}] came after {before[0]}[{before[1]}]")
    expected = [(place.message, place.row) for place in history]
    if missing := sorted(set(expected) - set(seen)):
        faults.append(f"{len(missing)} changes never came, the first of offset {missing[0][0]}")
    if unknown := sorted(set(seen) - set(expected)):
        faults.append(f"{len(unknown)} changes came that the source never made, first at {unknown[0][0]}")
    written = [(table, commit.first_offset, commit.last_offset, commit.rows) for commit in commits]
    if written != [_identity(batch) for batch in own]:
        faults.append(
            f"{len(own)} batches were handled, but the Delta table has {len(written)} other appends"
        )
    else:
        for commit, following in zip(commits, own[1:], strict=False):
            if following.began < commit.ended:
                faults.append(
                    f"the batch from offset {following.places[0][0]} began before the last one ended"
                )
    return faults


def lane_work(found: Iterable[Span], lanes: int) -> list[LaneWork]:
    """What each lane did, idle ones too."""
    works = []
    for lane in range(lanes):
        own = [span for span in found if span.lane == lane]
        tables = tuple(dict.fromkeys(span.table for span in own))
        works.append(LaneWork(lane, len(own), sum(span.changes for span in own), _busy(own), tables))
    return works


def table_work(found: Iterable[Span], table: str) -> TableWork:
    own = [span for span in found if span.table == table]
    return TableWork(
        table,
        tuple(sorted({span.lane for span in own})),
        len(own),
        sum(span.changes for span in own),
        _busy(own),
        max((span.behind for span in own), default=0.0),
    )


def at_once(found: Iterable[Span]) -> tuple[int, float]:
    """How many batches ran at once: the most, and the mean over the time in which any ran."""
    events = sorted([(span.began, 1) for span in found] + [(span.ended, -1) for span in found])
    running = most = 0
    worked = total = 0.0
    for (moment, step), (following, _) in pairwise(events):
        running += step
        most = max(most, running)
        if running:
            total += following - moment
            worked += running * (following - moment)
    return most, worked / total if total else 0.0


def _identity(batch: RecordedBatch) -> tuple[str, int, int, int]:
    return batch.table, batch.places[0][0], batch.places[-1][0], len(batch.places)


def _busy(own: Iterable[Span]) -> float:
    return sum(span.ended - span.began for span in own)
