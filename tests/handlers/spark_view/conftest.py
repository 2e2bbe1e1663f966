"""One Spark for the tests of what reads tables and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from spark_sessions import SparkKeeper
from verify_lab import Stage
from view_lab import HandMade

from handlers.spark.rows.shape import Mode
from worker.verifying.spark_lakes import Lake


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper) -> Any:
    return spark_keeper.get().session


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Callable[..., HandMade]:
    """Tables in a lake of the test's own."""

    def make(table: str = "shop/orders", mode: Mode = "replica", prefix: str = "_") -> HandMade:
        return HandMade(spark, tmp_path / "lake", table=table, mode=mode, prefix=prefix)

    return make


@pytest.fixture
def stage(tmp_path: Path, spark: Any) -> Stage:
    return Stage(tmp_path, spark)


@pytest.fixture(params=["files", pytest.param("spark", marks=pytest.mark.soak)])
def each_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas are read from their files, or by Spark, as where these cannot be read."""
    if request.param == "spark":
        monkeypatch.setattr(Lake, "has_readable_files", False)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sa.Connection]:
    """An empty SQLite database whose tables are `shop.*`."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price NUMERIC(10, 2))"
        )
        yield connection
    engine.dispose()
