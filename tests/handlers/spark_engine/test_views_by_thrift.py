"""A view that a worker keeps in a Hive metastore is read by Spark's Thrift server, as BI tools read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.spark_cluster import ThriftNode
from spark_lake import Lake, change
from spark_sessions import SHARED, SparkKeeper

from handlers.spark.engine.keeper import Views
from handlers.spark.engine.merge_scheduler import Merger

pytestmark = [pytest.mark.soak, pytest.mark.long]


def test_a_thrift_server_reads_waiting_rows_by_plain_sql(
    spark_keeper: SparkKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Merger, "offer", lambda *_: None)
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{tmp_path}/metastore;create=true",
    }
    spark_keeper.get({**SHARED, "conf": {**SHARED["conf"], **hive}})
    lake = Lake(tmp_path, merge={"at_close": "0s"})
    try:
        lake.take(change(0, {"id": 1, "name": "merged"}))
        lake.sink().merge()
        assert Views(lake.handler._open.world).keep(lake.sink())  # type: ignore[union-attr]
        lake.take(change(1, {"id": 2, "name": "waits"}))
    finally:
        lake.close()
        spark_keeper.stop()  # Derby is for one process at a time
    server = ThriftNode(**hive)
    try:
        server.start()
        assert server.query("SELECT * FROM shop.orders ORDER BY id") == ["1,merged", "2,waits"]
    finally:
        server.close()
