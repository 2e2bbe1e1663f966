"""Iceberg's own engine reads binlane's tables, and writes them between binlane's commits.

Iceberg has no jar for Spark 4.2 yet, so this runs in `make matrix`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from iceberg_spark import COORDINATES, VERSION, IcebergSpark

from handlers.spark.runtime.jars import resolve

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(VERSION not in ("4.0", "4.1"), reason="Iceberg has no jar for this Spark"),
]

_TYPES = {
    "id": "int",
    "f": "float",
    "d": "double",
    "dec": "decimal(38,10)",
    "ub": "bigint unsigned",
    "b": "varbinary(9)",
    "ts": "datetime(6)",
    "tz": "timestamp(6)",
    "da": "date",
    "ti": "time(6)",
    "js": "json",
    "s": "set('a','b')",
    "bo": "boolean",
    "y": "year",
    "a b": "varchar(20)",
}
_ROW = {
    "id": 1,
    "f": 0.5,
    "d": 1e308,
    "dec": Decimal("1234567890123456789012345678.0123456789"),
    "ub": 2**64 - 1,
    "b": b"\x00\xff",
    "ts": datetime(1969, 12, 31, 23, 59, 59, 999999),
    "tz": datetime(1, 1, 1, tzinfo=UTC),
    "da": date(9999, 12, 31),
    "ti": "-838:59:59.000000",
    "js": '{"a": [1, null]}',
    "s": ("a", "b"),
    "bo": True,
    "y": 1901,
    "a b": "\U0001f600",
}
_ROWS: list[dict[str, Any]] = [
    _ROW,
    {**dict.fromkeys(_ROW), "id": 2},
    {**_ROW, "id": 3, "f": float("nan"), "d": float("-inf"), "dec": Decimal("-1E-10"), "s": (), "a b": ""},
    {**_ROW, "id": 4, "f": -0.0, "d": -0.0, "ts": datetime(2026, 2, 28, 23, 30), "da": date(1, 1, 1)},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[IcebergSpark]:
    jars = resolve(COORDINATES, kind="iceberg-spark")
    found = IcebergSpark(folder / "catalog.db", folder / "lake/iceberg", jars)
    yield found
    found.stop()


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., IcebergLake]]:
    made: list[IcebergLake] = []

    def make_one(**options: Any) -> IcebergLake:
        made.append(IcebergLake(folder, **options))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


def _same(spark: IcebergSpark, lake: IcebergLake, name: str) -> list[dict[str, Any]]:
    """Return the table's rows, which are the same in Spark."""
    rows = lake.rows(name)
    assert list(map(_shown, spark.sql(f"SELECT * FROM default.{name}"))) == list(map(_shown, rows))
    return rows


def _shown(row: dict[str, Any]) -> str:
    return repr({name: _plain(value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
@pytest.mark.parametrize(
    "partitions", [[], ["hours(ts)", "bucket(3, id)", "days(tz)", "truncate(2, a b)", "da", "dec"]]
)
def test_spark_reads_the_same_rows(
    spark: IcebergSpark, make: Callable[..., IcebergLake], mode: str, partitions: list[str]
) -> None:
    space = f"{mode}{len(partitions)}"
    name = f"{space}.orders"
    lake = make(mode=mode, table=f"{space}.{{table}}", partition_by=partitions)
    lake.take(*(change(n, row, _TYPES) for n, row in enumerate(_ROWS)))
    lake.merge()
    assert len(_same(spark, lake, name)) == 4
    new = [{**row, "y": 2000, "ts": datetime(1900, 1, 1)} for row in _ROWS]
    lake.take(*(change(10 + n, row, _TYPES, op="update", before=_ROWS[n]) for n, row in enumerate(new)))
    lake.merge()
    _same(spark, lake, name)
    if mode != "changelog":
        for offset, sql in enumerate(
            (
                "ADD COLUMN n int NOT NULL DEFAULT 7, RENAME COLUMN bo TO flag",
                "DROP COLUMN js, MODIFY f double",
                "ADD COLUMN js int",
            )[: 2 if mode == "history" else 3],
            20,
        ):
            lake.take(change(offset, None, None, op="ddl", sql=f"ALTER TABLE orders {sql}"))
    types = {"flag" if name == "bo" else name: kind for name, kind in _TYPES.items() if name != "js"}
    types = types | {"n": "int", "f": "double"} if mode != "changelog" else _TYPES
    before = {"id": 2}
    lake.take(
        change(30, {**dict.fromkeys(types), "id": 5, "f": 0.1}, types),
        change(31, None, types, op="delete", before={**dict.fromkeys(types), **before}),
    )
    lake.merge()
    rows = [row for row in _same(spark, lake, name) if row.get("cdc_current", True)]
    assert len(rows) == (10 if mode == "changelog" else 4)
    low = "WHERE ts < TIMESTAMP_NTZ'1950-01-01 00:00:00' AND id > 0"  # Spark skips files by their statistics
    assert spark.sql(f"SELECT count(*) AS n FROM default.{name} {low}") == [
        {"n": sum(row["ts"] is not None and row["ts"].year < 1950 for row in lake.rows(name))}
    ]


def test_binlane_goes_on_after_sparks_writes(spark: IcebergSpark, make: Callable[..., IcebergLake]) -> None:
    """Deletes by position, other partitions, an order, compacted files and manifests, expired snapshots."""
    lake = make(table="both.{table}")
    types = {"id": "int", "name": "varchar(20)"}
    rows, offsets = dict[int, dict[str, Any]](), iter(range(10_000))

    def put(*numbers: int, name: str) -> None:
        changes = []
        for number in numbers:
            before = rows.get(number)
            row = {"id": number, "name": f"{name}{number}"}
            own = {} if before is None or "own" not in before else {"own": before["own"]}
            op = "insert" if before is None else "update"
            changes.append(change(next(offsets), row, types, op=op, before=before and {**row}))
            rows[number] = {**row, **own}
        lake.take(*changes)
        lake.merge()

    def same() -> None:
        wanted = [{**row, "own": row.get("own")} for row in rows.values()]
        assert _same(spark, lake, "both.orders") == sorted(wanted, key=repr)

    put(*range(20), name="a")
    spark.sql("ALTER TABLE default.both.orders ADD COLUMN own string")
    more = "'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read'"
    spark.sql(f"ALTER TABLE default.both.orders SET TBLPROPERTIES ({more})")
    spark.sql("UPDATE default.both.orders SET own = concat('o', id) WHERE id % 3 = 0")
    for number in range(0, 20, 3):
        rows[number]["own"] = f"o{number}"
    same()
    assert spark.sql("SELECT count(*) AS n FROM default.both.orders.delete_files") == [{"n": 1}]
    put(0, 1, 30, name="b")
    same()
    spark.sql("DELETE FROM default.both.orders WHERE id IN (3, 4)")
    del rows[3], rows[4]
    put(3, 5, name="c")
    same()
    for number, statement in enumerate(
        (
            "ALTER TABLE default.both.orders ADD PARTITION FIELD bucket(4, id)",
            "ALTER TABLE default.both.orders WRITE ORDERED BY name",
            "CALL default.system.rewrite_data_files(table => 'both.orders', "
            "options => map('rewrite-all', 'true'))",
            "ALTER TABLE default.both.orders ADD PARTITION FIELD truncate(1, name)",
            "CALL default.system.rewrite_manifests('both.orders')",
            "UPDATE default.both.orders SET own = 'x' WHERE id = 7",
            "ALTER TABLE default.both.orders DROP PARTITION FIELD bucket(4, id)",
            "CALL default.system.expire_snapshots(table => 'both.orders', retain_last => 1, "
            "older_than => TIMESTAMP '2100-01-01 00:00:00')",
            "CALL default.system.rewrite_position_delete_files(table => 'both.orders')",
            "ALTER TABLE default.both.orders ALTER COLUMN id TYPE bigint",
            "ALTER TABLE default.both.orders CREATE TAG kept",
        )
    ):
        spark.sql(statement)
        if statement.startswith("UPDATE"):
            rows[7]["own"] = "x"
        if number % 4 == 3:
            lake.crash()
        put(number, 5, 7, 40 + number, name=f"n{number}")
        same()
    with lake.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
        sink.merges.optimize(2)
        sink.merges.vacuum(0.001)
    same()
    assert len(spark.sql("SELECT * FROM default.both.orders.snapshots")) == 2  # one is the tag's
    assert spark.sql("SELECT * FROM default.both.orders VERSION AS OF 'kept'")
