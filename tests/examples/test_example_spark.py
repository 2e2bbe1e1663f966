"""The example of a whole pipeline into Spark: two sources in two formats, every mode, and its freshness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from delta_reading import read_delta
from examples.example_runs import EXAMPLES, ExampleRun
from integration.process import eventually
from spark_sessions import LIGHT_JAVA

from worker.demo.screen import compare
from worker.demo.shop_changes import Shop
from worker.local.broker import Broker

pytestmark = pytest.mark.soak  # the function alone: test_example_aggregates.py; its modes: the demo

SPARK = EXAMPLES / "spark"
CHANGES = 1_000


class Ran(NamedTuple):
    """The pipeline after all of the shop's changes were merged, and its worker drained."""

    folder: Path
    shop: Shop
    """Its tables are the truth."""
    freshness: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def ran(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        patch.setenv("JAVA_TOOL_OPTIONS", LIGHT_JAVA)
        patch.setenv("MPLBACKEND", "Agg")
        run = ExampleRun(SPARK / "pipeline.yaml", tmp_path_factory.mktemp("pipeline") / "run")
        playing = subprocess.Popen(script("shop", "--changes", CHANGES, "--rate", 100))
        try:
            run.worker.start(within=120)
            output = ("--output", run.folder / "freshness.png", "--seconds", 5)
            freshness = subprocess.run(
                script("freshness", "--lake", run.folder / "lake", "--url", run.worker.url, *output),
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert playing.wait(timeout=100) == 0
            eventually(lambda: is_done(run), within=200, what="everything merged")
            run.stop()
        finally:
            playing.kill()
            playing.wait()
            run.close()
    shop = Shop(CHANGES, clock=lambda: 0)
    for _ in shop.messages():
        pass
    return Ran(run.folder, shop, freshness)


def script(name: str, *arguments: Any) -> list[str]:
    return [sys.executable, str(SPARK / f"{name}.py"), *map(str, arguments)]


def is_done(run: ExampleRun) -> bool:
    run.worker.alive()
    status = run.worker.status()
    tables = [table for handler in status["handlers"] for table in handler.get("tables", ())]
    assert [table["error"] for table in tables if table["error"]] == []
    lag = [partition["lag"] for partition in status["partitions"]]
    return lag == [0, 0] and not any(table["waiting_rows"] for table in tables)


@pytest.mark.parametrize("table", ["shop.orders", "billing.payments"])
def test_replicas_of_both_sources_equal_them(table: str, ran: Ran) -> None:
    database, _, name = table.partition(".")
    source = ran.shop.tables[name]

    found = read_delta(ran.folder / "lake" / database / name)

    assert len(found) > 50
    assert compare(name, source.key, source.rows.values(), found) == []


def test_the_history_holds_every_version_of_each_customer(ran: Ran) -> None:
    source = ran.shop.tables["customers"]
    found = read_delta(ran.folder / "lake" / "history" / "shop" / "customers")

    latest = [row for row in found if row["_current"]]
    assert compare("customers", source.key, source.rows.values(), latest) == []
    assert len(found) == sum(place.op != "ddl" for place in source.history) > len(latest)
    assert all((row["_valid_to"] is None) == row["_current"] for row in found)


def test_the_changes_are_plain_parquet(ran: Ran) -> None:
    folder = ran.folder / "lake" / "changes" / "shop" / "audit_log"
    source = [row["detail"] for row in ran.shop.tables["audit_log"].rows.values()]

    found = pq.read_table(folder).sort_by([("_offset", "ascending"), ("_index", "ascending")])

    assert found["detail"].to_pylist() == source


def test_the_revenue_is_that_of_all_settled_payments(ran: Ran) -> None:
    payments = ran.shop.tables["payments"].rows.values()
    settled = [row["amount"] for row in payments if row["state"] == "settled"]

    found = read_delta(ran.folder / "lake" / "revenue")

    assert sum(row["payments"] for row in found) == len(settled) > 30
    assert sum(row["revenue"] for row in found) == sum(settled)


def test_the_script_measures_and_draws_freshness(ran: Ran) -> None:
    assert ran.freshness.returncode == 0, ran.freshness.stderr[-3000:]
    assert "the view is behind the source: median " in ran.freshness.stdout
    picture = (ran.folder / "freshness.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
