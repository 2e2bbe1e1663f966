"""A dropped or renamed table leaves its place. Another worker may do the same, or make the next table."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from spark_lake import change

import binlane
from handlers import Batch, HandlerContext, Rejected
from handlers.mysql.ddl import CreateTable, TableName, parse
from handlers.spark import SparkHandler
from handlers.spark.ddl import tables
from handlers.spark.ddl.progress import Surroundings
from handlers.spark.ddl.target import Target
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.interface import AlreadyThere, Entry, FilesError
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef

ORDERS, OLD = TableName("shop", "orders"), TableName("old", "orders")


class OtherDisk(LocalFiles):
    """Its folders of tables are on another disk than the records of statements."""

    def rename(self, source: str, target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)


class Followed(Exception):
    """Another worker has followed the statement."""


def target(folder: Path, files: LocalFiles | None = None) -> Target:
    files, options = files or LocalFiles(), SparkOptions(mode="replica")

    def ref(name: TableName) -> TableRef:
        path = str(folder.joinpath(*name))
        return TableRef(f"delta.`{path}`", path, f"{path}/log")

    return Target(
        sessions=lambda: pytest.fail("no Spark is needed"),
        around=Surroundings(
            options, ref, files, f"{folder}/_binlane", create=WithoutSpark(options, files).create
        ),
        places=[("cdc", 0, 5, 0)],
        time_ms=0,
        note="{}",
    )


def table(path: Path, commits: int = 1) -> Path:
    for number in range(commits):
        deltalake.write_deltalake(path, pa.table({"id": [number]}), mode="append")
    return path


def raising_when(is_so: Callable[[], bool]) -> Callable[[], None]:
    def look() -> None:
        if is_so():
            raise Followed

    return look


def test_a_rename_that_is_refused_tells_nobody_that_the_table_leaves(tmp_path: Path) -> None:
    """A worker that is stopped as it makes the table would take it for one that came back."""
    table(tmp_path / "shop/orders")
    Path(tmp_path, "old/orders").mkdir(parents=True)
    Path(tmp_path, "old/orders/mine.txt").touch()
    left: list[TableName] = []
    made = target(tmp_path)
    made.around = replace(made.around, leaving=left.append)
    with pytest.raises(Rejected, match="contains files"):
        tables.rename_table(made, ORDERS, OLD, "0")
    assert not left
    Path(tmp_path, "old/orders/mine.txt").unlink()
    assert tables.rename_table(made, ORDERS, OLD, "0")
    assert left == [ORDERS, OLD]


def test_a_table_on_another_disk_is_removed_if_it_is_still_the_same(tmp_path: Path) -> None:
    """The other worker makes the next table when nothing is left to remove but the rest of the folder."""
    path = table(tmp_path / "shop/orders", 3)
    made = target(tmp_path, OtherDisk())
    made.look_again = raising_when(lambda: not any(path.glob("_delta_log/*.json")))
    with pytest.raises(Followed):
        tables.drop_table(made, ORDERS, "0")
    assert path.exists()


def test_each_pause_of_a_removal_is_noticed_and_a_long_log_needs_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks, now = table(tmp_path / "shop/orders", 40), 0, time.time()
    made = target(tmp_path, OtherDisk())

    def look() -> None:
        nonlocal looks
        looks += 1
        if now > 2e9:
            raise Followed

    made.look_again = look
    monkeypatch.setattr(time, "time", lambda: now)
    deleted: list[str] = []

    class Paused(OtherDisk):
        def delete(self, path: str) -> None:
            nonlocal now
            deleted.append(path)
            now += 1e9 * (len(deleted) == 20)
            super().delete(path)

    made.around = replace(made.around, files=Paused())
    with pytest.raises(Followed):
        tables.drop_table(made, ORDERS, "0")
    assert (len(deleted), len([*path.glob("_delta_log/*.json")]), looks) == (20, 20, 3)


def test_a_table_that_is_a_link_is_dropped_with_its_rows(tmp_path: Path) -> None:
    table(tmp_path / "shop/orders_of_2025")
    Path(tmp_path, "shop/orders").symlink_to("orders_of_2025")
    tables.drop_table(target(tmp_path), ORDERS, "0")
    assert not [*Path(tmp_path, "shop").iterdir()]
    table(tmp_path / "shop/orders")


def test_a_stopped_worker_creates_no_table_that_was_dropped_since(tmp_path: Path) -> None:
    made = target(tmp_path)
    made.look_again = raising_when(lambda: True)
    [create] = parse("CREATE TABLE orders (id int PRIMARY KEY)", "shop")
    assert isinstance(create, CreateTable)
    with pytest.raises(Followed):
        tables.create_table(made, ORDERS, create, "0")
    assert not Path(tmp_path, "shop/orders/_delta_log").exists()


class Stopped(LocalFiles):
    """`meanwhile` happens once, before the first move."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = [meanwhile]

    def rename(self, source: str, target: str) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()
        super().rename(source, target)

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if path.endswith(".away") and self._meanwhile:
            self._meanwhile.pop()()
        return found


def ids(path: Path) -> list[int]:
    found: list[int] = deltalake.DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("mode", ["rename", "exists"])
def test_a_stopped_worker_renames_no_later_table(tmp_path: Path, mode: str, is_dropped: bool) -> None:
    """Another one follows the rename, and makes the next table. The renamed one may be dropped, too."""
    path, new = table(tmp_path / "shop/orders", 2), tmp_path / "old/orders"

    def meanwhile() -> None:
        assert tables.rename_table(target(tmp_path), ORDERS, OLD, "0")
        if is_dropped:
            LocalFiles().delete_tree(str(new))
        deltalake.write_deltalake(path, pa.table({"id": [7]}))

    files = Stopped(meanwhile)
    if mode == "rename":
        files.exists = LocalFiles().exists  # type: ignore[method-assign]
    assert tables.rename_table(target(tmp_path, files), ORDERS, OLD, "0")
    assert ids(path) == [7]
    assert [*new.glob("*")] if not is_dropped else not new.exists()
    assert is_dropped or ids(new) == [0, 1]


def test_a_rename_goes_on_where_a_crash_has_left_it(tmp_path: Path) -> None:
    path, new = table(tmp_path / "shop/orders", 3), tmp_path / "old/orders"

    class Crash(Exception):
        pass

    class Crashing(LocalFiles):
        def move_into(self, folder: str, source: str, names: Sequence[str]) -> None:
            if names == ["_delta_log"]:
                raise Crash
            super().move_into(folder, source, names[:2])

    for files in (Crashing(), None):
        if files:
            with pytest.raises(Crash):
                tables.rename_table(target(tmp_path, files), ORDERS, OLD, "0")
        else:
            assert tables.rename_table(target(tmp_path), ORDERS, OLD, "0")
    assert not path.exists()
    assert ids(new) == [0, 1, 2]


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one disk")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_a_table_whose_link_leads_to_another_disk_is_renamed_with_its_link(
    tmp_path: Path, other_disk: Path
) -> None:
    table(other_disk / "orders", 2)
    Path(tmp_path, "shop").mkdir()
    Path(tmp_path, "shop/orders").symlink_to(other_disk / "orders")
    assert tables.rename_table(target(tmp_path), ORDERS, OLD, "0")
    assert Path(tmp_path, "old/orders").readlink() == other_disk / "orders"
    assert ids(tmp_path / "old/orders") == [0, 1]
    assert not Path(tmp_path, "shop/orders").exists()
    tables.drop_table(target(tmp_path), OLD, "1")
    assert not Path(other_disk, "orders/_delta_log").exists()


def test_a_table_that_cannot_move_to_another_disk_stays(tmp_path: Path, other_disk: Path) -> None:
    path = table(tmp_path / "shop/orders", 2)
    Path(tmp_path, "old").symlink_to(other_disk)
    with pytest.raises(FilesError, match=r"cannot move .*/shop/orders to .*/old/orders: .*cross-device"):
        tables.rename_table(target(tmp_path), ORDERS, OLD, "0")
    assert ids(path) == [0, 1]


def test_a_rename_mixes_no_two_tables(tmp_path: Path) -> None:
    """Another worker has made the new one since it was looked for."""
    path, new = table(tmp_path / "shop/orders", 2), tmp_path / "old/orders"
    with pytest.raises(AlreadyThere):
        tables.rename_table(target(tmp_path, Stopped(lambda: table(new, 3))), ORDERS, OLD, "0")
    assert ids(new) == [0, 1, 2]
    assert not path.exists()
    assert len([*new.glob("*.parquet")]) == 3


def test_workers_that_name_the_topic_otherwise_drop_a_table_once(tmp_path: Path) -> None:
    """The stopped one does not know its id."""
    path = table(tmp_path / "shop/orders", 2)
    late, other = target(tmp_path), target(tmp_path)
    other.places = [("cdc@A", 0, 5, 0), *late.places]

    def meanwhile() -> None:
        tables.drop_table(other, ORDERS, "0")
        table(path, 3)

    late.around = replace(late.around, files=Stopped(meanwhile))
    tables.drop_table(late, ORDERS, "0")
    assert ids(path) == [0, 1, 2]
    [away] = tmp_path.rglob("*.away")
    assert len([*away.iterdir()]) == 1


def test_a_table_whose_folder_cannot_move_is_emptied(tmp_path: Path) -> None:
    """It is the root of a mounted disk."""

    class Mounted(LocalFiles):
        def rename(self, source: str, target: str) -> None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source)

    path = table(tmp_path / "shop/orders", 2)
    tables.drop_table(target(tmp_path, Mounted()), ORDERS, "0")
    assert not path.exists()


def test_a_stopped_worker_rejects_no_rename_that_another_one_has_followed(tmp_path: Path) -> None:
    """It was about to make room for the table."""
    table(tmp_path / "shop/orders", 2)
    made = target(tmp_path)
    made.look_again = raising_when(lambda: Path(tmp_path, "old/orders/_delta_log").exists())

    class Late(LocalFiles):
        looks = 0

        def list(self, folder: str) -> Sequence[Entry]:
            self.looks += folder.endswith("old/orders/_delta_log")
            if self.looks == 2:
                self.looks += 1
                assert tables.rename_table(target(tmp_path), ORDERS, OLD, "0")
            return super().list(folder)

    made.around = replace(made.around, files=Late())
    with pytest.raises(Followed):
        tables.rename_table(made, ORDERS, OLD, "0")


def test_tables_that_swap_their_names_are_read_before_their_next_rows(tmp_path: Path) -> None:
    """The log of each still ends with the columns and the key of the other."""
    handler = SparkHandler(mode="replica")
    handler.open(HandlerContext(worker="w", handler="spark", folder=tmp_path, stopping=bool))
    codes = change(1, {"code": "x"}, {"code": "varchar(9)"}, key=("code",))
    swap = change(2, None, None, op="ddl", sql="RENAME TABLE orders TO tmp, codes TO orders, tmp TO codes")
    for name, one in (("orders", change(0, {"id": 1, "name": "a"})), ("codes", codes), ("orders", swap)):
        handler.handle(Batch(f"shop.{name}", [one], database="shop", name=name))
    handler.close()
    read = [binlane.read(tmp_path / "lake/shop" / name).to_pylist() for name in ("orders", "codes")]
    assert read == [[{"code": "x"}], [{"id": 1, "name": "a"}]]
