"""A log that cannot be read is no fault of the batch that comes next: its table waits, and no other does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from spark_lake import MakeLake, change

from handlers import Change, TargetUnavailable
from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.engine.table.failures import LogFailure, explained
from handlers.spark.log.segment_file import BrokenLog

LOG = "lake/_binlane/shop/orders"


def with_foreign_footer(data: bytes) -> bytes:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:start] + b"\xff" * 8 + data[start + 8 :]


def row(offset: int) -> Change:
    return change(offset, {"id": offset, "name": "a"})


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    assert path.read_bytes() != whole
    try:
        yield
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("error", [BrokenLog("x is missing"), LostCommit("y")])
def test_what_is_wrong_with_a_log_is_told_apart_from_what_fails_for_a_batch(error: Exception) -> None:
    no_spark: Any = None
    told = explained(error, "shop.orders, cdc[0] offset 7 on", no_spark)
    assert isinstance(told, LogFailure)
    assert str(told) == f"shop.orders, cdc[0] offset 7 on: {error}"


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        (
            "pending/00000000000000000002.parquet",
            lambda data: data.replace(b'"version":1', b'"version":7'),
            r"0002\.parquet has version 7 .* run the release that wrote it, or a later one",
        ),
        (
            "pending/00000000000000000002.parquet",
            lambda data: data.replace(b'"marks":{"v":1', b'"marks":{"v":9'),
            r"0002\.parquet .*marks of version 9 .* Run the release that wrote them, or a later one",
        ),
        (
            "pending/00000000000000000001.parquet",
            with_foreign_footer,
            r"0001\.parquet .*: restore it from a backup",
        ),
        (
            "table.json",
            lambda data: data.replace(b"}", b',"version":2}'),
            r"table\.json has version 2, .* run the release that wrote it, or a later one",
        ),
        (
            "table.json",
            lambda data: data[:9],
            r"table\.json does not name the table of the log .*: restore it",
        ),
    ],
)
def test_good_rows_wait_for_what_a_newer_release_wrote_or_somebody_has_damaged(
    make_lake: MakeLake, file: str, change: Callable[[bytes], bytes], told: str
) -> None:
    lake = make_lake(merge={"at_close": "0s"})
    lake.take(row(0))
    lake.take(row(1))
    lake.close()
    told = rf"^shop\.orders, cdc\[0\] offset 2 on: .*{told}"
    with changed(lake.folder / LOG / file, change):
        lake.open()
        for _ in range(2):
            with pytest.raises(TargetUnavailable, match=told) as held:
                lake.take(row(2))
            assert held.value.others_go_on
        lake.take(row(0), table="shop.other")
    lake.take(row(2))
    assert lake.view("id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("without_spark", [False, True])
def test_rows_in_the_log_that_cannot_be_read_hold_the_table_back_and_cost_the_next_rows_nothing(
    make_lake: MakeLake, without_spark: bool
) -> None:
    lake = make_lake(merge={"at_close": "0s", "engine": "auto" if without_spark else "spark"})
    lake.take(row(0))
    lake.take(row(1))
    first = lake.folder / LOG / "pending" / f"{1:020d}.parquet"
    with changed(first, lambda data: b"PAR1" + bytes(40) + data[44:]):
        for _ in range(3):
            with pytest.raises(LogFailure, match=r"(?s)0001\.parquet.*: restore it"):
                lake.sink().merge()
        with pytest.raises(TargetUnavailable, match=r"(?s)0001\.parquet.*: restore it") as held:
            lake.take(row(2))
        assert held.value.others_go_on
    lake.take(row(2))
    lake.sink().merge()
    assert lake.rows("id") == [(0,), (1,), (2,)]
