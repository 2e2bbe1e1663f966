"""A DataFrame of a table with what waits, while the worker goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_lake import TYPES, Lake, change

from handlers.spark.read.current import current


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def test_a_frame_does_not_need_segments_that_were_merged_before_it_was_made(lake: Lake) -> None:
    lake.take(*[change(number, {"id": number, "name": "first"}, TYPES) for number in range(3)])
    lake.merge()
    old = {"id": 1, "name": "first"}
    lake.take(change(3, {"id": 1, "name": "second"}, TYPES, op="update", before=old))
    frame = current(SparkSession.builder.getOrCreate(), str(lake.folder / "lake/shop/orders"))
    # As the keeper does, some time after the merge: the query may be planned before and read after it.
    (lake.folder / f"lake/_binlane/shop/orders/pending/{1:020d}.parquet").unlink()
    found = {row["id"]: row["name"] for row in frame.toArrow().to_pylist()}
    assert found == {0: "first", 1: "second", 2: "first"}
