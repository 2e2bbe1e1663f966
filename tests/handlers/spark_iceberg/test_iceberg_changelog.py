"""Changelogs in Iceberg: the row before an update is a struct."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from iceberg_lab import IcebergLake, change

MakeLake = Callable[..., IcebergLake]


@pytest.fixture
def changelog(make_lake: MakeLake) -> IcebergLake:
    lake = make_lake(mode="changelog")
    lake.take(change(1, {"id": 1, "name": "b"}, op="update", before={"id": 1, "name": "a"}))
    lake.merge()
    return lake


def test_a_column_that_the_source_spells_otherwise_keeps_its_values(changelog: IcebergLake) -> None:
    types = {"id": "int", "more": "int", "NAME": "varchar(20)"}
    row, earlier = {"id": 1, "more": 8, "NAME": "c"}, {"id": 1, "more": 7, "NAME": "b"}
    changelog.take(
        change(2, {"id": 2, "more": 9, "NAME": "d"}, types),
        change(3, row, types, op="update", before=earlier),
    )
    changelog.merge()
    assert [each["cdc_before"] for each in changelog.rows()] == [
        None,
        {"id": 1, "name": "a", "more": None},
        {"id": 1, "name": "b", "more": 7},
    ]


def test_a_column_of_the_row_before_that_somebody_spells_otherwise_keeps_its_values(
    changelog: IcebergLake,
) -> None:
    with changelog.table().update_schema() as update:
        update.move_first("cdc_before.name").rename_column(("cdc_before", "name"), "Name")
    changelog.take(change(2, {"id": 1, "name": "c"}, op="update", before={"id": 1, "name": "b"}))
    changelog.merge()
    assert [each["cdc_before"] for each in changelog.rows()] == [
        {"id": 1, "Name": "a"},
        {"id": 1, "Name": "b"},
    ]
