"""`target`: each kind, empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from target_kinds import (
    Target,
    clickhouse_target,
    files_target,
    redis_target,
    s3_target,
    search_target,
    sql_target,
)

FILES = ("sqlite", "duckdb", "parquet")
"""Without a server."""
KINDS = (*FILES, "postgres", "mariadb", "redis", "opensearch", "clickhouse", "parquet_s3")
TAKE_ANY_VALUE = {"sqlite", "redis", "opensearch"}
"""Others refuse what does not fit the column's type."""


def make(  # noqa: PLR0911 - one for each kind
    kind: str, request: pytest.FixtureRequest, folder: Path, *, own: bool = False
) -> Target:
    """`own`: with a server that the test may stop."""
    match kind:
        case "sqlite":
            return sql_target(f"sqlite:///{folder / 'target.db'}", folder)
        case "duckdb":
            return sql_target(f"duckdb+binlane:///{folder / 'shop.duckdb'}", folder)
        case "parquet":
            return files_target(folder)
        case "parquet_s3":
            server = request.getfixturevalue("s3")
            monkeypatch = request.getfixturevalue("monkeypatch")
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            return s3_target(server)
        case "redis":
            redis_server = request.getfixturevalue("own_redis")() if own else None
            shared = redis_server or request.getfixturevalue("redis_server")
            return redis_target(shared.new_database("target"), redis_server)
        case "opensearch":
            search_node = request.getfixturevalue("own_search_node")() if own else None
            return search_target(search_node or request.getfixturevalue("search_node"), search_node)
        case "clickhouse":
            clickhouse = request.getfixturevalue("own_clickhouse")() if own else None
            return clickhouse_target(clickhouse or request.getfixturevalue("clickhouse"), clickhouse)
        case "mariadb":
            mariadb = request.getfixturevalue("own_mariadb")() if own else None
            shared = mariadb or request.getfixturevalue("mariadb")
            url = shared.new_database("target")
            names = {"schema": sa.make_url(url).database, "table": "{database}_{table}"}
            return sql_target(url, folder, mariadb, **names)
    postgres = request.getfixturevalue("own_postgres")() if own else None
    shared = postgres or request.getfixturevalue("postgres")
    return sql_target(shared.new_database("target"), folder, postgres)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return make(request.param, request, tmp_path)


@pytest.fixture(params=[kind for kind in KINDS if kind not in TAKE_ANY_VALUE])
def target_that_refuses(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return make(request.param, request, tmp_path)


# An OpenSearch that starts takes as long as all the others; of its answers while it is away: elasticsearch/.
@pytest.fixture(
    params=(
        *("postgres", "redis", "clickhouse", "parquet_s3"),
        pytest.param("opensearch", marks=pytest.mark.soak),
    )
)
def target_with_server(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return make(request.param, request, tmp_path, own=True)
