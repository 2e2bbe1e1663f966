"""A worker is killed in mid-run, again and again, then a second one takes over: every change is there once.

Of tables without a primary key and of histories, where a second time would show; of DuckDB, Parquet and
Iceberg, whose marks are their own. The handlers alone: `handlers/targets/test_targets.py` and
`test_histories.py` beside it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.stage import Stage
from pyiceberg.catalog import load_catalog
from row_versions import RowVersions, Version, read_time

from handlers.sql.target.engine import make_engine
from handlers.testing import make_batch

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


# ---- histories

_BY_ROW = {"order_by": "row", "processes": 2}
_SOAK = [
    ("sqlite", {}),
    ("duckdb", {}),
    ("mariadb", {}),
    ("postgres", {}),
    *((one, _BY_ROW) for one in ("postgres", "mariadb", "clickhouse")),
]
FIRST_MS = 1_790_000_000_123


def history_entry(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "sql", "mode": "history"}
    if kind == "clickhouse":
        server = request.getfixturevalue(kind)
        return {**entry, "type": kind, **server.options, "database": server.new_name()}
    if kind in ("sqlite", "duckdb"):
        return {**entry, "url": f"{kind}:///{folder}/history.{kind}"}
    named = {"schema": "target", "table": "{database}_{table}"} if kind == "mariadb" else {}
    return {**entry, "url": request.getfixturevalue(kind).new_database("target"), **named}


def stored_versions(entry: dict[str, Any], table: str, request: pytest.FixtureRequest) -> list[Version]:
    if entry["type"] == "clickhouse":
        rows = request.getfixturevalue("clickhouse").rows(f"{entry['database']}.{table}")
    else:
        kind = entry["url"].partition(":")[0]
        name = {"sqlite": f'"shop.{table}"', "duckdb": f"history.shop.{table}"}.get(kind, f"shop.{table}")
        engine = make_engine(
            sa.make_url(entry["url"].replace("duckdb:", "duckdb+binlane:")),
            folder=Path(),
            pool_size=1,
            timeout=30,
        )
        with engine.connect() as connection:
            found = connection.exec_driver_sql(
                f"SELECT * FROM {f'shop_{table}' if 'schema' in entry else name}"
            )
            rows = list(map(dict, found.mappings()))
        engine.dispose()
    times = [(read_time(row["__START_AT"]), read_time(row["__END_AT"])) for row in rows]
    named = [(row["id"], row["name"], row["qty"]) for row in rows]
    return sorted(((*row, *both) for row, both in zip(named, times, strict=True)), key=str)


class Shop:
    """Sends changes of a few rows, and follows them in a model."""

    def __init__(self) -> None:
        self.pick = random.Random(5)
        self.sent = dict.fromkeys(TABLES, 0)
        self.models = {table: RowVersions() for table in TABLES}
        self.types = {"id": "int", "name": "varchar(20)", "qty": "int"}

    def change(self, table: str) -> bytes:
        number = self.sent[table]
        self.sent[table] += 1
        op = self.pick.choice(("insert", "update", "update", "delete"))
        row = {"id": self.pick.randrange(8), "name": self.pick.choice("ab"), "qty": number}
        time = FIRST_MS + 250 * (number - self.pick.choice((0, 0, 9)))
        before, after = None if op == "insert" else row, None if op == "delete" else row
        change: dict[str, Any] = {
            "op": op,
            "before": before,
            "after": after,
            "lacks": frozenset(),
            "source_time_ms": time,
        }
        [made] = make_batch(f"shop.{table}", [change], key="id", types=self.types).changes
        self.models[table].follow(made)
        record = json.loads(canal_insert(table, [0]))
        texts = {name: str(value) for name, value in row.items()}
        told = {"data": [texts], "type": op.upper(), "old": [{}], "mysqlType": self.types, "es": time}
        return json.dumps({**record, **told, "sqlType": {}}).encode()


@pytest.mark.parametrize(
    ("kind", "lanes"),
    [
        ("clickhouse", {}),
        *(pytest.param(*one, id="-".join([one[0], *one[1]]), marks=pytest.mark.soak) for one in _SOAK),
    ],
)
def test_each_version_is_there_once(
    make_stage: MakeStage, tmp_path: Path, request: pytest.FixtureRequest, kind: str, lanes: dict[str, Any]
) -> None:
    """Two workers, of which one is killed twice."""
    entry, stage, shop = history_entry(kind, request, tmp_path), make_stage(2), Shop()
    source, is_file = stage.source(), kind in ("sqlite", "duckdb")
    workers = [
        stage.worker(
            name,
            handlers=[entry],
            batch={"max_records": 20},
            checkpoint={"interval": "1m"},
            lanes={"count": 4, **lanes},
        )
        for name in ("one", "two")
    ]
    for number, one in enumerate(workers):
        one.config["name"] = "shop"  # the marks are the same
        one.config["checkpoint"]["directory"] = str(tmp_path / f"state{number}")

    def send() -> None:
        for place, table in enumerate(TABLES):
            source.send(shop.change(table), partition=place)

    def finished() -> int:
        return sum(int(workers[0].table(f"shop.{table}").get("finished_records", 0)) for table in TABLES)

    with source.going_on(send, every=0.02):
        for turn, some in enumerate((30, 140)):
            workers[0].start(within=120)
            eventually(lambda least=some: finished() > least, within=60, every=0.01)
            workers[0].kill9()
            if turn == 0 and not is_file:  # of a file, one process has it
                workers[1].start(within=120)
    if is_file:
        workers[1].start(within=120)
    stage.wait_committed_to_the_end(within=180)
    assert workers[1].sigterm() == 0
    for table in TABLES:
        assert stored_versions(entry, table, request) == shop.models[table].all
