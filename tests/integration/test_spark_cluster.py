"""The whole worker on a standalone cluster: each part of the cluster is lost, and no change is."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest
from integration.process import WorkerProcess, eventually
from integration.spark_shop import (
    PATIENCE,
    Shop,
    check_tables,
    merges,
    spark_tables,
    spark_worker,
    wait_merged,
)
from integration.stage import Stage
from servers.spark_cluster import SparkCluster

pytestmark = pytest.mark.long


def wait_for_merges(worker: WorkerProcess, more: int = 4, within: float = PATIENCE) -> None:
    """Until so many commits were made."""
    before = merges(worker)
    eventually(
        lambda: worker.alive() and merges(worker) >= before + more, within=within, what="tables are merged"
    )


@pytest.mark.soak  # handlers/spark_runtime/test_spark_standalone.py loses executors and the master, too
@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize(
    "machines", [pytest.param(False, id="executor-application"), pytest.param(True, id="all")]
)
def test_executors_their_worker_the_application_and_the_master_are_lost_and_no_change_is(
    stage: Stage, spark_cluster: SparkCluster, machines: bool
) -> None:
    """`machines`: the cluster's worker and its master, too."""
    shop = Shop(stage.source())
    worker = spark_worker(stage, spark_cluster.section(), engine="spark").start(within=PATIENCE)
    with shop.open():
        wait_for_merges(worker)
        [executor] = spark_cluster.executors()
        executor.kill()
        eventually(lambda: new_executors(spark_cluster, executor), within=PATIENCE, what="a new executor")
        shop.add_column("orders", "note", "none")
        wait_for_merges(worker)

        if machines:
            lose_worker(spark_cluster, shop)
            wait_for_merges(worker)
        shop.add_column("items", "note", "free")
        assert worker.alive()
        assert len(spark_tables(worker)) == 4

        spark_cluster.end_applications()
        assert worker.wait(PATIENCE) == 1
        assert "Spark is gone: it stopped inside its Java process" in worker.log_text()

        worker.start(within=PATIENCE)
        wait_for_merges(worker, 2)
        if machines:
            spark_cluster.master.kill()  # whom a running application does not need
            wait_for_merges(worker)
    wait_merged(stage, worker)
    assert worker.sigterm(PATIENCE) == 0
    if machines:
        spark_cluster.master.start()
    check_tables(worker, shop)


def lose_worker(cluster: SparkCluster, shop: Shop) -> None:
    """The cluster's worker and its executors; another one comes later."""
    lost = cluster.executors()
    cluster.worker.kill()
    for each in lost:  # a machine that is lost takes its executors along
        with suppress(psutil.NoSuchProcess):
            each.kill()
    changed = shop.count
    eventually(lambda: shop.count > changed + 300, within=PATIENCE)
    cluster.worker.start()
    eventually(cluster.executors, within=PATIENCE, what="executors on the new worker")


def new_executors(cluster: SparkCluster, killed: psutil.Process) -> list[psutil.Process]:
    return [each for each in cluster.executors() if each.pid != killed.pid]
