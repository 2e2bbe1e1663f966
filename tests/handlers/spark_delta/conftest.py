"""One Spark for the tests of what is brought into Delta tables."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from delta_lab import MakeTable, Table
from spark_sessions import SparkKeeper

from handlers.spark.runtime.session import SharedSpark


@pytest.fixture(scope="module")
def shared(spark_keeper: SparkKeeper) -> SharedSpark:
    return spark_keeper.get()


@pytest.fixture(scope="module")
def spark(shared: SharedSpark) -> Any:
    return shared.fresh()


@pytest.fixture
def make_table(spark: Any, tmp_path: Path) -> MakeTable:
    """Tables in a folder of the test's own."""
    numbers = itertools.count()
    return lambda **options: Table(spark, tmp_path / f"t{next(numbers)}", **options)
