"""What `current` returns to a client of Spark Connect."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from servers.spark_cluster import ConnectNode
from spark_sessions import SparkKeeper

from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.read.current import current
from handlers.spark.rows.shape import Shape, log_schema


@pytest.fixture(autouse=True, scope="module")
def _no_other(spark_keeper: SparkKeeper) -> None:
    spark_keeper.stop()


def test_a_frame_keeps_to_the_segments_of_its_moment(connect_server: ConnectNode, tmp_path: Path) -> None:
    """With those that are there later, rows of removed segments would be missing without an error."""
    pending = tmp_path / "lake/_binlane/shop/orders/pending"
    log = SegmentLog(LocalFiles(), str(pending))
    log.load()
    schema = log_schema(Shape(pa.schema([("id", pa.int64())]), ("id",)), mode="replica", prefix="_")

    def put(key: int) -> None:
        rows = pa.Table.from_pylist([{"_op": "upsert", "id": key}], schema=schema)
        log.append(rows, Marks(), key=("id",), partial=False)

    put(1)
    with connect_server.session() as session:
        frame = current(session, str(tmp_path / "lake/shop/orders"))
        put(2)
        assert [tuple(row) for row in frame.collect()] == [(1,)]
        min(pending.glob("*.parquet")).unlink()
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            frame.collect()
