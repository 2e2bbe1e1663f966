"""One Spark for the tests of what reads tables and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from verify_lab import Stage
from view_lab import HandMade, shared_spark

from handlers.spark import session
from handlers.spark.added import Mode


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    shared = shared_spark(tmp_path_factory.mktemp("spark"))
    yield shared.session
    session.release()


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Callable[..., HandMade]:
    """Tables in a lake of the test's own."""

    def make(table: str = "shop/orders", mode: Mode = "replica", prefix: str = "_") -> HandMade:
        return HandMade(spark, tmp_path / "lake", table=table, mode=mode, prefix=prefix)

    return make


@pytest.fixture
def stage(tmp_path: Path, spark: Any) -> Stage:
    return Stage(tmp_path, spark)
