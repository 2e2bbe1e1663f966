"""The whole worker with a Spark Connect server that is killed: changes are taken, and merged later."""

from __future__ import annotations

import pytest
from integration.process import WorkerProcess, eventually
from integration.spark_shop import (
    PATIENCE,
    Shop,
    check_tables,
    failed_merges,
    merges,
    spark_tables,
    spark_worker,
    wait_merged,
)
from integration.stage import Stage
from servers.spark_cluster import ConnectNode

pytestmark = pytest.mark.long


def attempts(worker: WorkerProcess) -> int:
    """How often the merge of one table failed since the last that did not."""
    return max((line["attempt"] for line in failed_merges(worker)), default=0)


@pytest.mark.soak  # tests/handlers/spark_runtime/test_connect_sessions.py kills one, too
@pytest.mark.timeout(2 * PATIENCE)
def test_a_killed_server_delays_merges_and_is_found_again_while_changes_flow(
    stage: Stage, connect_server: ConnectNode
) -> None:
    shop = Shop(stage.source())
    worker = spark_worker(stage, connect_server.section(), engine="spark").start(within=PATIENCE)

    def committed() -> int:
        return stage.committed()[0]

    def waiting() -> int:
        return sum(table["waiting_rows"] for table in spark_tables(worker).values())

    with shop.open():
        eventually(
            lambda: worker.alive() and merges(worker) >= 4, within=PATIENCE, what="each table was merged"
        )
        shop.add_column("orders", "note", "none")
        sent = stage.ends()[0]
        eventually(
            lambda: committed() > sent + 20, within=PATIENCE, what="the DDL, and rows after it, are taken"
        )

        connect_server.kill()
        # For as long as it is away, and not only until the first merges have failed.
        eventually(lambda: attempts(worker) >= 3, within=PATIENCE, what="merges fail, again and again")
        taken, rows = committed(), waiting()
        eventually(lambda: committed() >= taken + 40, within=PATIENCE, what="batches go on being taken")
        assert waiting() > rows
        faults = {name: table["error"] for name, table in spark_tables(worker).items()}
        assert all(f"{connect_server.url} does not answer" in str(fault) for fault in faults.values()), faults
        assert worker.healthy()
        shop.add_column("items", "note", "free")  # this waits for Spark

        connect_server.start()
        before = merges(worker)
        eventually(lambda: merges(worker) >= before + 4, within=PATIENCE, what="tables are merged again")
    wait_merged(stage, worker)
    assert [table["error"] for table in spark_tables(worker).values()] == [None] * 4
    assert worker.sigterm(PATIENCE) == 0
    check_tables(worker, shop)
