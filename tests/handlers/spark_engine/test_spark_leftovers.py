"""What earlier runs left is found, whatever was out of order at the start; what is gone is let go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from spark_lake import Lake, MakeLake, change

from handlers.spark.delta.modes import merge_by_spark
from handlers.spark.engine.leftovers import Search
from handlers.spark.engine.table import work
from handlers.spark.engine.table.failures import LogFailure
from handlers.spark.log.beside import Owner, ToldHeld, owner_of, sign
from handlers.spark.log.stores.interface import Entry
from handlers.spark.log.stores.local import LocalFiles


def owner(table: str, database: str = "shop") -> Owner:
    return Owner(database, table, "replica", "_", "")


def signed(logs: Path, *tables: str, database: str = "shop") -> None:
    for table in tables:
        sign(LocalFiles(), f"{logs}/{database}/{table}/pending", owner(table, database))


class Found:
    """A search in a folder, and what it found."""

    def __init__(self, logs: Path, *, raises: Callable[[str], bool] = lambda _: False) -> None:
        self.tables: list[str] = []
        self.raises = raises
        self.again: dict[str, float] = {}
        """Seconds by table; for the others there is no need."""
        self.search = Search(LocalFiles(), str(logs), serve=self._serve)

    def _serve(self, folder: str, owner: Owner, *, anew: bool) -> float | None:
        if self.raises(owner.table):
            raise RuntimeError("Spark is away")
        self.tables.append(f"{owner.database}.{owner.table}")
        return self.again.get(owner.table)

    def round(self) -> list[str]:
        self.tables.clear()
        self.search.round()
        return self.tables

    def look(self, seconds: float) -> list[str]:
        """So much later."""
        self.tables.clear()
        self.search.look(time.monotonic() + seconds)
        return sorted(self.tables)


def test_what_tells_whose_the_tables_of_a_catalog_are_is_no_log(tmp_path: Path) -> None:
    signed(tmp_path, "a", "pending")
    signed(tmp_path, "shop/a", "shop/pending", database="!catalog")
    assert sorted(Found(tmp_path).round()) == ["shop.a", "shop.pending"]


def test_logs_that_cannot_be_read_in_are_tried_again_and_keep_no_other_waiting(tmp_path: Path) -> None:
    signed(tmp_path, "a", "b", "c")
    away = {"a", "b"}
    found = Found(tmp_path, raises=lambda table: table in away)
    assert found.round() == ["shop.c"]
    away.remove("a")
    assert found.round() == ["shop.a"]
    away.clear()
    assert found.round() == ["shop.b"]
    assert found.round() == []


def test_a_folder_or_owner_that_cannot_be_read_is_tried_again_and_keeps_no_other_waiting(
    tmp_path: Path,
) -> None:
    signed(tmp_path, "a", "b")
    text = (tmp_path / "shop/a/table.json").read_bytes()
    (tmp_path / "shop/a/table.json").write_bytes(b"{")
    found = Found(tmp_path)
    assert found.round() == ["shop.b"]
    (tmp_path / "shop/a/table.json").write_bytes(text)
    assert found.round() == ["shop.a"]


def test_a_store_that_does_not_answer_at_first_is_searched_later(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.write_text("no folder")
    found = Found(logs)
    assert found.round() == []
    logs.unlink()
    signed(logs, "a")
    assert found.round() == ["shop.a"]


def test_what_is_done_of_statements_is_passed_over_but_no_database_called_ddl(tmp_path: Path) -> None:
    signed(tmp_path, "orders", database="ddl")
    signed(tmp_path, "orders-0-1-2")
    signed(tmp_path / "ddl/cdc-0-18-0", "hidden")
    signed(tmp_path / "ddl/cdc/fAG1f0J3-0-19-0", "hidden_too")
    assert sorted(Found(tmp_path).round()) == ["ddl.orders", "shop.orders-0-1-2"]


def test_each_log_is_looked_at_at_its_own_time(tmp_path: Path) -> None:
    signed(tmp_path, "often", "once", "seldom")
    found = Found(tmp_path)
    found.again = {"often": 60, "seldom": 3600}
    found.round()
    assert found.look(30) == []
    assert found.look(100) == ["shop.often"]
    assert found.look(5000) == ["shop.often", "shop.seldom"]
    found.again.clear()
    assert found.look(5100) == ["shop.often"]
    assert found.look(20_000) == ["shop.seldom"]
    assert found.look(50_000) == []


def test_a_log_that_is_added_is_looked_at_within_a_minute_also_one_that_was_to_be_much_later(
    tmp_path: Path,
) -> None:
    signed(tmp_path, "orders")
    found = Found(tmp_path)
    found.again = {"orders": 3600}
    found.round()
    assert found.look(100) == []
    signed(tmp_path, "items")
    for table in ("orders", "items"):
        found.search.add(f"{tmp_path}/shop/{table}/pending")
    assert found.look(0) == []
    assert found.look(61) == ["shop.items", "shop.orders"]


def test_what_cannot_be_read_is_tried_again_each_minute(tmp_path: Path) -> None:
    signed(tmp_path, "a", "b")
    away = {"a"}
    found = Found(tmp_path, raises=lambda table: table in away)
    found.again = {"a": 3600, "b": 3600}
    assert found.round() == ["shop.b"]
    away.clear()
    assert found.look(100) == ["shop.a"]


def test_a_folder_that_cannot_be_listed_is_listed_a_minute_later(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.write_text("no folder")
    found = Found(logs)
    found.again = {"a": 60}
    assert found.round() == []
    logs.unlink()
    signed(logs, "a")
    assert found.look(30) == []
    found.look(61)
    assert found.look(200) == ["shop.a"]


class Counted(LocalFiles):
    """How often each folder was listed."""

    def __init__(self) -> None:
        self.lists: Counter[str] = Counter()

    def list(self, folder: str) -> Sequence[Entry]:
        self.lists[folder] += 1
        return super().list(folder)


def test_a_table_is_looked_at_as_seldom_as_something_is_put(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    search = lake.handler._open._search  # type: ignore[union-attr]
    files = Counted()
    sink, began = lake.sink(), time.time()
    monkeypatch.setattr(sink._log._folder, "_files", files)
    own = owner_of(LocalFiles(), sink.log_folder)

    def look(seconds: float) -> float | None:
        """So much later; returns in how many it is to be looked at again."""
        files.lists.clear()
        monkeypatch.setattr(time, "time", lambda: began + seconds)
        wait: float | None = search._serve(sink.log_folder, own, anew=False)
        return wait

    assert look(20) == pytest.approx(40, abs=5)
    assert not files.lists, "it was this worker that put last"
    assert look(100) == pytest.approx(100, abs=5)
    assert files.lists == {sink.log_folder: 1}
    assert look(1_000) == pytest.approx(1_000, abs=5)
    assert look(100_000) == 3600
    lake.partitions = {("cdc", 0), ("cdc", 1)}
    assert look(100_001) == 60, "who had it may have put something a moment ago"
    assert files.lists == {sink.log_folder: 1}


def look(lake: Lake) -> None:
    lake.handler._open._search.round()  # type: ignore[union-attr]


def test_what_waits_is_taken_over_when_the_handler_that_served_it_is_closed(make_lake: MakeLake) -> None:
    old = make_lake(merge={"at_close": "0s"})
    old.take(change(1, {"id": 1, "name": "a"}))
    new = make_lake()
    look(new)
    assert new.status() == {}
    old.close()
    look(new)
    assert new.status()["waiting_rows"] == 1


@pytest.mark.parametrize("merged", [True, False])
def test_a_table_that_is_dropped_is_let_go_and_one_of_its_name_goes_on(
    make_lake: MakeLake, merged: bool
) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    look(lake)
    assert lake.status()["waiting_rows"] == 1
    lake.take(change(2, None, None, op="ddl", sql="DROP TABLE orders"))
    look(lake)
    assert lake.status() == {}
    if merged:
        lake.merge()
        look(lake)
        assert lake.status() == {}
    lake.take(change(1, {"id": 1, "name": "a"}), change(3, {"id": 3, "name": "of the new table"}))
    look(lake)
    lake.merge()
    assert lake.rows() == [(3, "of the new table")]


@pytest.mark.parametrize(
    ("statement", "left"),
    [("DROP TABLE orders, items", None), ("RENAME TABLE orders TO a, items TO b", [(1, "former")])],
)
def test_a_table_leaves_by_another_tables_statement_also_if_all_its_rows_wait(
    make_lake: MakeLake, statement: str, left: object
) -> None:
    lake = make_lake()
    lake.take(change(0, {"id": 1, "name": "a"}))
    lake.take(change(1, {"id": 1, "name": "former"}), table="shop.items")
    lake.take(change(2, None, None, op="ddl", sql=statement))
    lake.take(change(3, {"id": 2, "name": "next"}), table="shop.items")
    lake.merge()
    look(lake)
    lake.sink("items").merge()
    assert lake.rows(path="lake/shop/items") == [(2, "next")]
    assert left is None or lake.rows(path="lake/shop/b") == left


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("table", [None, "{table}_made_again"])
def test_a_table_that_another_worker_has_dropped_meanwhile_is_not_made_again(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, table: str | None
) -> None:
    """At any time: before this one looks, or while Spark makes it."""
    lake = make_lake(merge={"engine": "spark", "at_close": "0s"}, table=table)
    lake.take(change(1, {"id": 1, "name": "a"}))
    told = ToldHeld(LocalFiles(), lake.sink().log_folder)

    def merge_late(*given: Any) -> None:
        told.tell_left(9)
        merge_by_spark(*given)

    monkeypatch.setattr(work, "merge_by_spark", merge_late)
    for _ in range(2):
        with pytest.raises(LogFailure, match="was dropped before this commit made it again"):
            lake.sink().merge()
        assert [each.name for each in Path(lake.folder, "lake/shop/orders").rglob("*.*")] == []
        assert table is None or not lake.spark.catalog.tableExists("orders_made_again")


def test_a_table_is_looked_at_within_a_minute_of_a_merge_which_may_meet_another_worker(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    search = lake.handler._open._search  # type: ignore[union-attr]
    looked: list[str] = []
    monkeypatch.setattr(search, "_serve", lambda folder, owner, *, anew: looked.append(folder) or 3600.0)  # type: ignore[func-returns-value]
    search.look(time.monotonic())
    search.round()
    looked.clear()
    search.look(time.monotonic() + 100)
    assert looked == []
    lake.sink().merge()
    search.look(time.monotonic())
    search.look(time.monotonic() + 61)
    assert looked == [lake.sink().log_folder]
