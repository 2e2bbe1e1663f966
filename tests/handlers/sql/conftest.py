"""Target databases for the `sql` handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sql_lab import SqlLab

MakeLab = Callable[[str], SqlLab]


@pytest.fixture
def make_sql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLab]:
    """`make_sql("postgres")`, `("mariadb")` or `("sqlite")`: an empty database."""
    labs = []

    def make(kind: str) -> SqlLab:
        if kind == "sqlite":
            url = f"sqlite:///{tmp_path / 'target.db'}"
        else:
            url = request.getfixturevalue(kind).new_database("rows")
        labs.append(SqlLab(url, tmp_path))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def sql(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    return make_sql(request.param)


@pytest.fixture(params=["postgres", "mariadb"])
def server(make_sql: MakeLab, request: pytest.FixtureRequest) -> SqlLab:
    """Not SQLite, which takes any value into any column and has one writer at a time."""
    return make_sql(request.param)
