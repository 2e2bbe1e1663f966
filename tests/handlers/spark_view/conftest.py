"""One Spark for the tests of what reads tables and logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_sessions import SparkKeeper
from verify_lab import Stage
from view_lab import HandMade

from handlers.spark.rows.added import Mode


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
