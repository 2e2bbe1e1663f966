"""One Spark for the tests of the handler's engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_lake import Lake, MakeLake
from spark_sessions import SparkKeeper

from handlers.spark.engine.merge_scheduler import Merger
from handlers.spark.runtime.session import SharedSpark


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper) -> SharedSpark:
    return spark_keeper.get()


@pytest.fixture
def make_lake(spark: SharedSpark, tmp_path: Path) -> Iterator[MakeLake]:
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


@pytest.fixture
def told_to_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are merged when a test says so."""
    monkeypatch.setattr(Merger, "offer", lambda *_: None)
