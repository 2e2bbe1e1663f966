"""When and in which lane batches ran, and whether each table's order was kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from worker.demo.recorder import RecordedBatch
from worker.demo.shop.source import Place

_STATEMENTS = ("ddl", "truncate")


class Commit(NamedTuple):
    """One merge, from a Delta table's log."""

    last: tuple[int, int]
    """(offset, index) of the last change in the table after this merge."""
    ended: float
    """Seconds since 1970."""


def read_commits(table: Path, topic: str) -> list[Commit]:
    """Return the merges of changes from partition 0 of the topic, in order; empty if there is no table.

    The log's format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    """
    commits = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        for action in msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes()):
            info = action.get("commitInfo", {})
            note = _note(info.get("userMetadata"))
            # Commits of DDL or of others do not say how far changes are merged.
            if place := note.get("marks", {}).get(topic, {}).get("0"):
                commits.append(Commit((place[0], place[1]), info["timestamp"] / 1000))
    return commits


def _note(metadata: str | None) -> dict[str, Any]:
    try:
        note: dict[str, Any] = msgspec.json.decode(metadata or "{}").get("binlane", {})
    except (msgspec.DecodeError, AttributeError):
        return {}
    return note


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
    merges: int
    behind_seconds: float
    """The longest time from the source's commit of a batch's first change to the Delta commit of its last
    one."""


def order_faults(
    table: str, history: Sequence[Place], batches: Iterable[RecordedBatch], commits: Sequence[Commit]
) -> list[str]:
    """Return the faults of one table's changes; empty: each came once, in order, and was merged.

    The handlers must have received the source's changes row by row in the source's order. Each commit of the
    Delta table must continue after the previous one, and must not precede the handling of its changes. The
    last one must contain the last change.
    """
    own = [batch for batch in batches if batch.table == table]
    faults = []
    seen = [place for batch in own for place in batch.places]
    for before, after in pairwise(seen):
        if after <= before:
            faults.append(f"the change at offset {after[0]}[{after[1]}] follows {before[0]}[{before[1]}]")
    expected = [(place.message, place.row) for place in history]
    if missing := sorted(set(expected) - set(seen)):
        faults.append(f"{len(missing)} changes were never handled, the first at offset {missing[0][0]}")
    if unknown := sorted(set(seen) - set(expected)):
        faults.append(f"{len(unknown)} changes are not from the source, the first at {unknown[0][0]}")
    return faults + _commit_faults(history, own, commits)


def _commit_faults(
    history: Sequence[Place], own: Sequence[RecordedBatch], commits: Sequence[Commit]
) -> list[str]:
    faults = []
    for earlier, later in pairwise(commits):
        if later.last <= earlier.last:
            faults.append(f"the merge up to offset {later.last[0]} follows that up to {earlier.last[0]}")
    began = {place: batch.began for batch in own for place in batch.places}
    for commit in commits:
        if commit.last not in began:
            faults.append(f"a merge ends at offset {commit.last[0]}[{commit.last[1]}], where no change was")
        elif commit.ended < began[commit.last]:
            faults.append(f"the change at offset {commit.last[0]} was merged before it was handled")
    # A statement is applied at once, by separate commits.
    rows = [(place.message, place.row) for place in history if place.op not in _STATEMENTS]
    merged = max((commit.last for commit in commits), default=(-1, -1))
    if left := [place for place in rows if place > merged]:
        faults.append(f"{len(left)} changes were never merged, the first at offset {left[0][0]}")
    return faults


def lane_work(batches: Iterable[RecordedBatch], busy_seconds: Sequence[float]) -> list[LaneWork]:
    """Summarize each lane, including idle ones."""
    done = list(batches)
    works = []
    for lane, busy in enumerate(busy_seconds):
        own = [batch for batch in done if batch.lane == lane]
        tables = tuple(dict.fromkeys(batch.table for batch in own))
        works.append(LaneWork(lane, len(own), sum(len(batch.places) for batch in own), busy, tables))
    return works


def table_work(batches: Iterable[RecordedBatch], commits: Sequence[Commit], table: str) -> TableWork:
    own = [batch for batch in batches if batch.table == table]
    return TableWork(
        table,
        tuple(sorted({batch.lane for batch in own})),
        len(own),
        sum(len(batch.places) for batch in own),
        len(commits),
        max((_behind(batch, commits) for batch in own), default=0.0),
    )


def _behind(batch: RecordedBatch, commits: Sequence[Commit]) -> float:
    """Return 0 for a batch that no commit contains: `order_faults` reports it, or none is needed."""
    place = bisect_left(commits, batch.places[-1], key=lambda commit: commit.last)
    return commits[place].ended - batch.source_time_ms / 1000 if place < len(commits) else 0.0
