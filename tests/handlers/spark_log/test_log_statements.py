"""Statements in the log: what is put behind them is hidden from views, at one place for all writers."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_lab import SCHEMA, MemoryFiles, after_of, change, names_in, places_of, rows

from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import BrokenLog, Statement, columns_of
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.log.stores.interface import FilesError
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.read.log_heads import end_of, head_of

AFTER = SCHEMA.remove(SCHEMA.get_field_index("_index"))
STATEMENT = Statement(
    "ddl", "ALTER ...", 7, "cdc", 0, 1, 0, ("cdc@id", "cdc"), ("id",), ("id", "x"), columns_of(AFTER)
)
FILES = LocalFiles()


def opened(folder: Path) -> SegmentLog:
    log = SegmentLog(FILES, str(folder))
    log.load()
    return log


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    """With a row, a statement, and a row behind it."""
    log = opened(tmp_path / "pending")
    put(log, 0)
    log.append(SCHEMA.empty_table(), Marks().advanced([change(1, ddl=True)], None), statement=STATEMENT)
    put(log, 2)
    return log


def put(log: SegmentLog, offset: int) -> None:
    log.append(rows([change(offset)]), log.marks.advanced([change(offset)], None), key=["id"])


def shown(log: SegmentLog) -> list[int]:
    """What a view lists."""
    return [int(name[:20]) for name in names_in(log.folder) if name.endswith(".parquet")]


def hidden(log: SegmentLog) -> list[int]:
    return [int(name[:20]) for name in names_in(f"{log.folder}/_behind")]


def test_a_statement_is_known_again_with_what_comes_behind_it(log: SegmentLog, tmp_path: Path) -> None:
    log.remove(0)
    again = opened(tmp_path / "pending")
    assert [each.statement for each in again.segments] == [None, STATEMENT, None]
    assert STATEMENT.schema == AFTER
    assert STATEMENT.change.sql == "ALTER ..."
    assert again.segments == log.segments
    assert again.is_behind
    put(again, 3)
    statement = again.segments[1]
    assert statement.after == (AFTER, ("id", "x"))
    assert places_of(FILES, again) == [(0, 0, 0), (0, 2, 0), (0, 3, 0)]


def test_the_last_statement_tells_the_columns_behind_it(tmp_path: Path) -> None:
    log = opened(tmp_path / "pending")
    log.append(SCHEMA.empty_table(), Marks(), key=["id"], statement=STATEMENT)
    assert after_of(log) == (AFTER, ("id", "x"))
    again = opened(tmp_path / "pending")
    assert after_of(again) == (AFTER, ("id", "x"))


def test_views_do_not_list_what_is_behind_until_they_may(log: SegmentLog) -> None:
    put(log, 3)
    assert (shown(log), hidden(log)) == ([1, 2], [3, 4])
    head, end = head_of(FILES, log.folder), end_of(FILES, log.folder)
    assert (head and head.segment.number, end and end.head.segment.number) == (2, 4)
    log.show(3, 4)
    assert shown(log) == [1, 2, 4], "3 is merged"
    log.append(SCHEMA.empty_table(), log.marks, key=["id"], shows=True)
    log.remove(3)
    assert (shown(log), hidden(log)) == ([4, 5], [4, 5])
    assert not log.is_behind
    put(log, 4)
    assert shown(log) == [4, 5, 6]
    log.remove(5)
    assert (shown(log), hidden(log)) == ([6], [])


def test_two_writers_put_a_number_at_one_place_whenever_they_looked(log: SegmentLog, tmp_path: Path) -> None:
    late = opened(tmp_path / "pending")
    log.append(SCHEMA.empty_table(), log.marks, key=["id"], shows=True)
    put(log, 3)
    with pytest.raises(SegmentTaken):
        put(late, 3)
    late.load()
    assert late.marks.beyond([change(3)], None) == ([], [])
    log.remove(4)
    very_late = SegmentLog(FILES, log.folder)
    very_late.head = None
    with pytest.raises(SegmentTaken):
        put(very_late, 9)


def test_a_statement_that_was_put_by_another_writer_is_met(log: SegmentLog, tmp_path: Path) -> None:
    other = opened(tmp_path / "pending")
    log.append(SCHEMA.empty_table(), log.marks, key=["id"], shows=True)
    other.load()
    log.append(SCHEMA.empty_table(), log.marks, statement=STATEMENT)
    assert other.has_grown()
    with pytest.raises(SegmentTaken):
        put(other, 3)
    other.load()
    put(other, 3)
    assert hidden(log)[-1] == 6


def test_the_last_that_views_list_stays_while_what_is_behind_it_is_merged(log: SegmentLog) -> None:
    put(log, 3)
    log.remove(4)
    assert (shown(log), hidden(log)) == ([2], [3, 4])


def test_who_loads_the_log_ends_what_a_writer_began_that_died_before_views_could_read_it() -> None:
    files = MemoryFiles()
    log = SegmentLog(files, "/pending")
    log.load()
    log.append(SCHEMA.empty_table(), Marks(), statement=STATEMENT)
    put(log, 1)
    files.fails_after_put = True
    with pytest.raises(FilesError):
        log.append(SCHEMA.empty_table(), log.marks, key=["id"], shows=True)
    assert not files.exists(f"/pending/{3:020d}.parquet")
    again = SegmentLog(files, "/pending")
    again.load()
    assert files.exists(f"/pending/{3:020d}.parquet")
    assert not files.exists(f"/pending/{2:020d}.parquet"), "it may be merged, and not be seen again"
    put(again, 2)
    assert files.exists(f"/pending/{4:020d}.parquet")


def test_what_others_removed_is_not_shown_again(log: SegmentLog, tmp_path: Path) -> None:
    class Meanwhile(LocalFiles):
        def read(self, path: str) -> bytes:
            data = super().read(path)
            log.append(SCHEMA.empty_table(), log.marks, key=["id"], shows=True)
            log.remove(3)
            return data

    other = SegmentLog(Meanwhile(), str(tmp_path / "pending"))
    other.load()
    other.show(2, 3)
    assert shown(log) == [4]


def test_a_hole_behind_a_statement_is_told(log: SegmentLog, tmp_path: Path) -> None:
    put(log, 3)
    Path(f"{log.folder}/_behind/{3:020d}.parquet").unlink()
    with pytest.raises(BrokenLog, match=r"0003\.parquet is missing"):
        opened(tmp_path / "pending")


def test_a_foreign_file_behind_a_statement_is_refused(log: SegmentLog, tmp_path: Path) -> None:
    Path(f"{log.folder}/_behind/mine.parquet").write_bytes(b"")
    with pytest.raises(BrokenLog, match=r"_behind/mine\.parquet is not a segment"):
        opened(tmp_path / "pending")
