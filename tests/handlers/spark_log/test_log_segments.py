"""The log: numbers without gaps, the last segment's footer tells all, nothing foreign is passed over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_lab import SCHEMA, after_of, change, names_in, places_in, rows, take

from handlers.spark.log.marks import Marks
from handlers.spark.log.segment_file import BrokenLog, Statement, columns_of, encoded, read_head
from handlers.spark.log.segments import SegmentLog, SegmentTaken
from handlers.spark.log.stores.interface import temporary_name
from handlers.spark.log.stores.local import LocalFiles

FILES = LocalFiles()


@pytest.fixture
def log(tmp_path: Path) -> SegmentLog:
    return opened(tmp_path / "pending")


def opened(folder: Path) -> SegmentLog:
    log = SegmentLog(FILES, str(folder), clock=lambda: 1_790_000_000.25)
    log.load()
    return log


def filled(log: SegmentLog, count: int) -> SegmentLog:
    for offset in range(log.last, log.last + count):
        take(log, [change(offset)])
    return log


def names(log: SegmentLog) -> list[int]:
    return sorted(int(name[:20]) for name in names_in(log.folder) if name.endswith(".parquet"))


def test_an_empty_log_has_nothing(log: SegmentLog) -> None:
    assert (log.last, log.segments, log.marks, after_of(log)) == (0, [], Marks(), None)


def test_a_segment_tells_its_rows_and_times(log: SegmentLog) -> None:
    times = rows([change(7), change(900), change(30)])
    segment = log.append(times, Marks(), key=["id"], partial=True)
    start = 1_795_219_200_000
    assert segment.path == f"{log.folder}/00000000000000000001.parquet"
    assert segment.bytes == Path(segment.path).stat().st_size
    assert (segment.number, segment.rows, segment.partial) == (1, 3, True)
    assert (segment.first_source_ms, segment.last_source_ms) == (start + 7, start + 900)
    assert segment.written_ms == 1_790_000_000_250


def test_a_segment_without_rows_still_holds_marks_and_schema(log: SegmentLog) -> None:
    marks = Marks().advanced([change(4, ddl=True)], None)
    segment = log.append(SCHEMA.empty_table(), marks, key=["id"])
    again = opened(Path(log.folder))
    assert again.segments == [segment]
    assert (segment.rows, segment.first_source_ms, segment.last_source_ms) == (0, None, None)
    assert (again.marks, after_of(again)) == (marks, (SCHEMA, ("id",)))


def test_a_log_is_known_again_from_its_folder(log: SegmentLog) -> None:
    filled(log, 3)
    again = opened(Path(log.folder))
    assert (again.last, again.marks, after_of(again)) == (3, log.marks, (SCHEMA, ("id",)))
    assert again.segments == log.segments
    assert [segment.number for segment in again.after(2)] == [3]


def test_types_come_back_as_they_were_put(log: SegmentLog) -> None:
    schema = pa.schema(
        [
            ("_op", pa.string()),
            ("_source_time", pa.timestamp("us", tz="UTC")),
            ("_absent", pa.list_(pa.string())),
            ("price", pa.decimal128(38, 10)),
            ("at", pa.timestamp("us")),
            ("_before", pa.struct([("day", pa.date32()), ("blob", pa.binary())])),
        ]
    )
    log.append(schema.empty_table(), Marks())
    assert after_of(opened(Path(log.folder))) == (schema, ())


def test_only_the_last_footer_is_read_when_a_log_is_loaded(log: SegmentLog) -> None:
    filled(log, 3)
    Path(log.segments[0].path).write_bytes(b"")
    again = opened(Path(log.folder))
    assert [segment.number for segment in again.after(1)] == [2, 3]
    with pytest.raises(BrokenLog, match=r"0001\.parquet is not a whole Parquet file"):
        again.after(0)


def test_a_number_that_is_taken_is_not_put_again(log: SegmentLog) -> None:
    late = opened(Path(log.folder))
    filled(log, 1)
    with pytest.raises(SegmentTaken, match=r"0001\.parquet was written by another worker"):
        late.append(rows([change(0)]), Marks())
    late.load()
    assert late.marks.beyond([change(0)], None) == ([], [])


def test_a_number_that_was_used_and_removed_is_not_put_again(log: SegmentLog) -> None:
    """By a worker that has not looked since."""
    filled(log, 2)
    late = opened(Path(log.folder))
    filled(log, 3)
    log.remove(4)
    with pytest.raises(SegmentTaken):
        late.append(rows([change(9, partition=1)]), late.marks)
    assert names(log) == [5]
    late.load()
    take(late, [change(9, partition=1)])
    assert names(log) == [5, 6]


def test_the_last_segment_is_never_removed(log: SegmentLog) -> None:
    filled(log, 3)
    log.remove(99)
    assert names(log) == [3]
    assert [segment.number for segment in log.segments] == [3]
    again = opened(Path(log.folder))
    assert (again.last, again.marks) == (3, log.marks)


def test_which_numbers_are_used_up_is_kept_in_two_names(log: SegmentLog) -> None:
    filled(log, 4)
    for number in (1, 1, 3, 2):
        log.remove(number)
    assert names_in(f"{log.folder}/_removed") == [f"{1:020d}", f"{3:020d}"]


def test_a_removal_that_stopped_midway_is_finished_by_the_next_load(log: SegmentLog) -> None:
    filled(log, 4)
    kept = Path(log.segments[1].path).read_bytes()
    log.remove(3)
    Path(log.folder, f"{2:020d}.parquet").write_bytes(kept)
    assert [segment.number for segment in opened(Path(log.folder)).segments] == [4]
    assert names(log) == [4]


def test_segments_that_another_worker_removed_are_passed_over(log: SegmentLog) -> None:
    filled(log, 4)
    other = opened(Path(log.folder))
    log.remove(2)
    assert [segment.number for segment in other.segments] == [3, 4]


def test_a_folder_that_was_removed_is_begun_anew(log: SegmentLog) -> None:
    filled(log, 4)
    log.remove(2)
    shutil.rmtree(log.folder)
    log.load()
    assert (log.last, log.segments) == (0, [])
    filled(log, 1)
    assert names(log) == [1]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_segment_that_is_missing_is_told(log: SegmentLog, lost: int) -> None:
    filled(log, 5)
    log.remove(1)
    again = opened(Path(log.folder))
    Path(log.folder, f"{lost + 1:020d}.parquet").unlink()
    told = rf"0{lost + 1}\.parquet is missing, although binlane never removed it"
    with pytest.raises(BrokenLog, match=told):
        opened(Path(log.folder))
    with pytest.raises(BrokenLog, match=told):
        list(again.segments)


def test_a_log_whose_last_segment_is_missing_is_told(log: SegmentLog) -> None:
    filled(log, 3)
    log.remove(2)
    Path(log.folder, f"{3:020d}.parquet").unlink()
    with pytest.raises(BrokenLog, match=r"0003\.parquet is missing"):
        opened(Path(log.folder))


@pytest.mark.parametrize("name", ["part-00000.snappy.parquet", "17.parquet", "notes.txt", "day=1/x.parquet"])
def test_a_foreign_file_is_told(log: SegmentLog, name: str) -> None:
    filled(log, 1)
    foreign = Path(log.folder, name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_bytes(b"")
    with pytest.raises(
        BrokenLog, match=f"{log.folder}/{name.partition('/')[0]} is not a segment: move it away"
    ):
        opened(Path(log.folder))


def test_what_spark_passes_over_is_passed_over(log: SegmentLog) -> None:
    filled(log, 1)
    for name in ("_SUCCESS", ".00000000000000000001.parquet.crc", ".nfs0001"):
        Path(log.folder, name).write_bytes(b"")
    assert opened(Path(log.folder)).last == 1


def test_what_crashed_writers_left_is_removed_after_an_hour(log: SegmentLog) -> None:
    filled(log, 1)
    old, young = (Path(log.folder, temporary_name()) for _ in range(2))
    for left, age in ((old, 3_601), (young, 3_599)):
        left.write_bytes(b"PAR1")
        os.utime(left, (1_790_000_000 - age,) * 2)
    opened(Path(log.folder))
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: data[: len(data) // 2], "not a whole Parquet file"),
        (lambda data: b"", "not a whole Parquet file"),
        (lambda data: data.replace(b'{"version":1', b'{"version":7'), "version 7 .* knows versions up to 4"),
        (lambda data: data.replace(b'"number":2', b'"number":5'), "was written as segment 5"),
        (lambda data: data.replace(b'"marks":{"v":1', b'"marks":{"v":2'), "marks of version 2 cannot be"),
        (lambda data: data.replace(b'"rows":', b'"rose":'), "missing required field `rows`"),
    ],
)
def test_a_last_segment_that_cannot_be_read_is_told(log: SegmentLog, damage: object, told: str) -> None:
    filled(log, 2)
    path = Path(log.segments[-1].path)
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BrokenLog, match=rf"0002\.parquet.*{told}"):
        opened(Path(log.folder))


def test_bytes_that_are_not_what_was_put_are_told_whichever_they_are(tmp_path: Path) -> None:
    """As Parquet's own structures, as text and as Arrow's: what a segment's head is made of."""
    drop = Statement("ddl", "ALTER ...", 1, "cdc", 0, 5, 0, ("cdc",), (), ("id",), columns_of(SCHEMA))
    path = tmp_path / f"{1:020d}.parquet"
    data, _ = encoded(
        SCHEMA.empty_table(),
        Marks().advanced([change(4, ddl=True)], None),
        number=1,
        path=str(path),
        key=("id",),
        partial=False,
        written_ms=1,
        statement=drop,
        is_behind=True,
    )
    whole, random, told = bytes(data), Random(7), 0
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            _ = read_head(FILES, str(path), 1, len(whole)).segment.after
        except BrokenLog:
            told += 1
    assert told > 100


def test_a_parquet_file_of_somebody_else_is_told(log: SegmentLog) -> None:
    filled(log, 1)
    pq.write_table(rows([change(1)]), Path(log.folder, f"{2:020d}.parquet"))
    with pytest.raises(BrokenLog, match=r"0002\.parquet was not written by binlane"):
        opened(Path(log.folder))


def test_a_log_that_is_a_table_keeps_all_and_lets_others_remove(tmp_path: Path) -> None:
    log = SegmentLog(FILES, str(tmp_path / "orders"), is_table=True)
    filled(log, 4)
    with pytest.raises(RuntimeError, match="is a table: its segments are its rows"):
        log.remove(2)
    for number in (1, 2):
        Path(log.folder, f"{number:020d}.parquet").unlink()
    again = SegmentLog(FILES, log.folder, is_table=True)
    again.load()
    filled(again, 1)
    assert names(again) == [3, 4, 5]
    whole = [places_in(path.read_bytes()) for path in sorted(Path(log.folder).glob("*.parquet"))]
    assert whole == [[(0, 2, 0)], [(0, 3, 0)], [(0, 4, 0)]]


def test_of_a_log_that_is_a_table_no_segments_are_kept_in_mind(tmp_path: Path) -> None:
    """They are as many as there were batches, for ever."""
    log = filled(SegmentLog(FILES, str(tmp_path / "orders"), is_table=True), 3)
    log.load()
    filled(log, 2)
    assert log._known == {}
    assert log.last == 5
    with pytest.raises(RuntimeError, match="is a table: Spark reads its segments"):
        log.after(0)


def test_what_another_worker_has_removed_is_found_by_looking(log: SegmentLog) -> None:
    filled(log, 4)
    other = opened(Path(log.folder))
    log.remove(3)
    assert (other.removed(), opened(Path(log.folder)).removed()) == (3, 3)
