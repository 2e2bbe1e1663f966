"""What earlier runs left is found, whatever was out of order at the start; what is gone is let go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spark_lake import Lake, MakeLake, change

from handlers.spark.engine.leftovers import Search
from handlers.spark.log.owner import Owner, sign
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
        self.search = Search(LocalFiles(), str(logs), serve=self._serve, clear=lambda: None)

    def _serve(self, folder: str, owner: Owner) -> bool:
        if self.raises(owner.table):
            raise RuntimeError("Spark is away")
        self.tables.append(f"{owner.database}.{owner.table}")
        return True

    def round(self) -> list[str]:
        self.tables.clear()
        self.search.round()
        return self.tables


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
    assert sorted(Found(tmp_path).round()) == ["ddl.orders", "shop.orders-0-1-2"]


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
