"""What waits for a table, and in which groups it may be merged."""

from __future__ import annotations

import time

import pyarrow as pa

from handlers.spark.engine.table.waiting import Unmerged, Waiting
from handlers.spark.log.segment_file import Segment
from handlers.spark.rows.shape import Shape

NARROW = Shape(pa.schema([("id", pa.int32())]), ("id",))
WIDE = Shape(pa.schema([("id", pa.int64())]), ("id",))


def segment(number: int, rows: int = 10, *, partial: bool = False, source: int | None = None) -> Segment:
    return Segment(number, f"/{number}", rows, rows * 100, 1000 * number, source, source, partial)


def numbers(unmerged: Unmerged, limit: int = 10**9) -> list[list[int]]:
    return [[each.number for each in segments] for segments, _ in unmerged.groups(lambda: limit)]


def test_what_has_one_shape_is_merged_together_and_what_lacks_columns_alone() -> None:
    unmerged = Unmerged()
    for number, shape, partial in (
        (1, NARROW, False),
        (2, NARROW, False),
        (3, NARROW, True),
        (4, NARROW, True),
        (5, WIDE, False),
        (6, WIDE, False),
    ):
        unmerged.add(segment(number, partial=partial), shape)
    assert numbers(unmerged) == [[1, 2], [3], [4], [5, 6]]
    assert [shape for _, shape in unmerged.groups(lambda: 10**9)] == [NARROW, NARROW, NARROW, WIDE]
    assert unmerged.has_partial


def test_what_waits_is_merged_in_commits_of_so_many_bytes_and_whole_segments() -> None:
    unmerged = Unmerged()
    for number, rows in ((1, 3), (2, 3), (3, 5), (4, 20), (5, 1), (6, 1)):
        unmerged.add(segment(number, rows), NARROW)
    assert numbers(unmerged, 1000) == [[1, 2], [3], [4], [5, 6]]
    assert numbers(unmerged, 1100) == [[1, 2, 3], [4], [5, 6]]
    assert numbers(unmerged, 1) == [[1], [2], [3], [4], [5], [6]]


def test_rows_wait_since_their_segment_was_put_and_segments_without_rows_do_not_wait() -> None:
    unmerged = Unmerged()
    assert unmerged.waiting() == Waiting(0, 0, 0, None)
    unmerged.add(segment(1, rows=0), NARROW)
    assert unmerged.waiting() == Waiting(0, 0, 0, None)
    unmerged.add(segment(2), NARROW)
    unmerged.add(segment(3, rows=5), NARROW)
    assert unmerged.waiting() == Waiting(2, 15, 1500, 2.0)
    unmerged.merged(2)
    assert unmerged.waiting() == Waiting(1, 5, 500, 3.0)


def test_the_newest_source_time_that_was_merged_is_known() -> None:
    unmerged = Unmerged()
    assert unmerged.merged_source_ms is None
    for number, source in ((1, 70), (2, 90), (3, None)):
        unmerged.add(segment(number, rows=0 if source is None else 1, source=source), NARROW)
    unmerged.merged(1)
    assert unmerged.merged_source_ms == 70
    unmerged.merged(3)
    assert unmerged.merged_source_ms == 90


def test_merged_segments_are_told_once_when_they_are_old_enough() -> None:
    unmerged = Unmerged()
    for number in (1, 2, 3):
        unmerged.add(segment(number), NARROW)
    unmerged.merged(1)
    unmerged.merged(2)
    now = time.monotonic()
    assert [unmerged.to_retire(now, 60), unmerged.to_remove(now, 60)] == [None, None]
    assert [unmerged.to_retire(now + 60, 60), unmerged.to_remove(now + 60, 60)] == [2, None]
    assert [unmerged.to_retire(now + 119, 60), unmerged.to_remove(now + 119, 60)] == [None, None]
    assert [unmerged.to_retire(now + 120, 60), unmerged.to_remove(now + 120, 60)] == [None, 2]
    assert [unmerged.to_retire(now + 999, 60), unmerged.to_remove(now + 999, 60)] == [None, None]
    assert numbers(unmerged) == [[3]]


def test_what_is_found_in_the_log_replaces_what_was_known() -> None:
    unmerged = Unmerged()
    unmerged.add(segment(1), NARROW)
    unmerged.replace([(segment(2), WIDE), (segment(3), WIDE)])
    assert numbers(unmerged) == [[2, 3]]
