"""A shop whose rows change all the time, and Spark tables that must hold each change once: written by a
worker, read by somebody else."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

from delta_reading import read_delta
from integration.process import WorkerProcess, eventually
from integration.source import Source
from integration.stage import Stage

__all__ = [
    "PATIENCE",
    "Shop",
    "Told",
    "check_tables",
    "failed_merges",
    "merges",
    "spark_tables",
    "spark_worker",
    "wait_merged",
]

PATIENCE = 400.0
"""Seconds for anything that Spark does: a merge takes some of CPU, and the first ones ten times as many."""
TABLES = ("orders", "items")
_TYPES = {"id": "bigint", "name": "varchar(64)", "seq": "bigint"}


class Told(NamedTuple):
    """One change, as a changelog tells it."""

    op: str
    id: int | None
    seq: int | None
    """Numbers the changes of a table; None: a statement."""


class Shop:
    """Two tables; knows their rows, and all their changes in order. Any thread may change them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._random = random.Random(5)
        self._lock = threading.Lock()  # guards all below, and that records are sent in their order
        self._columns: dict[str, dict[str, str]] = {table: dict(_TYPES) for table in TABLES}
        self.rows: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in TABLES}
        self.changes: dict[str, list[Told]] = {table: [] for table in TABLES}

    @property
    def count(self) -> int:
        return sum(map(len, self.changes.values()))

    def change(self, records: int = 1) -> None:
        """So many records for each table, each of one to nine rows."""
        with self._lock:
            for _ in range(records):
                for table in TABLES:
                    self._change(table)
            self._source.producer.poll(0)

    def add_column(self, table: str, name: str, default: str) -> None:
        """By a statement, which gives the rows that are there the default."""
        with self._lock:
            for row in self.rows[table].values():
                row[name] = default
            self._columns[table][name] = "varchar(20)"
            self.changes[table].append(Told("ddl", None, None))
            sql = f"ALTER TABLE `{table}` ADD COLUMN `{name}` varchar(20) DEFAULT '{default}'"
            self._send(table, type="ALTER", isDdl=True, sql=sql, data=None, old=None, mysqlType=None)

    @contextmanager
    def open(self, every: float = 0.1) -> Iterator[None]:
        """Meanwhile a record for each table every so many seconds; afterwards Kafka has them all."""
        with self._source.going_on(self.change, every):
            yield

    def _change(self, table: str) -> None:
        rows, changes, pick = self.rows[table], self.changes[table], self._random
        kind = pick.choices(("INSERT", "UPDATE", "DELETE"), (5, 4, 1))[0] if len(rows) > 20 else "INSERT"
        count = pick.randrange(1, 10)
        if kind == "INSERT":
            first = max(rows, default=0) + 1
            ids = list(range(first, first + count))
        else:
            ids = pick.sample(sorted(rows), count)
        data, old = [], []
        for one in ids:
            seq = len(changes)
            if kind == "DELETE":
                row = rows.pop(one)
                changes.append(Told("delete", one, row["seq"]))
            else:
                before = rows.get(one)
                row = dict.fromkeys(self._columns[table]) | (before or {}) | {"id": one, "seq": seq}
                row["name"] = f"{table} {pick.randrange(1000)}"
                rows[one] = row
                changes.append(Told(kind.lower(), one, seq))
                if before is not None:
                    old.append({name: before[name] for name in before if before[name] != row[name]})
            data.append(row)
        self._send(
            table,
            type=kind,
            data=[_texts(row) for row in data],
            old=[_texts(row) for row in old] or None,
            mysqlType=self._columns[table],
        )

    def _send(self, table: str, **fields: Any) -> None:
        message = {
            "database": "shop",
            "table": table,
            "es": 1_795_218_962_000 + self.count,
            "ts": 1_795_218_963_000,
            "isDdl": False,
            "sql": "",
            "pkNames": ["id"],
        }
        self._source.send(json.dumps(message | fields).encode(), key=table.encode())


def _texts(row: Mapping[str, Any]) -> dict[str, str | None]:
    """As Canal writes values."""
    return {name: None if value is None else str(value) for name, value in row.items()}


# ---- the worker


def _handlers(**merge: str) -> list[dict[str, Any]]:
    """Each table's replica, and all its changes."""
    options = {"max_age": "1s", "at_close": "60s", **merge}
    return [
        {"type": "spark", "name": name, "mode": mode, "path": f"lake/{name}/{{table}}", "merge": options}
        for name, mode in (("replicas", "replica"), ("changes", "changelog"))
    ]


def spark_worker(stage: Stage, spark: Mapping[str, object], **merge: str) -> WorkerProcess:
    """A worker of the stage with both handlers for all tables, not yet started."""
    table = {
        "match": "*",
        "batch": {"max_records": 500, "max_wait": "500ms"},
        "handlers": _handlers(**merge),
        "retry": {"max_attempts": None, "initial_delay": "100ms", "max_delay": "2s"},
    }
    return stage.worker(tables=[table], spark={**spark}, shutdown_timeout="90s")


def spark_tables(worker: WorkerProcess) -> dict[str, dict[str, Any]]:
    """{"replicas shop.orders": what the worker's status tells of that Spark table}."""
    told = worker.status()["handlers"]
    return {f"{one['handler']} {each['table']}": each for one in told for each in one.get("tables", [])}


def wait_merged(stage: Stage, worker: WorkerProcess, within: float = PATIENCE) -> None:
    """Until all that was sent is in the Spark tables."""
    stage.wait_committed_to_the_end(within)
    eventually(
        lambda: worker.alive() and not any(each["waiting_rows"] for each in spark_tables(worker).values()),
        within=within,
        what="nothing waits to be merged",
        every=0.2,
    )


def merges(worker: WorkerProcess) -> float:
    """How many commits it has made."""
    return worker.metric("binlane_spark_merges_total", result="success")


def failed_merges(worker: WorkerProcess) -> list[dict[str, Any]]:
    """What its log tells of them."""
    return worker.logged("spark_merge_failed")


def check_tables(worker: WorkerProcess, shop: Shop) -> None:
    """The replicas are the source's tables; the changelogs hold each change once, in its order."""
    lake = worker.folder / "lake"
    for table in TABLES:
        rows = sorted(read_delta(lake / "replicas" / table), key=itemgetter("id"))
        expected = sorted(shop.rows[table].values(), key=itemgetter("id"))
        assert rows == expected, _first_difference(rows, expected)
        told = read_delta(lake / "changes" / table)
        told.sort(key=itemgetter("_partition", "_offset", "_index"))
        changes = [Told(row["_op"], row["id"], row["seq"]) for row in told]
        assert changes == shop.changes[table], _first_difference(changes, shop.changes[table])


def _first_difference(found: list[Any], expected: list[Any]) -> str:
    pairs = zip(found, expected, strict=False)
    differing = next((pair for pair in pairs if pair[0] != pair[1]), None)
    return f"{len(found)} found, {len(expected)} expected; the first that differ: {differing}"
