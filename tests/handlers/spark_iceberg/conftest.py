"""Iceberg tables of a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from iceberg_lab import IcebergLake

MakeLake = Callable[..., IcebergLake]


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[MakeLake]:
    """make_lake(mode="history"): several have the same catalog and the same logs."""
    made: list[IcebergLake] = []

    def make(**options: object) -> IcebergLake:
        made.append(IcebergLake(tmp_path, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for lake in made:
        lake.close()


@pytest.fixture
def lake(make_lake: MakeLake) -> IcebergLake:
    return make_lake()
