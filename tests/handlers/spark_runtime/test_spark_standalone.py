"""A standalone cluster: used, and what happens when an executor, its worker or the master is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from servers.spark_cluster import SparkCluster, eventually
from spark_sessions import SparkKeeper

from handlers import StopWorker
from handlers.spark import SparkHandler
from handlers.spark.runtime import errors
from handlers.testing import make_batch, opened

pytestmark = pytest.mark.long

FUNCTION = """
def counts(frame, batch):
    frame.groupBy("_op").count().write.format("delta").mode("append").save(PLACE)
"""


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper, spark_cluster: SparkCluster) -> Iterator[Any]:
    """The process's one Spark, as handlers get it."""
    yield spark_keeper.get(spark_cluster.section(**{"spark.task.maxFailures": "2"}))
    spark_keeper.stop()  # it has all executors


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Delta table with two rows."""
    path = str(tmp_path_factory.mktemp("tables") / "t")
    spark.fresh().createDataFrame(pa.table({"id": [1, 2]})).write.format("delta").save(path)
    return path


def rows(spark: Any, table: str) -> int:
    # Not from Delta's statistics: the executors have to read it.
    return int(spark.session.sql(f"SELECT count(DISTINCT id) FROM delta.`{table}`").collect()[0][0])


@pytest.mark.soak
def test_executors_write_and_read_delta_tables(spark: Any, spark_cluster: SparkCluster, table: str) -> None:
    assert rows(spark, table) == 2
    assert len(spark_cluster.executors()) == 1
    assert spark.status()["master"] == spark_cluster.url
    assert spark.status()["ui"].startswith("http://127.0.0.1:")


@pytest.mark.soak
def test_a_function_runs_on_the_cluster(spark: Any, spark_cluster: SparkCluster, tmp_path: Path) -> None:
    place = tmp_path / "counts"
    (tmp_path / "cluster_function.py").write_text(FUNCTION.replace("PLACE", repr(str(place))))
    handler = SparkHandler(mode="function", function="cluster_function:counts")
    with opened(handler, tmp_path, spark=spark_cluster.section()):
        handler.handle(make_batch("shop.t", [{"id": 1}, {"before": {"id": 1}, "after": None}], key="id"))
    found = spark.session.read.format("delta").load(str(place)).orderBy("_op").collect()
    assert [tuple(row) for row in found] == [("delete", 1), ("insert", 1)]


@pytest.mark.soak
def test_an_executor_out_of_memory_is_told_and_does_not_stop_the_worker(spark: Any, table: str) -> None:
    too_long = "SELECT length(repeat('x', 900000000 + CAST(id AS INT))) FROM range(1)"
    with pytest.raises(Exception, match="Job aborted") as caught:
        spark.fresh().sql(too_long).collect()
    spark.stop_worker_if_gone(caught.value)  # does not raise
    told = errors.told(caught.value)
    assert "OutOfMemoryError" in told or "ExecutorLostFailure" in told
    assert "\n" not in told
    assert rows(spark, table) == 2


@pytest.mark.soak
def test_a_restarted_master_which_gives_no_executors_stops_the_worker(
    spark: Any, spark_cluster: SparkCluster, table: str
) -> None:
    from handlers.spark.runtime.driver import Watch

    told: list[BaseException] = []
    watch = Watch(spark._place, look_seconds=0.2, abandoned_seconds=2)
    watch.add(told.append)
    assert rows(spark, table) == 2
    spark_cluster.master.kill()
    assert rows(spark, table) == 2, "the executors go on without the master"
    spark_cluster.master.start()
    eventually(lambda: not spark_cluster.executors(), "the new master ends executors it does not know")

    def wait_for_rows() -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever py4j makes of a closed connection)
            rows(spark, table)

    waiting = threading.Thread(target=wait_for_rows)
    waiting.start()
    eventually(lambda: bool(told), "the watch tells of it")
    assert isinstance(told[0], StopWorker)
    assert "has lost all executors" in str(told[0])
    waiting.join(10)
    assert not waiting.is_alive(), "who waits for an executor gets an error"
    watch.stop()
