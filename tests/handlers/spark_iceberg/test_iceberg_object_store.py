"""Iceberg tables and the changes that wait for them in an object store, without Java."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.catalog import load_catalog
from servers.s3_server import S3Server

from handlers import TargetUnavailable

MakeLake = Callable[..., IcebergLake]


def test_a_replica_in_a_bucket(
    make_lake: MakeLake, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = s3.new_bucket()
    endpoint = {"s3.endpoint": s3.environment["AWS_ENDPOINT_URL"]}
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{bucket}/tables"}
    lake = make_lake(catalog={**place, **endpoint}, warehouse=f"s3://{bucket}/lake")
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    lake.take(change(3, None, op="delete", before={"id": 1, "name": "a"}))
    s3.is_away = True
    with pytest.raises(TargetUnavailable):
        lake.take(change(4, {"id": 4, "name": "d"}))
    with pytest.raises(TargetUnavailable):
        lake.merge()
    s3.honest()
    lake.crash()
    lake.take(change(4, {"id": 4, "name": "d"}))
    lake.merge()
    catalog = load_catalog("default", type="sql", **place, **endpoint)
    rows = catalog.load_table("shop.orders").scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 2, "name": "b"}, {"id": 4, "name": "d"}]
    assert not (tmp_path / "lake").exists()


def test_rows_wait_for_a_store_of_the_tables_that_is_away(make_lake: MakeLake) -> None:
    away = {"s3.endpoint": "http://127.0.0.1:9", "s3.region": "us-east-1"}
    secrets = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    lake = make_lake(catalog={"warehouse": "s3://tables/lake", **away, **secrets})
    lake.take(change(1, {"id": 1, "name": "a"}))
    with pytest.raises(TargetUnavailable, match="NETWORK_CONNECTION"):
        lake.merge()
