"""One Spark for these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_ddl_lab import DDLLake, MakeLake
from spark_sessions import SparkKeeper

from handlers.spark.runtime.session import SharedSpark


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper) -> SharedSpark:
    return spark_keeper.get()


@pytest.fixture(params=["auto", pytest.param("spark", marks=pytest.mark.soak)])
def make_lake(spark: SharedSpark, tmp_path: Path, request: pytest.FixtureRequest) -> MakeLake:
    """`make_lake(mode="history")`: an empty folder."""

    def make(**options: Any) -> DDLLake:
        return DDLLake(spark, tmp_path, engine=request.param, **options)

    return make


@pytest.fixture
def lake(make_lake: MakeLake) -> DDLLake:
    """Of replicas."""
    return make_lake()
