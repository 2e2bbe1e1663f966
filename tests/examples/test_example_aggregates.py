"""The function of the example of a pipeline into Spark, alone."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from delta_reading import read_delta
from examples.example_runs import EXAMPLES
from spark_sessions import SparkKeeper

from handlers import Batch
from handlers.loading.registry import load_function


def test_a_payment_that_comes_again_is_counted_once(spark_keeper: SparkKeeper) -> None:
    spark = spark_keeper.get().session
    revenue = load_function("aggregates:revenue", EXAMPLES / "spark", ("frame", "batch"))

    for offsets in (range(3), range(5)):  # as a restart may cut them
        changes = ", ".join(
            f"('update', timestamp_millis({1_772_438_400_000 + offset}), 'payments', 0, {offset}, 0, "
            f"struct('open' AS state), 'settled', 1.25)"
            for offset in offsets
        )
        columns = "_op, _source_time, _topic, _partition, _offset, _index, _before, state, amount"
        frame = spark.sql(f"SELECT * FROM VALUES {changes} AS changes({columns})")
        revenue(frame, Batch("billing.payments", [], database="billing", name="payments"))

    [row] = read_delta(Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path) / "revenue")
    minute = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
    assert (row["minute"], row["payments"], row["revenue"]) == (minute, 5, Decimal("6.25"))
