"""`binlane reload` of a Spark table beside a running worker, whose own Spark does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta_reading import read_delta
from integration.stage import Stage
from integration.test_spark_starts import HeldSpark
from spark_sessions import SparkKeeper

from worker.commands.reload import reload


def seqs(table: Path) -> list[int]:
    return sorted(row["seq"] for row in read_delta(table, "seq"))


@pytest.mark.soak
def test_a_spark_table_is_whole_again_while_its_worker_goes_on(
    stage: Stage, spark_keeper: SparkKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = spark_keeper.get()
    held = HeldSpark(stage)
    held.insert(300)
    held.source.insert("t1", records=5)
    worker = held.start()
    stage.wait_committed_to_the_end()
    config, table = worker.folder / "binlane.yaml", worker.folder / "lake/shop/orders"
    with held.source.going_on(lambda: held.source.insert("orders"), every=0.5):
        assert reload(config, "shop.orders") == 0, capsys.readouterr()
    assert "rows replaced by " in capsys.readouterr().out
    found = seqs(table)
    assert found == list(range(len(found)))
    assert len(found) > 300, "it has caught up with some of what came meanwhile"
    spark.session.sql(f"DELETE FROM delta.`{table}` WHERE seq < 100")
    spark.session.sql(f"UPDATE delta.`{table}` SET seq = 9999 WHERE seq > 250")
    assert reload(config, "shop.orders") == 0
    sent = held.source.rows["shop.orders"]
    assert f" rows replaced by {len(sent):,}, from {len(sent):,} changes" in capsys.readouterr().out
    assert seqs(table) == sent
    assert worker.status()["handlers"][0]["spark"]["up"] is False
    assert not (worker.folder / "lake/shop/t1").exists(), "nobody asked for this one"
    assert not list((worker.folder / "lake/_binlane_reload/shop/orders").iterdir())
    worker.kill9()
