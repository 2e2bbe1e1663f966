"""What goes wrong is told with table and offset, stops its table alone, and loses nothing."""

from __future__ import annotations

import errno
import re
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from integration.process import eventually
from process_limits import limited
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from spark_lake import Lake, MakeLake, change

from handlers import PartialFailure, Rejected, TargetUnavailable
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.engine.table.failures import SparkFailure
from handlers.spark.engine.table.merges import Merges


def told(error: BaseException) -> str:
    """One line, without Java's stack."""
    text = str(error)
    assert "\n" not in text
    assert "\tat " not in text
    return text


def go_on(lake: Lake) -> None:
    """Another table does."""
    lake.take(change(1, {"id": 5, "name": "other"}), table="shop.items")
    assert lake.view(path="lake/shop/items") == [(5, "other")]


# ---- places


def test_a_place_that_cannot_be_written_fails_its_table_until_it_can(lake: Lake) -> None:
    shop = lake.folder / "lake/_binlane/shop"
    shop.mkdir(parents=True)
    (shop / "orders").write_text("a file, so that nobody can make the folder, not even root")
    with pytest.raises(SparkFailure) as failure:
        lake.take(change(7, {"id": 1, "name": "a"}))
    assert told(failure.value).startswith(
        f"shop.orders, cdc[0] offset 7 on: cannot read {shop}/orders/table.json: Not a directory"
    )
    go_on(lake)

    (shop / "orders").unlink()
    lake.take(change(7, {"id": 1, "name": "a"}))
    lake.crash()
    # Its log is found again by what was written beside it.
    eventually(lambda: lake.status().get("waiting_rows") == 1, within=60)
    lake.merge()
    assert lake.rows() == [(1, "a")]


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A disk of 1 MiB in `folder`, full until the end. Where nobody may mount one: files cannot grow."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False).returncode == 0:
        with (folder / "filler").open("wb") as filler, pytest.raises(OSError, match="No space"):
            filler.write(bytes(2 << 20))
        yield
        (folder / "filler").unlink()
    else:
        with limited(resource.RLIMIT_FSIZE, 64):
            yield


def test_a_full_disk_makes_tables_wait_and_loses_nothing(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake()
    disk = tmp_path / "lake"
    try:
        with full_disk(disk), pytest.raises((TargetUnavailable, SparkFailure)) as failure:
            lake.take(change(7, {"id": 1, "name": "a"}))
        text = told(failure.value)
        assert text.startswith("shop.orders, cdc[0] offset 7 on: cannot write ")
        if isinstance(failure.value, TargetUnavailable):
            assert "No space left on device; free space there, or give the table another place" in text
        else:
            assert f"[Errno {errno.EFBIG}]" in text or "File too large" in text
        lake.take(change(7, {"id": 1, "name": "a"}), change(8, {"id": 2, "name": "b"}))
        lake.merge()
        assert lake.rows() == [(1, "a"), (2, "b")]
        lake.close()
    finally:
        subprocess.run(["umount", disk], check=False, capture_output=True)
        lake.open()


def test_files_of_another_job_are_left_alone(lake: Lake) -> None:
    place = lake.folder / "lake/shop/orders"
    of_iceberg = place / "data" / "part-0.parquet"
    of_iceberg.parent.mkdir(parents=True)
    of_iceberg.write_bytes(b"precious")
    with pytest.raises(Rejected, match=re.escape("contains files (data ...) that are not a Delta table")):
        lake.take(change(7, {"id": 1, "name": "a"}))
    shutil.rmtree(of_iceberg.parent)
    (place / "part-0.parquet").write_bytes(b"precious")
    with pytest.raises(Rejected) as rejected:
        lake.take(change(7, {"id": 1, "name": "a"}))
    assert told(rejected.value) == (
        f"shop.orders, cdc[0] offset 7: {place} contains files (part-0.parquet ...) that are not a Delta "
        "table: move them away, or give the handler another path"
    )
    assert [each.read_bytes() for each in place.iterdir()] == [b"precious"]
    go_on(lake)
    (place / "part-0.parquet").unlink()
    lake.take(change(7, {"id": 1, "name": "a"}))
    # What a crash leaves of the first commit does not stop the next one.
    (place / "part-1.parquet").write_bytes(b"half")
    lake.crash()
    lake.take(change(8, {"id": 2, "name": "b"}))
    lake.merge()
    assert lake.rows() == [(1, "a"), (2, "b")]


# ---- tables of another shape


@pytest.mark.soak
def test_a_schema_that_cannot_hold_the_rows_rejects_them_and_then_takes_them(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.sql("CREATE TABLE {t} (id INT, name DATE) USING delta")
    with pytest.raises(Rejected) as rejected:
        lake.take(change(7, {"id": 1, "name": "a"}))
    assert rejected.value.at == 0
    assert told(rejected.value) == (
        f"shop.orders, cdc[0] offset 7: column 'name' is date in delta.`{lake.folder}/lake/shop/orders`, "
        "but the source's type is now kept as string, which cannot hold the other's values: name the type "
        "to keep in `columns`, change the column in the table, or give the handler another table"
    ).replace(f"delta.`{lake.folder}/lake/shop/orders`", f"{lake.folder}/lake/shop/orders")
    go_on(lake)

    lake.sql("REPLACE TABLE {t} (id INT, name STRING) USING delta")
    lake.take(change(7, {"id": 1, "name": "a"}), change(8, {"id": 2, "name": "b"}))
    lake.merge()
    assert lake.rows() == [(1, "a"), (2, "b")]


@pytest.mark.soak
def test_what_came_before_a_type_that_cannot_be_kept_counts_as_done(lake: Lake) -> None:
    lake.take(change(0, {"id": 1, "v": 1}, {"id": "int", "v": "int"}))
    lake.merge()
    with pytest.raises(PartialFailure) as told_:
        lake.take(
            change(0, {"id": 1, "v": 1}, {"id": "int", "v": "int"}),
            change(1, {"id": 2, "v": 2}, {"id": "int", "v": "int"}),
            change(2, {"id": 3, "v": "three"}, {"id": "int", "v": "varchar(5)"}),
        )
    assert told_.value.done == 2
    assert isinstance(told_.value.cause, Rejected)
    assert "shop.orders, cdc[0] offset 2: column 'v' is int in " in told(told_.value.cause)
    assert lake.view() == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="", marks=pytest.mark.soak),
        pytest.param([change(4, {"id": 4, "v": 4}, {"id": "int"})], id="a piece"),
    ],
)
def test_of_rows_without_types_only_that_with_another_type_is_rejected(lake: Lake, before: list[Any]) -> None:
    lake.take(change(0, {"id": 1, "v": 1}, None))
    lake.merge()
    good, bad = change(5, {"id": 2, "v": 2}, None), change(6, {"id": 3, "v": "n/a"}, None)
    with pytest.raises(Rejected, match=r"column 'v' is bigint in .*, but .* kept as string") as rejected:
        lake.take(*before, good, bad, change(7, {"id": 5, "v": 5}, None))
    assert rejected.value.at is None  # so the batch is split, and the others are tried without it
    lake.take(*before, good)
    with pytest.raises(Rejected, match=r"^shop\.orders, cdc\[0\] offset 6: column 'v'") as rejected:
        lake.take(bad)
    assert rejected.value.at == 0
    lake.take(change(7, {"id": 5, "v": 5}, None))
    assert lake.view("id, v") == [(1, 1), (2, 2), *((4, 4) for _ in before), (5, 5)]


# ---- rows


@pytest.mark.parametrize(
    ("types", "value", "reason"),
    [
        ({"columns": {"v": "decimal(4,1)"}}, "1234.5", "does not fit decimal(4,1)"),
        pytest.param(
            {"columns": {"v": "timestamp"}},
            "10000-01-01 00:00:00",
            "does not fit timestamp",
            marks=pytest.mark.soak,
        ),
        pytest.param({"columns": {"v": "tinyint"}}, 300, "does not fit tinyint", marks=pytest.mark.soak),
    ],
)
def test_a_value_out_of_range_is_told_with_its_place_and_the_others_go_on(
    make_lake: MakeLake, types: dict[str, Any], value: Any, reason: str
) -> None:
    lake = make_lake(**types)
    own = {"id": "int", "v": "varchar(40)"}
    with pytest.raises(Rejected, match=r"^shop\.orders: column 'v' .* at cdc\[0\] offset 8") as rejected:
        lake.take(change(7, {"id": 1, "v": None}, own), change(8, {"id": 2, "v": value}, own))
    assert reason in told(rejected.value)
    assert rejected.value.at == 1
    go_on(lake)
    lake.take(change(7, {"id": 1, "v": None}, own), change(9, {"id": 3, "v": None}, own))
    assert lake.view() == [(1, None), (3, None)]


@pytest.mark.parametrize(("mode", "advice"), [("replica", "set without_key: match, or "), ("history", "")])
def test_rows_without_a_key_are_refused_where_they_must_be(
    make_lake: MakeLake, mode: str, advice: str
) -> None:
    lake = make_lake(mode=mode, without_key="refuse")
    with pytest.raises(Rejected) as rejected:
        lake.take(change(7, {"id": 1, "name": "a"}, key=()))
    assert told(rejected.value) == (
        f"shop.orders, cdc[0] offset 7: the table has no primary key, which mode {mode} needs: give it "
        f"one, or {advice}keep its changelog"
    )
    assert rejected.value.at == 0


def test_a_name_that_binlane_adds_itself_needs_another_prefix(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog")
    row = change(0, {"id": 1, "_Op": "mine"}, {"id": "int", "_Op": "varchar(9)"})
    with pytest.raises(Rejected, match=r"column '_Op', which is also .* set `prefix`"):
        lake.take(row)
    other = make_lake(mode="changelog", prefix="cdc_", path="other/{table}")
    other.take(row)
    assert other.view("_Op, cdc_op", path="other/orders") == [("mine", "insert")]


# ---- Spark


def test_a_query_that_fails_holds_its_table_back_and_goes_on_where_it_was(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.merge()
    [file] = (lake.folder / "lake/shop/orders").glob("*.parquet")
    away = file.rename(lake.folder / "away")
    try:
        lake.take(change(1, {"id": 2, "name": "b"}))
        sink = lake.sink()
        for attempt in range(1, 4):
            with pytest.raises(SparkFailure, match=r"^shop\.orders, up to cdc\[0\] offset 1: .*parquet"):
                sink.merge()
            assert sink.faults == attempt
        assert "parquet" in lake.status()["error"]
        with pytest.raises(TargetUnavailable, match=r"^shop\.orders, .*parquet") as held:
            lake.take(change(2, {"id": 3, "name": "c"}))
        told(held.value)
        go_on(lake)
    finally:
        away.rename(file)  # or what closes the handler tries for minutes to merge
    assert lake.view() == [(1, "a"), (2, "b")]  # what waits is not lost
    lake.take(change(2, {"id": 3, "name": "c"}))
    assert lake.status()["error"] is None
    lake.merge()
    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c")]


# Of two at once one wins: spark_delta/test_delta_commits.py.
@pytest.mark.soak
def test_another_writer_of_the_table_costs_a_second_try(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.take(*(change(offset, {"id": offset, "name": "a"}) for offset in range(10)))
    lake.merge()
    conflicts = 0
    merge_once = Merges._merge

    def counted(merges: Merges, **more: Any) -> None:
        nonlocal conflicts
        try:
            merge_once(merges, **more)
        except MergeConflict:
            conflicts += 1
            raise

    monkeypatch.setattr(Merges, "_merge", counted)
    # A job of somebody else changes a row, in commits of its own, all the time.
    ended = threading.Event()
    orders = f"delta.`{lake.folder}/lake/shop/orders`"

    def mark() -> None:
        session = lake.spark.newSession()
        while not ended.is_set():
            with suppress(PySparkException, Py4JError):  # it may be the one that was slower
                session.sql(f"UPDATE {orders} SET name = concat(name, 'm') WHERE id = 9")

    other = threading.Thread(target=mark)
    other.start()
    offset = 10
    try:
        while not conflicts and offset < 60:
            lake.take(change(offset, {"id": offset % 5, "name": f"n{offset}"}, op="update"))
            with suppress(SparkFailure):  # when it was slower every time
                lake.sink().merge()
            offset += 1
    finally:
        ended.set()
        other.join()
    assert conflicts, "the two never met"
    lake.merge()
    rows = dict(lake.rows())
    assert rows.pop(9).startswith("am")
    newest = {each % 5: f"n{each}" for each in range(10, offset)}
    assert rows == {id: newest.get(id, "a") for id in range(9)}
    assert lake.status()["error"] is None
