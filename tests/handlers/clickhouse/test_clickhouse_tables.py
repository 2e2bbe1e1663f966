"""Rows that a table's sorting key or its partitions are in the way of."""

from __future__ import annotations

import msgspec
import pytest
from clickhouse_lab import TYPES, handler, names
from servers.clickhouse_server import ClickHouseServer

from handlers.testing import make_batch
from handlers.versioned.memory import Unfit


def test_a_key_that_changes_within_a_batch_is_a_fault_and_no_other_row_goes(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """A delete that lacks the sorting key's columns would delete the row that has their defaults."""
    rows = [{"id": 0, "name": "zero"}, {"id": 1, "name": "one"}]
    gone = {"before": {"name": "one"}, "op": "delete", "before_is_whole": False}
    batch = make_batch(f"{database}.t", [*rows, gone], key="id", types=TYPES)
    batch.changes = (*batch.changes[:2], msgspec.structs.replace(batch.changes[2], key_columns=("name",)))
    with handler(clickhouse) as it, pytest.raises(Unfit, match="by id, and the source's primary key is name"):
        it.handle(batch)
    assert names(clickhouse, database) == {0: "zero", 1: "one"}


def test_a_batch_has_rows_of_more_partitions_than_an_insert_has_by_default(
    clickhouse: ClickHouseServer, database: str
) -> None:
    own = "_version UInt64, _deleted UInt8, _partition LowCardinality(String), _source_time_ms Int64"
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (id Int32, name Nullable(String), {own}) "
        "ENGINE = ReplacingMergeTree(_version, _deleted) PARTITION BY id ORDER BY (id)"
    )
    rows = [{"id": number, "name": "a"} for number in range(101)]
    truncate = {"op": "truncate", "sql": None, "before": None}
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.t", rows, key="id", types=TYPES))
        assert len(names(clickhouse, database)) == 101
        it.handle(make_batch(f"{database}.t", [truncate], offset=200))
    assert names(clickhouse, database) == {}
