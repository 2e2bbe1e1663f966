"""Histories in Iceberg: each version of a row, with its period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from msgspec.structs import replace

MakeLake = Callable[..., IcebergLake]


@pytest.fixture
def history(make_lake: MakeLake) -> IcebergLake:
    return make_lake(mode="history")


def _at(seconds: int, offset: int, after: Any, op: str, **more: Any) -> Any:
    known = {"id": 1, "name": "?"}
    before = None if op == "insert" else known
    made = change(offset, after, op=op, before=before, **more)
    return replace(made, source_time_ms=seconds * 1000)


def _versions(lake: IcebergLake) -> list[tuple[Any, ...]]:
    rows = sorted(lake.rows(), key=lambda row: (row["id"], row["cdc_valid_from"], row["cdc_offset"]))
    return [
        (
            row["name"],
            int(row["cdc_valid_from"].timestamp()),
            row["cdc_valid_to"] and int(row["cdc_valid_to"].timestamp()),
            row["cdc_current"],
            row["cdc_op"],
        )
        for row in rows
    ]


@pytest.mark.parametrize("merges", [1, 5])
def test_each_version_has_its_period_however_often_is_merged(history: IcebergLake, merges: int) -> None:
    changes = [
        _at(10, 1, {"id": 1, "name": "a"}, "insert"),
        _at(20, 2, {"id": 1, "name": "b"}, "update"),
        _at(30, 3, None, "delete"),
        _at(25, 4, {"id": 1, "name": "c"}, "insert"),  # the source's clock was set back
        _at(40, 5, {"id": 1, "name": "c"}, "snapshot"),  # is known
    ]
    for each in changes:
        history.take(each)
        if merges > 1:
            history.merge()
    history.merge()
    assert _versions(history) == [
        ("a", 10, 20, False, "insert"),
        ("b", 20, 30, False, "update"),
        ("c", 30, None, True, "insert"),
    ]


def test_past_versions_stay_in_their_files(history: IcebergLake) -> None:
    history.take(_at(10, 1, {"id": 1, "name": "a"}, "insert"), _at(20, 2, {"id": 1, "name": "b"}, "update"))
    history.take(_at(30, 3, None, "delete"))
    history.merge()
    [past] = [each["file_path"] for each in history.table().inspect.files().to_pylist()]
    history.take(_at(40, 4, {"id": 1, "name": "c"}, "insert"))
    history.merge()
    history.take(_at(50, 5, {"id": 1, "name": "d"}, "update"))
    history.merge()
    files = {each["file_path"] for each in history.table().inspect.files().to_pylist()}
    assert past in files
    assert len(files) == 2
    assert [version[0] for version in _versions(history)] == ["a", "b", "c", "d"]


def test_what_an_update_does_not_tell_is_that_of_the_version_before(history: IcebergLake) -> None:
    types = {"id": "int", "name": "varchar(20)", "f": "double"}
    history.take(replace(_at(10, 1, {"id": 1, "name": "a", "f": -0.0}, "insert"), types=types))
    history.merge()
    for offset, name in ((2, "b"), (3, "c")):
        told = replace(_at(10 * offset, offset, {"id": 1, "name": name}, "update"), types=types, lacks=None)
        history.take(told)
    history.merge()
    rows = sorted(history.rows(), key=lambda row: row["cdc_offset"])
    assert [(row["name"], repr(row["f"])) for row in rows] == [("a", "-0.0"), ("b", "-0.0"), ("c", "-0.0")]


def test_a_new_column_has_its_default_in_current_versions_only(history: IcebergLake) -> None:
    history.take(_at(10, 1, {"id": 1, "name": "a"}, "insert"), _at(20, 2, {"id": 1, "name": "b"}, "update"))
    history.take(
        change(3, None, None, op="ddl", sql="ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 7")
    )
    history.merge()
    assert {row["name"]: row["n"] for row in history.rows()} == {"a": None, "b": 7}
    history.take(change(4, None, None, op="ddl", sql="ALTER TABLE orders DROP COLUMN n"))
    history.merge()
    assert {row["name"]: row["n"] for row in history.rows()} == {"a": None, "b": 7}


@pytest.mark.parametrize(("clause", "value"), [("", None), (" NOT NULL DEFAULT 'z'", "z")])
def test_a_column_that_is_dropped_and_added_again_is_another_one(
    history: IcebergLake, clause: str, value: str | None
) -> None:
    """As in Delta: past versions keep the former column's values, and current versions lose them."""
    history.take(_at(10, 1, {"id": 1, "name": "a"}, "insert"), _at(20, 2, {"id": 1, "name": "b"}, "update"))
    history.take(change(3, None, None, op="ddl", sql="ALTER TABLE orders DROP COLUMN name"))
    history.merge()
    assert [version[0] for version in _versions(history)] == ["a", "b"]
    history.crash()
    for offset in (4, 5):  # the second has no effect
        sql = f"ALTER TABLE orders ADD COLUMN name varchar(20){clause}"
        history.take(change(offset, None, None, op="ddl", sql=sql))
        history.merge()
        assert [version[0] for version in _versions(history)] == ["a", value]
        history.take(_at(60 + offset, 10 * offset, {"id": 1, "name": "c"}, "update")) if offset == 5 else None
    history.merge()
    assert [version[0] for version in _versions(history)] == ["a", value, "c"]
