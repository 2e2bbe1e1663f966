"""One Spark for the tests of the handler's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_lake import QUICK, Lake

from handlers.spark import session
from handlers.spark.section import SparkSection

MakeLake = Callable[..., Lake]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[session.SharedSpark]:
    folder = tmp_path_factory.mktemp("spark")
    section = SparkSection.model_validate({**QUICK, "ui": False, "warehouse": str(folder / "catalog")})
    yield session.acquire(section, folder, "test")
    session.release()


@pytest.fixture
def make_lake(spark: session.SharedSpark, tmp_path: Path) -> Iterator[MakeLake]:
    """`make_lake(mode="history")`: a handler in a folder of the test's own."""
    made: list[Lake] = []

    def make(**options: Any) -> Lake:
        made.append(Lake(tmp_path, **options))
        return made[-1]

    yield make
    for lake in made:
        lake.close()


@pytest.fixture
def lake(make_lake: MakeLake) -> Lake:
    """Of replicas."""
    return make_lake()
