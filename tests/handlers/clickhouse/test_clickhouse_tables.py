"""Tables and users as others have made them, and keys that are one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from clickhouse_lab import TYPES, handler, names
from servers.clickhouse_server import ClickHouseServer

from handlers import TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.testing import make_batch
from handlers.versioned.versions import Unfit


def test_a_key_that_changes_within_a_batch_is_a_fault_and_no_other_row_goes(
    clickhouse: ClickHouseServer, database: str
) -> None:
    """A delete that lacks the sorting key's columns would delete the row that has their defaults."""
    rows = [{"id": 0, "name": "zero"}, {"id": 1, "name": "one"}]
    gone = {"before": {"name": "one"}, "op": "delete", "before_is_whole": False}
    batch = make_batch(f"{database}.t", [*rows, gone], key="id", types=TYPES)
    batch.changes = (*batch.changes[:2], msgspec.structs.replace(batch.changes[2], key_columns=("name",)))
    with handler(clickhouse) as it, pytest.raises(Unfit, match=r"by id, .* is name: .* \(rename\)"):
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


def test_what_a_users_profile_would_cut_off_is_read_all_the_same(
    own_clickhouse: Callable[[], ClickHouseServer],
) -> None:
    """Whoever explores a database by hand often has these: what is not read of a row would be lost."""
    server = own_clickhouse()
    rows = [{"id": number, "name": f"n{number}"} for number in range(20)]
    lacking = [
        {"op": "update", "before": None, "after": {"id": row["id"]}, "lacks": {"name"}} for row in rows
    ]
    with handler(server) as it:
        it.handle(make_batch("shop.t", rows, key="id", types=TYPES))
        server.query("SET limit = 5")
        it.handle(make_batch("shop.t", lacking, key="id", types=TYPES, offset=100))
        server.query("SET limit = 0")
        assert names(server, "shop") == {row["id"]: row["name"] for row in rows}
        server.query("SET max_rows_in_set = 5, set_overflow_mode = 'break'")
        with pytest.raises(UnfitPlace, match="SET_SIZE_LIMIT_EXCEEDED"):
            it.handle(make_batch("shop.t", lacking, key="id", types=TYPES, offset=200))
        server.query("SET max_rows_in_set = 0, max_rows_to_group_by = 5, group_by_overflow_mode = 'any'")
        it.handle(make_batch("shop.t", [{"id": 99, "name": "n"}], key="id", topic="other", offset=300))
        with pytest.raises(UnfitPlace, match="TOO_MANY_ROWS"):
            it.handle(make_batch("shop.t", lacking, key="id", types=TYPES, offset=200))
        server.query("SET max_rows_to_group_by = 0")
        assert {name for name in names(server, "shop").values() if name is None} == set()
        server.query("SET max_execution_time = 0.000001, timeout_overflow_mode = 'break'")
        with pytest.raises(TargetUnavailable, match="TIMEOUT_EXCEEDED"):
            it.handle(make_batch("shop.t", lacking, key="id", types=TYPES, offset=200))


def test_updates_that_spell_one_key_in_two_ways_are_of_one_row(
    clickhouse: ClickHouseServer, database: str
) -> None:
    types = {"id": "decimal(10,2)", "a": "int", "b": "int"}

    def update(key: str, told: str, value: int) -> dict[str, Any]:
        lacks = frozenset({"a", "b"}) - {told}
        return {"op": "update", "before": None, "after": {"id": Decimal(key), told: value}, "lacks": lacks}

    with handler(clickhouse) as it:
        it.handle(
            make_batch(f"{database}.t", [{"id": Decimal("1.00"), "a": 1, "b": 1}], key="id", types=types)
        )
        both = [update("1.0", "a", 2), update("1.00", "b", 2), update("1", "a", 3)]
        it.handle(make_batch(f"{database}.t", both, key="id", types=types, offset=5))
    assert clickhouse.rows(f"{database}.t") == [{"id": "1.00", "a": 3, "b": 2}]


@pytest.mark.parametrize(
    "kind", ["Enum8('a' = 1)", "Enum16('a' = 1)", "FixedString(1)", "Int32 MATERIALIZED n"]
)
def test_a_table_whose_key_nothing_is_written_to_waits(
    clickhouse: ClickHouseServer, database: str, kind: str
) -> None:
    own = "n Int32, _version UInt64, _deleted UInt8, _partition LowCardinality(String), _source_time_ms Int64"
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (id {kind}, {own}) "
        "ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY (id)"
    )
    with (
        handler(clickhouse) as it,
        pytest.raises(Unfit, match=r"its key column id is .*another type") as told,
    ):
        it.handle(make_batch(f"{database}.t", [{"id": "a", "n": 1}], key="id"))
    assert told.value.others_go_on
    assert told.value.retry_after


def test_an_update_that_lacks_columns_keeps_columns_of_the_table_alone_whose_types_are_not_written(
    clickhouse: ClickHouseServer, database: str
) -> None:
    own = "_version UInt64, _deleted UInt8, _partition LowCardinality(String), _source_time_ms Int64"
    others = {
        "kind Enum8('a' = 1, 'b' = 2)": "'b'",
        "code LowCardinality(Nullable(FixedString(2)))": "'xy'",
        "ratio Nullable(Float32)": "1.5",
        "missing Nullable(Float32)": "NULL",
        "ip IPv4": "'1.2.3.4'",
        "tags Array(Nullable(String))": "['x',NULL]",
        "many Array(Array(Int16))": f"[[],[{','.join(map(str, range(200)))}]]",
    }
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (id Int32, {', '.join(others)}, a Nullable(String), b String, {own}) "
        "ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY (id)"
    )
    listed = ", ".join(other.split()[0] for other in others)
    clickhouse.query(
        f"INSERT INTO {database}.t (id, {listed}, a, b, _version, _deleted, _partition, _source_time_ms) "
        f"VALUES (1, {', '.join(others.values())}, 'old', 'kept', 1, 0, 'cdc[0]', 0)"
    )
    kept = f"SELECT id, b, {listed} FROM {database}.t FINAL FORMAT TSV"
    before = clickhouse.query(kept)
    update = {"op": "update", "before": None, "after": {"id": 1, "a": "new"}, "lacks": frozenset({"b"})}
    types = {"id": "int", "a": "text", "b": "text"}
    with handler(clickhouse, epoch=1) as it:
        it.handle(make_batch(f"{database}.t", [update], key="id", types=types, topic="cdc", offset=7))
    assert clickhouse.query(kept) == before
    assert clickhouse.query(f"SELECT a FROM {database}.t FINAL FORMAT TSV") == "new\n"


@pytest.mark.parametrize(
    ("ttl", "waits"),
    [
        ("made + INTERVAL 90 DAY", True),
        ("made + INTERVAL 1 DAY TO VOLUME 'default', made + INTERVAL 90 DAY", True),
        ("made + INTERVAL 90 DAY DELETE WHERE _deleted = 0", False),
        ("made + INTERVAL 90 DAY RECOMPRESS CODEC(ZSTD(3))", False),
        ("toDateTime(_source_time_ms / 1000) + INTERVAL 90 DAY", False),
        ("brought + INTERVAL 90 DAY", False),
        ("day + INTERVAL 90 DAY", True),
        ("toDateTime(_source_time_ms / 1000) + INTERVAL 7 DAY DELETE WHERE _deleted = 1", True),
        ("made + INTERVAL 9 DAY, made + INTERVAL 7 DAY DELETE WHERE name = 'x,' AND _deleted = 0", True),
        ("toDateTime(made, 'UTC') + INTERVAL 1 DAY TO VOLUME 'default'", False),
    ],
)
def test_a_deleted_row_does_not_come_back_by_a_ttl(
    clickhouse: ClickHouseServer, database: str, ttl: str, waits: bool
) -> None:
    """A deleted row has the default of `made`: such a TTL removes it, and not its former version."""
    own = "_version UInt64, _deleted UInt8, _partition LowCardinality(String), _source_time_ms Int64"
    clickhouse.query(f"CREATE DATABASE {database}")
    clickhouse.query(
        f"CREATE TABLE {database}.t (id Int32, name String, made DateTime, {own}, "
        "brought DateTime DEFAULT now(), day Date MATERIALIZED toDate(made)) "
        f"ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY (id) TTL {ttl}"
    )
    now = datetime.now(UTC).replace(microsecond=0)
    at = {"source_time_ms": int(now.timestamp() * 1000)}
    told = [{"after": {"id": number, "name": "a", "made": now}, **at} for number in (1, 2)]
    gone = {"op": "delete", "before": {"id": 1}, **at}
    truncate = {"op": "truncate", "sql": None, "before": None}
    types = {**TYPES, "made": "datetime"}
    with handler(clickhouse) as it:
        it.handle(make_batch(f"{database}.t", told, key="id", types=types))
        for left, change in ((2, gone), (0, truncate)):
            batch = make_batch(f"{database}.t", [change], key="id", types=types, offset=9 - left)
            if waits:
                with pytest.raises(Unfit, match=r"TTL by (made|day|_deleted), .* WHERE _deleted = 0"):
                    it.handle(batch)
            else:
                it.handle(batch)
                clickhouse.query(f"OPTIMIZE TABLE {database}.t")
                assert list(names(clickhouse, database)) == [left] * bool(left)
