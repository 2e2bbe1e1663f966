"""One Spark for the tests of what is brought into Delta tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delta_lab import MakeTable, Table

from handlers.spark import session
from handlers.spark.section import SparkSection

SECTION = {
    "driver_memory": "1g",
    "ui": False,
    "conf": {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
}


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[session.SharedSpark]:
    folder = tmp_path_factory.mktemp("spark")
    yield session.acquire(SparkSection.model_validate({**SECTION, "warehouse": str(folder)}), folder, "test")
    session.release()


@pytest.fixture(scope="package")
def spark(shared: session.SharedSpark) -> Any:
    return shared.fresh()


@pytest.fixture
def make_table(spark: Any, tmp_path: Path) -> MakeTable:
    """Tables in a folder of the test's own."""
    numbers = itertools.count()
    return lambda **options: Table(spark, tmp_path / f"t{next(numbers)}", **options)
