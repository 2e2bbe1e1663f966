"""Target databases for the `sql` handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddl_lab import DDLLab
from sql_lab import SqlLab

MakeLab = Callable[[str], SqlLab]
MakeDDLLab = Callable[[str], DDLLab]


@pytest.fixture
def make_sql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLab]:
    """`make_sql("postgres")`, `("mariadb")`, `("sqlite")` or `("duckdb")`: an empty database."""
    labs = []

    def make(kind: str) -> SqlLab:
        labs.append(SqlLab(_empty_database(request, kind, tmp_path), tmp_path))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "duckdb"])
def sql(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    return make_sql(request.param)


@pytest.fixture(params=["postgres", "mariadb"])
def server(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    """Not SQLite, which takes any value into any column and has one writer at a time."""
    return make_sql(request.param)


def _empty_database(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """Its URL."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'target.db'}"
    if kind == "duckdb":
        # The name of a source's database: so a file may be called.
        return f"duckdb+binlane:///{folder / 'shop.duckdb'}"
    url: str = request.getfixturevalue(kind).new_database("target")
    return url


# ---- DDL


@pytest.fixture
def make_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeDDLLab]:
    """`make_lab("postgres")`, `("mariadb")`, `("sqlite")` or `("duckdb")`: a database without tables, that
    follows DDL."""
    labs = []

    def make(kind: str) -> DDLLab:
        labs.append(DDLLab(_empty_database(request, kind, tmp_path)))
        labs[-1].drop_all()
        return labs[-1]

    yield make
    for lab in labs:
        lab.engine.dispose()


@pytest.fixture(params=["sqlite", "postgres", "mariadb", "duckdb"])
def lab(make_lab: MakeDDLLab, request: pytest.FixtureRequest) -> DDLLab:
    return make_lab(request.param)


@pytest.fixture(params=["postgres", "mariadb"])
def server_lab(make_lab: MakeDDLLab, request: pytest.FixtureRequest) -> DDLLab:
    """Not SQLite, which takes any text for a number."""
    return make_lab(request.param)
