"""One Spark for these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_ddl_lab import DDLLake

from handlers.spark.section import SparkSection
from handlers.spark.session import SharedSpark, acquire, release

MakeLake = Callable[..., DDLLake]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    folder = tmp_path_factory.mktemp("spark_ddl")
    section = SparkSection.model_validate(
        {
            "driver_memory": "1g",
            "conf": {
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                # A few rows are computed before their code would be compiled.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
            },
        }
    )
    yield acquire(section, folder, "ddl")
    release()


@pytest.fixture
def make_lake(spark: SharedSpark, tmp_path: Path) -> MakeLake:
    """`make_lake(mode="history")`: an empty folder."""

    def make(**options: Any) -> DDLLake:
        return DDLLake(spark, tmp_path, **options)

    return make


@pytest.fixture
def lake(make_lake: MakeLake) -> DDLLake:
    """Of replicas."""
    return make_lake()
