"""Targets by their names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .appended import files_target, kafka_target, parquet_target
from .databases import sql_target
from .interface import Target
from .keyed import redis_target
from .lake import iceberg_target, lake_target
from .versioned import clickhouse_target, elasticsearch_target

Servers = Callable[[str], Any]
"""Of a kind, the running server: the name of a fixture in tests/conftest.py."""

_REGION_KEY = "{database}:{table}:{region}:{key}"

TARGETS: dict[str, Callable[[Servers, Path], AbstractContextManager[Target]]] = {
    "sqlite": lambda _, folder: sql_target(f"sqlite:///{folder / 'target.db'}", folder),
    "sqlite-own": lambda _, folder: sql_target(f"sqlite:///{folder / 'own.db'}", folder, owns=True),
    "duckdb": lambda _, folder: sql_target(f"duckdb+binlane:///{folder / 'target.duckdb'}", folder),
    "redis": lambda servers, _: redis_target(servers("redis_server").new_database("model")),
    "redis-json": lambda servers, _: redis_target(
        servers("redis_server").new_database("model-json"), value="json"
    ),
    "redis-region": lambda servers, _: redis_target(
        servers("redis_server").new_database("model-region"), key=_REGION_KEY
    ),
    "postgres": lambda servers, folder: sql_target(servers("postgres").new_database("model"), folder),
    "postgres-own": lambda servers, folder: sql_target(
        servers("postgres").new_database("own"), folder, owns=True
    ),
    "mariadb": lambda servers, folder: sql_target(servers("mariadb").new_database("model"), folder),
    "mariadb-own": lambda servers, folder: sql_target(
        servers("mariadb").new_database("model"), folder, owns=True
    ),
    "clickhouse": lambda servers, _: clickhouse_target(servers("clickhouse")),
    "elasticsearch": lambda servers, _: elasticsearch_target(servers("search_node")),
    "files": lambda _, folder: files_target(folder),
    "parquet": lambda _, folder: parquet_target(folder),
    "kafka": lambda servers, _: kafka_target(servers("broker"), value="change"),
    "kafka-after": lambda servers, _: kafka_target(servers("broker"), value="after"),
    "spark": lambda servers, folder: lake_target(servers("spark_keeper"), folder, "replica"),
    "spark-small": lambda servers, folder: lake_target(
        servers("spark_keeper"), folder, "replica", without_spark=True
    ),
    "spark-history": lambda servers, folder: lake_target(servers("spark_keeper"), folder, "history"),
    "spark-changelog": lambda servers, folder: lake_target(
        servers("spark_keeper"), folder, "changelog", without_spark=True
    ),
    "iceberg": lambda _, folder: iceberg_target(folder, "replica"),
    "iceberg-history": lambda servers, folder: iceberg_target(
        folder, "history", servers("postgres").new_database("iceberg")
    ),
    "iceberg-changelog": lambda _, folder: iceberg_target(folder, "changelog"),
}


def opened_target(name: str, servers: Servers, folder: Path) -> AbstractContextManager[Target]:
    return TARGETS[name](servers, folder)
