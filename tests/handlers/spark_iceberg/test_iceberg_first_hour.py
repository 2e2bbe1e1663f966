"""What a user meets in the first hour: a catalog that is missing, wrong or away, and paths."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from iceberg_lab import IcebergLake, change
from pydantic import ValidationError

from handlers import Batch, TargetUnavailable
from handlers.spark.iceberg import catalog
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.locations import Locations
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions, SparkSection
from handlers.spark.read.in_duckdb import Source, read


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "function", "function": "a:b"}, "mode function writes no table"),
        ({"mode": "replica", "path": "x/{table}"}, "not a path"),
        ({"mode": "replica", "table": "{table}"}, "write namespace.table"),
        (
            {"mode": "replica", "partition_by": ["weeks(a)"]},
            "'weeks(a)' is no partition, or the second of its column; allowed: a column",
        ),
        ({"mode": "replica", "merge": {"engine": "spark"}}, "PyIceberg commits to Iceberg tables"),
        ({"mode": "replica", "partition_by": ["bucket(id)"]}, "'bucket(id)' is no partition"),
        ({"mode": "replica", "partition_by": ["bucket(0, id)"]}, "'bucket(0, id)' is no partition"),
        ({"mode": "replica", "partition_by": ["bucket(9999999999, id)"]}, "id)' is no partition"),
        ({"mode": "replica", "partition_by": ["days(A)", "hours(a)"]}, "second of its column"),
        ({"mode": "replica", "partition_by": ["a", "bucket(4, a)"]}, "second of its column"),
        ({"mode": "replica", "properties": {"format-version": 3}}, "PyIceberg writes format-version 1 and 2"),
        (
            {"mode": "replica", "properties": {"write.format.default": "orc"}},
            "write.format.default parquet only",
        ),
    ],
)
def test_what_iceberg_cannot_do_is_said_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace("(", r"\(").replace(")", r"\)")):
        SparkOptions.model_validate({"format": "iceberg", **options})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handlers.spark.options.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r"pip install '.\[iceberg\]'"):
        SparkOptions.model_validate({"format": "iceberg", "mode": "replica"})


@pytest.mark.parametrize("catalog", [{"type": ""}, {"type": "nonsense"}])
def test_a_catalog_that_is_not_configured_stops_the_start(tmp_path: Path, catalog: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match=r"set spark\.iceberg to PyIceberg's properties"):
        IcebergLake(tmp_path, catalog={"uri": "", **catalog})


def test_a_catalog_that_is_away_does_not_stop_the_start(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, catalog={"type": "rest", "uri": "http://127.0.0.1:9"})
    lake.close()


def test_a_catalog_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_MOST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        lake = IcebergLake(tmp_path, catalog={"type": "rest", "uri": place})
        with pytest.raises(TargetUnavailable, match="timed out"):
            lake.take(change(1, {"id": 1, "name": "a"}))
        lake.close()


@pytest.mark.parametrize(
    "given", [{}, {"keepalives_idle": "60"}, {"tcp_user_timeout": "9000", "sslmode": "disable"}]
)
def test_a_database_whose_machine_is_gone_is_noticed(tmp_path: Path, given: dict[str, str]) -> None:
    """Even if it has received a statement and only the answer is missing. Linux waits two hours for that."""
    uri = sa.make_url("postgresql://host/catalog").update_query_dict(given).render_as_string()
    section = SparkSection(iceberg={"type": "sql", "uri": uri})
    limits = sa.make_url(IcebergCatalog(section, tmp_path)._given["uri"]).query
    assert limits == {"connect_timeout": "10", "keepalives_idle": "30", "tcp_user_timeout": "60000"} | given


def test_relative_places_begin_at_the_configuration(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, catalog={"uri": "sqlite:///state/catalog.db", "warehouse": "ware house"})
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    lake.close()
    assert (tmp_path / "state/catalog.db").exists()
    assert (tmp_path / "ware house/shop/orders/metadata").is_dir()


@pytest.mark.parametrize("kind", [{}, {"type": "SQL"}, {"typ": "sql"}])
def test_places_are_those_of_the_kind_however_it_is_written(tmp_path: Path, kind: dict[str, str]) -> None:
    """PyIceberg takes a type in capitals, and takes it from the address if there is none."""
    section = SparkSection(warehouse="lake", iceberg={**kind, "uri": "sqlite:///state/catalog.db"})
    found = IcebergCatalog(section, tmp_path)
    found.connected().create_namespace("shop")
    assert found.location_of(("shop", "orders")) == str(tmp_path / "lake/iceberg/shop/orders")
    assert (tmp_path / "state/catalog.db").exists()


def test_a_catalog_of_your_own_has_its_own_places(tmp_path: Path) -> None:
    own = {"py-catalog-impl": "pyiceberg.catalog.sql.SqlCatalog", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    found = IcebergCatalog(SparkSection(warehouse="lake", iceberg=own), tmp_path)
    found.connected().create_namespace("shop")
    assert found.location_of(("shop", "orders")) is None


@pytest.mark.parametrize(
    ("database", "table", "place"),
    [("shop", "..", "shop/!2E."), ("..", "t", "!2E./t"), ("a/b", "c", "a!2Fb/c"), ("s", "a#b", "s/a!23b")],
)
def test_tables_of_any_name_stay_in_the_warehouse(
    tmp_path: Path, database: str, table: str, place: str
) -> None:
    lake = IcebergLake(tmp_path)
    rows = [{"id": 1, "name": "a"}]
    lake.handler.handle(Batch(f"{database}.{table}", (change(1, *rows),), database=database, name=table))
    lake.merge()
    lake.close()
    found = lake.catalog.load_table((database, table))
    assert found.location() == f"{tmp_path}/lake/iceberg/{place}"
    assert found.scan().to_arrow().to_pylist() == rows


def test_a_namespaces_own_location_counts(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.catalog.create_namespace("shop", {"location": f"{tmp_path}/elsewhere"})
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    lake.close()
    assert lake.table().location() == f"{tmp_path}/elsewhere/orders"


@pytest.mark.parametrize("mode", ["history", "changelog"])
def test_no_column_has_a_name_that_spark_refuses(tmp_path: Path, mode: str) -> None:
    """Spark says: Table column names conflict with names reserved for Iceberg metadata columns."""
    lake = IcebergLake(tmp_path, mode=mode)
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    lake.close()
    assert not lake.types().keys() & {"_file", "_pos", "_deleted", "_spec_id", "_partition"}
    assert "cdc_partition" in lake.types()


def test_the_commands_that_read_delta_tables_name_the_catalog(tmp_path: Path) -> None:
    options = SparkOptions.model_validate({"mode": "replica", "format": "iceberg"})
    ref = Locations(options, SparkSection(), tmp_path).ref("shop", "orders")
    with pytest.raises(RuntimeError, match=r"`shop`\.`orders` is an Iceberg table: its catalog shows it"):
        read(Source(LocalFiles(), ref, "cdc_"))


def test_a_rest_catalogs_properties_are_its_own() -> None:
    given = {"type": "rest", "uri": "http://c", "warehouse": "prod", "s3.path-style-access": True}
    catalog = IcebergCatalog(SparkSection(iceberg={"name": "lake", **given}), Path("/x"))
    assert (catalog._name, catalog._given) == ("lake", {**given, "s3.path-style-access": "true"})


def test_a_new_table_has_another_folder_than_one_that_was_renamed(lake: IcebergLake) -> None:
    """Or Spark's `remove_orphan_files` for one of them would remove the other's files."""
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    lake.catalog.rename_table("shop.orders", "shop.former")
    lake.close()
    shutil.rmtree(lake.folder / "lake/_binlane")  # the log has its position
    lake.open()
    lake.take(change(2, {"id": 1, "name": "b"}))
    lake.merge()
    folders = [lake.table(name).location() for name in ("shop.former", "shop.orders")]
    assert [Path(each).parent for each in folders] == [lake.folder / "lake/iceberg/shop"] * 2
    assert folders[0] != folders[1]
    assert [row["name"] for name in ("shop.former", "shop.orders") for row in lake.rows(name)] == ["a", "b"]
