"""Columns come, widen, get other names and go while thousands of changes flow: the documented result, and
nothing stops."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from integration.evolving_tables import EvolvingTable, Stream
from integration.process import WorkerProcess, eventually
from integration.spark_shop import spark_tables, wait_merged
from integration.stage import Stage
from spark_sessions import LIGHT, SparkKeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

MODES = ("replica", "history", "changelog")


def text(pick: random.Random) -> str:
    return f"名 {pick.randrange(1000)}"


def small(pick: random.Random) -> int:
    return pick.randrange(-(2**31), 2**31)


def big(pick: random.Random) -> int:
    return pick.randrange(-(2**63), 2**63)


def money(digits: int, scale: int) -> Any:
    return lambda pick: Decimal(pick.randrange(10**digits)).scaleb(-scale)


def told(orders: EvolvingTable, items: EvolvingTable, phase: int) -> None:
    """The source: `orders` tells its statements, `items` only shows their result. `phase`: changes of each
    table between two changes of its columns."""

    def flow(*tables: EvolvingTable) -> None:
        for _ in range(phase // 10):
            for table in tables:
                table.change(10)

    flow(orders, items)
    orders.alter("ADD COLUMN stock int NOT NULL DEFAULT 7")
    orders.add("stock", "int", small, default=7)
    items.add("extra", "varchar(20)", text)
    flow(orders, items)
    orders.alter("MODIFY stock bigint NOT NULL, MODIFY total decimal(20,4)")
    orders.retype("stock", "bigint", big)
    orders.retype("total", "decimal(20,4)", money(20, 4))
    items.retype("count", "bigint", big)
    items.retype("price", "decimal(12,4)", money(12, 4))
    flow(orders, items)
    orders.alter("RENAME COLUMN name TO title")
    orders.rename("name", "title")
    flow(orders, items)
    orders.alter("DROP COLUMN note")
    orders.drop("note")
    flow(orders, items)


OWN = {
    ("orders", "replica"): {"id": "int", "total": "decimal(20,4)", "title": "string", "stock": "bigint"},
    ("orders", "history"): {
        "id": "int", "total": "decimal(20,4)", "title": "string", "note": "string", "stock": "bigint",
    },
    ("orders", "changelog"): {
        "id": "int", "total": "decimal(20,4)", "name": "string", "note": "string", "stock": "bigint",
        "title": "string",
    },
    **{
        ("items", mode): {"id": "int", "count": "bigint", "price": "decimal(12,4)", "extra": "string"}
        for mode in MODES
    },
}  # fmt: skip
"""The source's columns in each table at the end."""


def worker_of(stage: Stage) -> WorkerProcess:
    handlers = [
        {
            "type": "spark",
            "name": mode,
            "mode": mode,
            "path": f"lake/{mode}/{{table}}",
            "merge": {"max_age": "20s", "at_close": "5m"},
        }
        for mode in MODES
    ]
    table = {"match": "*", "batch": {"max_records": 50, "max_wait": "100ms"}, "handlers": handlers}
    return stage.worker(tables=[table], spark=LIGHT, shutdown_timeout="5m")


class Watched(threading.Thread):
    """Looks at the worker's tables all the time."""

    def __init__(self, worker: WorkerProcess) -> None:
        super().__init__(name="watch")
        self._worker = worker
        self._ended = threading.Event()
        self.seen: set[str] = set()
        self.errors: set[str] = set()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for table in self._worker.status()["tables"]:
                self.seen.add(table["state"])
                self.errors.add(table["error"])
            self.errors.update(each["error"] for each in spark_tables(self._worker).values())

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.soak  # the demo's tables change while changes flow; each change alone: spark_delta, spark_ddl
@pytest.mark.parametrize("phase", [200, 1_000])
def test_columns_change_while_changes_flow_and_every_mode_follows_without_a_stop(
    stage: Stage, spark_keeper: SparkKeeper, phase: int
) -> None:
    source = stage.source()
    stream = Stream(source)
    orders = EvolvingTable(
        stream,
        "orders",
        {
            "name": ("varchar(20)", text),
            "total": ("decimal(8,2)", money(8, 2)),
            "note": ("text", text),
        },
    )
    items = EvolvingTable(stream, "items", {"count": ("int", small), "price": ("decimal(8,2)", money(8, 2))})
    worker = worker_of(stage).start(within=120)
    watched = Watched(worker)
    watched.start()
    try:
        told(orders, items, phase)
        source.flush()
        records = stream.offset + 1
        eventually(
            lambda: worker.alive() and finished(worker) == records, within=600, what="all records finished"
        )
        wait_merged(stage, worker, within=600)
    finally:
        watched.end()
    rows = [change for table in (orders, items) for change in table.changes if change["_op"] != "ddl"]
    assert len(rows) == 10 * phase
    assert watched.seen <= {"idle", "queued", "running"}
    assert watched.errors == {None}
    assert sum(table["failed_batches"] for table in worker.status()["tables"]) == 0
    assert worker.logged("spark_merge_failed") == []
    assert worker.sigterm(300) == 0

    lake = worker.folder / "lake"
    spark = spark_keeper.get().session
    for table in (orders, items):
        versions = [{**each, "_current": each["_valid_to"] is None} for each in table.versions]
        wanted = {"replica": table.rows.values(), "history": versions, "changelog": table.changes}
        for mode, rows in wanted.items():
            frame = spark.read.format("delta").load(f"{lake}/{mode}/{table.name}")
            assert own_types(frame) == OWN[table.name, mode]
            equal(frame, list(rows), OWN[table.name, mode])


def finished(worker: WorkerProcess) -> int:
    return sum(int(table["finished_records"]) for table in worker.status()["tables"])


def own_types(frame: Any) -> dict[str, str]:
    """The source's columns."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return {name: kept for name, kept in types.items() if not name.startswith("_")}


def equal(frame: Any, rows: list[dict[str, Any]], own: Mapping[str, str]) -> None:
    """Every row is there, once, with all its values, and no other."""
    names = list(dict.fromkeys([*own, *rows[-1]]))
    by = ("_offset", "_index") if "_offset" in names else ("id",)
    found = [_plain(row) for row in frame.select(*names).toArrow().to_pylist()]
    expected = [_plain({name: row.get(name) for name in names}) for row in rows]
    for each in (found, expected):
        each.sort(key=lambda row: [row[name] for name in by])
    for one, other in zip(found, expected, strict=False):
        assert one == other
    assert len(found) == len(expected)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row before an update has the columns of later rows, too: null."""
    before = row.get("_before")
    if before is None:
        return dict(row)
    return {**row, "_before": {name: value for name, value in before.items() if value is not None}}
