"""Where a table and its log are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from handlers.spark.locations import Locations
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.table_ref import path_of, path_safe

FOLDER = Path("/etc/binlane")


def locations(warehouse: str = "lake", folder: Path = FOLDER, **options: Any) -> Locations:
    return Locations(
        SparkOptions.model_validate({"mode": "replica", **options}),
        SparkSection.model_validate({"warehouse": warehouse}),
        folder,
    )


@pytest.mark.parametrize(
    ("warehouse", "path", "table", "log"),
    [
        ("lake", None, "/etc/binlane/lake/shop/orders", "/etc/binlane/lake/_binlane/shop/orders/pending"),
        ("/lake/", None, "/lake/shop/orders", "/lake/_binlane/shop/orders/pending"),
        ("s3a://b/lake", None, "s3a://b/lake/shop/orders", "s3a://b/lake/_binlane/shop/orders/pending"),
        ("file:///lake", None, "file:///lake/shop/orders", "file:///lake/_binlane/shop/orders/pending"),
        (
            "lake",
            "hdfs://n/{table}/of_{database}/x",
            "hdfs://n/orders/of_shop/x",
            "hdfs://n/_binlane/orders/of_shop/x/pending",
        ),
        (
            "lake",
            "out/cdc_{database}.{table}",
            "/etc/binlane/out/cdc_shop.orders",
            "/etc/binlane/out/_binlane/cdc_shop.orders/pending",
        ),
    ],
)
def test_the_log_of_a_table_is_beside_it_below_the_first_name(
    warehouse: str, path: str | None, table: str, log: str
) -> None:
    ref = locations(warehouse, **({} if path is None else {"path": path})).ref("shop", "orders")
    assert (ref.sql, ref.path, ref.log_folder) == (f"delta.`{table}`", table, log)
    assert ref.app_id == "binlane:shop.orders"


def test_a_catalogs_table_has_its_log_in_the_warehouse() -> None:
    found = locations("s3a://b/lake", table="main.{database}_cdc.{table}")
    ref = found.ref("shop", "a`b")
    assert (ref.sql, ref.path) == ("`main`.`shop_cdc`.`a``b`", None)
    assert ref.log_folder == "s3a://b/lake/_binlane/shop/a!60b/pending"
    assert found.root == "s3a://b/lake"


def test_a_parquet_changelog_is_its_own_log() -> None:
    ref = locations(mode="changelog", format="parquet").ref("shop", "orders")
    assert ref.path == ref.log_folder == "/etc/binlane/lake/shop/orders"
    assert ref.sql == "parquet.`/etc/binlane/lake/shop/orders`"


def test_braces_of_folders_stand_for_themselves() -> None:
    odd = Path("/etc/{database}/{x}")
    assert locations(folder=odd).ref("shop", "orders").path == "/etc/{database}/{x}/lake/shop/orders"
    assert locations("/a{b}").ref("shop", "orders").path == "/a{b}/shop/orders"
    assert locations(folder=odd, path="{table}").ref("shop", "t").path == "/etc/{database}/{x}/t"


def test_every_name_has_a_place_of_its_own_that_is_not_hidden_and_leads_nowhere() -> None:
    names = ["订单", "a/b", "a%2Fb", "..", ".", "sp ace", "_x", "A", "a", "x`y"]
    found = [locations().ref("shop", name).path for name in names]
    assert len(set(found)) == len(names)
    assert [str(path).removeprefix("/etc/binlane/lake/shop/") for path in found] == [
        "订单", "a!2Fb", "a!252Fb", "!2E.", "!2E", "sp!20ace", "_x", "A", "a", "x!60y",
    ]  # fmt: skip


def test_a_name_is_found_again_from_its_place() -> None:
    names = ["订单", "a/b", "a!2Fb", "..", "sp ace", "😀", "a!", "!2F", 'q"uote']
    assert [path_of(path_safe(name)) for name in names] == names
    assert path_of("a!zz") == "a!zz"


def test_delta_tables_of_odd_names_are_opened_by_readers_that_are_no_spark(tmp_path: Path) -> None:
    for name in ("Weird Table-名", "a%20b", 'q`uo"te', "t=1", "x!y"):
        path = locations(folder=tmp_path).ref("Sales-EU v2", name).path
        assert path is not None
        write_deltalake(path, pa.table({"id": [7]}))
        assert Path(path, "_delta_log").is_dir()
        assert DeltaTable(path).to_pyarrow_table().to_pydict() == {"id": [7]}
