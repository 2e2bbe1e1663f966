"""A worker is killed in mid-run, again and again, then a second one takes over: every change is there once.

Of tables without a primary key, where a second time would show; of DuckDB, Parquet and Iceberg, whose marks
are their own. The handlers alone: `handlers/targets/test_targets.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.stage import Stage
from pyiceberg.catalog import load_catalog

TABLES = ("t0", "t1")


def keyless(table: str, seqs: range) -> bytes:
    record: dict[str, Any] = json.loads(canal_insert(table, seqs))
    return json.dumps({**record, "pkNames": None}).encode()


def seqs_in_duckdb(folder: Path, table: str) -> Counter[int]:
    import duckdb

    with duckdb.connect(str(folder / "replica.duckdb"), read_only=True) as file:
        return Counter(seq for (seq,) in file.execute(f"SELECT seq FROM replica.shop.{table}").fetchall())


def seqs_in_parquet(folder: Path, table: str) -> Counter[int]:
    files = (folder / "raw" / "shop" / table).rglob("*.parquet")
    return Counter(seq for file in files for seq in pq.ParquetFile(file).read(["seq"])["seq"].to_pylist())


def seqs_in_iceberg(folder: Path, table: str) -> Counter[int]:
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    rows = catalog.load_table(f"shop.{table}").scan(selected_fields=("seq",)).to_arrow()
    return Counter(rows["seq"].to_pylist())


_ICEBERG = {"type": "spark", "format": "iceberg", "mode": "changelog", "merge": {"max_age": "200ms"}}


@pytest.mark.parametrize(
    ("entry", "seqs"),
    [
        pytest.param(_ICEBERG, seqs_in_iceberg, id="iceberg", marks=pytest.mark.soak),
        pytest.param(
            *({"type": "sql", "url": "duckdb:///{folder}/replica.duckdb"}, seqs_in_duckdb), id="duckdb"
        ),
        pytest.param(
            *({"type": "files", "format": "parquet", "directory": "{folder}/raw"}, seqs_in_parquet),
            id="parquet",
            marks=pytest.mark.soak,  # handlers/files_parquet/test_parquet_exactly_once.py
        ),
    ],
)
def test_each_change_is_there_once(
    stage: Stage, tmp_path: Path, entry: dict[str, Any], seqs: Callable[[Path, str], Counter[int]]
) -> None:
    handler = {
        key: value.format(folder=tmp_path) if isinstance(value, str) else value
        for key, value in entry.items()
    }
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    source, sent = stage.source(), count()

    def send() -> None:
        first = 3 * next(sent)
        for table in TABLES:
            source.send(keyless(table, range(first, first + 3)), key=table.encode())

    def worker(name: str) -> WorkerProcess:
        # Commits are rare, so that much comes again.
        return stage.worker(
            name,
            handlers=[handler],
            batch={"max_records": 20},
            checkpoint={"interval": "1m"},
            spark={"iceberg": catalog, "warehouse": str(tmp_path / "lake")},
        )

    def finished(one: WorkerProcess) -> int:
        return sum(int(one.table(f"shop.{table}").get("finished_records", 0)) for table in TABLES)

    first = worker("one")
    with source.going_on(send, every=0.005):
        for _ in range(2):
            first.start()
            eventually(lambda: finished(first) > 60, within=60, every=0.01)
            first.kill9()
    # Another folder: it knows nothing but what Kafka and the target hold.
    second = worker("one")
    second.config["checkpoint"] = {"interval": "200ms", "directory": str(tmp_path / "another")}
    second.start()
    stage.wait_committed_to_the_end()
    assert second.sigterm() == 0
    rows = 3 * next(sent)
    for table in TABLES:
        assert seqs(tmp_path, table) == Counter(range(rows))
