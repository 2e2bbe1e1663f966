"""A REST catalog: the one that Iceberg itself is tested with."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from pyiceberg.catalog import load_catalog

from handlers import TargetUnavailable
from handlers.spark.runtime.jars import resolve
from handlers.spark.runtime.versions import find_java
from worker.local.broker_settings import free_port

MakeLake = Callable[..., IcebergLake]
_COORDINATES = ("org.apache.iceberg:iceberg-open-api:1.10.0",)
"""200 MB: Iceberg's test fixture with all that it needs."""
_PATIENCE = 60.0

pytestmark = pytest.mark.soak


class RestServer:
    """Its tables are in memory, and their files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        [jar] = resolve(_COORDINATES, kind="iceberg-rest")
        environment = {"CATALOG_WAREHOUSE": f"file://{folder}", "CATALOG_REST_PORT": str(self.port)}
        command = [
            str(find_java().executable),
            "-Xmx256m",
            "-cp",
            str(jar),
            "org.apache.iceberg.rest.RESTCatalogServer",
        ]
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                assert time.monotonic() < end
                assert self.process.poll() is None
                time.sleep(0.2)

    @property
    def properties(self) -> dict[str, Any]:
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.port}"}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestServer]:
    server = RestServer(tmp_path / "tables")
    yield server
    server.process.kill()
    server.process.wait()


@pytest.mark.timeout(300)
def test_a_replica_in_a_rest_catalog(make_lake: MakeLake, rest: RestServer) -> None:
    one, other = make_lake(catalog=rest.properties), make_lake(catalog=rest.properties)
    one.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    one.merge()
    one.take(change(3, None, None, op="ddl", sql="ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 7"))
    types = {"id": "int", "name": "varchar(20)", "n": "bigint"}
    one.take(change(4, {"id": 1, "name": "c", "n": 10**10}, types, op="update", before={"id": 1}))
    with other.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
        sink.load()  # as after a rebalance: both think that the table is theirs
    one.merge()
    other.merge()
    catalog = load_catalog("default", **rest.properties)
    table = catalog.load_table("shop.orders")
    rows = [{"id": 1, "name": "c", "n": 10**10}, {"id": 2, "name": "b", "n": 7}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == rows
    assert [each.field_id for each in table.schema().fields] == [1, 2, 3]
    one.take(change(5, {"id": 3, "name": "d", "n": 1}, types))
    rest.process.kill()
    rest.process.wait()
    with pytest.raises(TargetUnavailable):
        one.merge()
