"""`binlane verify` on real databases: what is equal is found equal, and each difference is told."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from verify_lab import Stage
from view_lab import shape

ITEMS = shape(id=pa.int64(), name=pa.string(), price=pa.decimal128(10, 2))
ID = "00000000-0000-0000-0000-0000000000aa"
ODD_TEXTS = ["Z", "a", "a b", "é", "字", "😀"]


@pytest.fixture
def stage(tmp_path: Path, spark: Any) -> Stage:
    return Stage(tmp_path, spark)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sa.Connection]:
    """An empty SQLite database whose tables are `shop.*`."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price NUMERIC(10, 2))"
        )
        yield connection
    engine.dispose()


def url(database: sa.Connection | sa.Engine) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def item(id: int, name: str | None = "n", price: str = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "price": Decimal(price), **more}


def insert(connection: sa.Connection, *rows: str) -> None:
    connection.exec_driver_sql(f"INSERT INTO items VALUES {', '.join(rows)}")


def test_each_difference_is_told_with_both_values(stage: Stage, shop: sa.Connection) -> None:
    insert(shop, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 2.25)", "(4, 'n', 1.5)")
    stage.replicate("items", ITEMS, item(1), item(3, "x", "2.20"), item(4), item(5, "y" * 100))
    code, told = stage.verify(url(shop), "--chunk", "2")
    [table] = told["tables"]
    assert (code, told["equal"]) == (1, False)
    counted = ("state", "source_rows", "replica_rows", "ranges", "different_ranges", "different_rows")
    assert [table[name] for name in counted] == ["different", 4, 4, 3, 3, 3]
    assert table["differences"] == [
        {
            "row": "missing",
            "key": {"id": "2"},
            "columns": {"name": {"source": "here"}, "price": {"source": "1.5"}},
        },
        {
            "row": "different",
            "key": {"id": "3"},
            "columns": {
                "name": {"source": "NULL", "replica": "x"},
                "price": {"source": "2.25", "replica": "2.2"},
            },
        },
        {
            "row": "surplus",
            "key": {"id": "5"},
            "columns": {"name": {"replica": f"{'y' * 80}... (100 characters)"}, "price": {"replica": "1.5"}},
        },
    ]
    code, out, _ = stage.run("verify", "--against", url(shop), "--settle", "0s", "--limit", "1")
    assert code == 1
    assert "shop.items id=2: not in the replica: name is here; price is 1.5\n" in out
    assert "shop.items: 2 more rows differ\n" in out


def test_what_is_on_its_way_is_waited_for(stage: Stage, shop: sa.Connection) -> None:
    """A row that never rests is equal, too, once the replica shows a state that the source was seen in."""
    insert(shop, "(1, 'n', 1.5)", "(2, 'first', 1.5)", "(3, 'n', 1.5)")
    items = stage.replicate("items", ITEMS, item(1, "old"), item(2, "old"), item(4))
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        shop.exec_driver_sql(f"UPDATE items SET name = 'at look {looks}' WHERE id = 2")
        if looks == 2:
            items.put(
                *({"op": "upsert", **row} for row in (item(1), item(2, "at look 1"), item(3))),
                {"op": "delete", "id": 4},
                of=ITEMS,
            )

    report = stage.compare(url(shop), sleep)
    assert (report.is_equal, looks) == (True, 2)

    def idle(_: float) -> None:
        nonlocal looks
        looks += 1

    shop.exec_driver_sql("UPDATE items SET name = 'lost' WHERE id = 1")
    report = stage.compare(url(shop), idle, settle=0.5)
    assert not report.is_equal
    assert looks > 2
    assert [each.key for each in report.tables[0].check.outcome.differences] == [(1,), (2,)]  # type: ignore[union-attr]  # it was compared


def test_the_table_alone_is_compared_when_asked(stage: Stage, shop: sa.Connection) -> None:
    insert(shop, "(1, 'n', 1.5)", "(2, 'n', 1.5)")
    items = stage.table("items")
    items.table("id BIGINT, name STRING, price DECIMAL(10,2)", "(1, 'n', 1.5)")
    items.put({"op": "insert", **item(2)}, of=ITEMS)
    assert stage.verify(url(shop), "--through", "view")[0] == 0
    code, told = stage.verify(url(shop), "--through", "table")
    assert (code, told["tables"][0]["differences"][0]["key"]) == (1, {"id": "2"})


def test_rows_without_a_key_are_compared_as_often_as_they_are_there(
    stage: Stage, shop: sa.Connection
) -> None:
    shop.exec_driver_sql("CREATE TABLE tags (name TEXT)")
    shop.exec_driver_sql("INSERT INTO tags VALUES ('a'), ('a'), ('b'), (NULL)")
    tags = stage.table("tags")
    tags.table("name STRING", "('a')", "('b')", "('b')", "(NULL)")
    tags.put(of=shape((), name=pa.string()))
    code, told = stage.verify(url(shop), "shop.tags")
    [table] = told["tables"]
    assert (code, table["source_rows"], table["replica_rows"], table["different_rows"]) == (1, 4, 4, 2)
    assert [(each["row"], each["columns"]) for each in table["differences"]] == [
        ("missing", {"name": {"source": "a"}}),
        ("surplus", {"name": {"replica": "b"}}),
    ]
    tags.spark.sql(f"UPDATE {tags.ref.sql} SET name = 'a' WHERE name = 'b'")
    shop.exec_driver_sql("UPDATE tags SET name = 'a' WHERE name = 'b'")
    assert stage.verify(url(shop), "shop.tags")[0] == 0


def test_tables_and_columns_of_one_side_are_told(stage: Stage, shop: sa.Connection) -> None:
    for name in ("empty", "lost", "outside"):
        shop.exec_driver_sql(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
    shop.exec_driver_sql("INSERT INTO lost VALUES (1)")
    shop.exec_driver_sql("ALTER TABLE items ADD note TEXT")
    stage.replicate("gone", ITEMS, item(1))
    stage.replicate("items", shape(id=pa.int64(), NAME=pa.string(), old=pa.string()))
    rule = {"match": "/shop.(items|lost|empty|gone)/", "handlers": [{"type": "spark", "mode": "replica"}]}
    stage.configure([rule])
    code, told = stage.verify(url(shop))
    assert code == 1
    assert {each["table"]: each["state"] for each in told["tables"]} == {
        "shop.gone": "no source", "shop.items": "different", "shop.lost": "no replica",
    }  # fmt: skip
    assert told["tables"][1]["notes"] == [
        "the replica has no column price, note", "the source has no column old (any more)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--against", "oracle://h/d"], "allowed: postgresql://"),
        (["--against", "sqlite:///shop.db", "--settle", "soon"], "--settle: found 'soon'"),
        (["--against", "sqlite:///shop.db", "--through", "glass"], "allowed: view, table"),
        (["--against", "sqlite:///shop.db", "orders"], "nearest"),
        ([], "--against"),
    ],
)
def test_what_cannot_be_asked_is_a_fault_of_the_command_line(
    stage: Stage, arguments: list[str], said: str
) -> None:
    code, out, err = stage.run("verify", *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.replace("│", " ").split())


def test_a_source_that_does_not_answer_is_told_without_its_password(stage: Stage) -> None:
    code, _, err = stage.run("verify", "--against", "mysql://root:hush-hush@127.0.0.1:1/shop")
    assert code == 1
    assert "the source database" in err
    assert "hush-hush" not in err
    code, _, err = stage.run("verify", "--against", f"sqlite:///{stage.folder / 'no.db'}")
    assert (code, "unable to open" in err) == (1, True)
    assert not (stage.folder / "no.db").exists()


MARIADB = """
    c_tiny tinyint, c_bool tinyint(1), c_intu int unsigned, c_bigu bigint unsigned, c_dec decimal(10,2),
    c_wide decimal(65,30), c_float float, c_double double, c_bit bit(9), c_bit64 bit(64), c_date date,
    c_zero date, c_time time(3), c_dt datetime(6), c_ts timestamp(3) NULL, c_year year,
    c_latin varchar(9) CHARACTER SET latin1, c_char char(5), c_bin binary(3), c_blob blob,
    c_enum enum('x','y'), c_set set('b','a','c'), c_json json, c_null int"""
IN_SPARK = {
    # column: (as MariaDB reads it, as Spark keeps it, the value there)
    "c_tiny": ("-128", pa.int8(), -128),
    "c_bool": ("1", pa.int8(), 1),
    "c_intu": ("4294967295", pa.int64(), 4294967295),
    "c_bigu": ("18446744073709551615", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    "c_dec": ("-1.10", pa.decimal128(10, 2), Decimal("-1.10")),
    "c_wide": ("1.000000000000000000000000000001", pa.string(), "1.000000000000000000000000000001"),
    "c_float": ("0.1234567", pa.float32(), struct.unpack("f", struct.pack("f", 0.1234567))[0]),
    "c_double": ("1e100", pa.float64(), 1e100),
    "c_bit": ("b'100000001'", pa.int64(), 257),
    "c_bit64": ("0xffffffffffffffff", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    "c_date": ("'1000-01-01'", pa.date32(), date(1000, 1, 1)),
    "c_zero": ("'0000-00-00'", pa.date32(), None),
    "c_time": ("'-838:59:59'", pa.string(), "-838:59:59.000"),
    "c_dt": ("'9999-12-31 23:59:59.999999'", pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "c_ts": (
        "'2026-07-01 12:00:00.123'",
        pa.timestamp("us", "UTC"),
        datetime(2026, 7, 1, 12, 0, 0, 123000, UTC),
    ),
    "c_year": ("2155", pa.int16(), 2155),
    "c_latin": ("'é'", pa.string(), "é"),
    "c_char": ("'ab'", pa.string(), "ab"),
    "c_bin": ("'a'", pa.binary(), b"a\0\0"),
    "c_blob": ("0x00ff", pa.binary(), b"\0\xff"),
    "c_enum": ("'y'", pa.string(), "y"),
    "c_set": ("'c,b'", pa.list_(pa.string()), ["b", "c"]),
    "c_json": ("""'{"b": 1.0, "a": [true, null]}'""", pa.string(), '{"a":[true,null],"b":1.0}'),
    "c_null": ("NULL", pa.int32(), None),
}


def test_mysqls_types_and_keys(stage: Stage, mariadb: MariaDBServer) -> None:
    engine = sa.create_engine(mariadb.new_database("shop"), isolation_level="AUTOCOMMIT")
    values = ", ".join(sql for sql, _, _ in IN_SPARK.values())
    with engine.connect() as connection:
        run = connection.execution_options(no_parameters=True).exec_driver_sql
        run("SET sql_mode = '', time_zone = '+02:00'")
        run(
            "CREATE TABLE `all %s:types` (`k``1` varchar(40) COLLATE utf8mb4_general_ci, id int, "
            f"{MARIADB}, PRIMARY KEY (`k``1`, id))"
        )
        for text in ODD_TEXTS:
            run(f"INSERT INTO `all %s:types` VALUES ('{text}', 1, {values})")
    key = {"k`1": pa.string(), "id": pa.int32()}
    types = shape(tuple(key), **key, **{name: kept for name, (_, kept, _) in IN_SPARK.items()})
    row = {name: value for name, (_, _, value) in IN_SPARK.items()}
    # The session that wrote was two hours ahead of UTC.
    row["c_ts"] = row["c_ts"].replace(hour=10)
    table = stage.replicate("all %s:types", types, *({"k`1": text, "id": 1, **row} for text in ODD_TEXTS))
    code, told = stage.verify(url(engine), "--chunk", "4")
    assert (code, told["tables"][0]["ranges"]) == (0, 2), told["tables"][0]["differences"][0]
    table.put({"op": "upsert", "k`1": "é", "id": 1, **row, "c_json": "{}", "c_zero": date(1, 1, 1)}, of=types)
    [again] = stage.compare(url(engine), lambda _: None, settle=1.0).tables
    assert again.check is not None
    [difference] = again.check.outcome.differences
    assert difference.key == ("é", 1)
    assert difference.source is not None
    assert difference.replica is not None
    both = zip(again.check.columns, difference.source, difference.replica, strict=True)
    assert {name for name, ours, theirs in both if ours != theirs} == {"c_zero", "c_json"}
    engine.dispose()


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6)
AWARE = MOMENT.replace(tzinfo=UTC)
POSTGRES = {
    # column: (its type, as PostgreSQL reads it, as Spark keeps it, the value there)
    "c_bool": ("boolean", "true", pa.bool_(), True),
    "c_num": ("numeric", "123.4500", pa.decimal128(38, 10), Decimal("123.45")),
    "c_real": ("real", "0.1", pa.float32(), struct.unpack("f", struct.pack("f", 0.1))[0]),
    "c_double": ("double precision", "0.1", pa.float64(), 0.1),
    "c_date": ("date", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
    "c_ts": ("timestamp", "'2026-01-02 03:04:05.000006'", pa.timestamp("us"), MOMENT),
    "c_tz": ("timestamptz", "'2026-01-02 05:04:05.000006+02'", pa.timestamp("us", "UTC"), AWARE),
    "c_time": ("time(6)", "'01:02:03.000004'", pa.string(), "01:02:03.000004"),
    "c_uuid": ("uuid", f"'{ID}'", pa.string(), ID),
    "c_json": ("jsonb", """'{"b": 1.0, "a": "ü"}'""", pa.string(), '{"a":"ü","b":1}'),
    "c_bytes": ("bytea", r"'\x00ff'", pa.binary(), b"\0\xff"),
    "c_array": ("int[]", "'{1,NULL}'", pa.string(), "[1,null]"),
    "c_mood": ("mood", "'so so'", pa.string(), "so so"),
}  # fmt: skip


def test_postgresqls_types_and_keys(stage: Stage, postgres: PostgresServer) -> None:
    engine = sa.create_engine(postgres.new_database("shop_source"), isolation_level="AUTOCOMMIT")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _, _) in POSTGRES.items())
    values = ", ".join(sql for _, sql, _, _ in POSTGRES.values())
    with engine.connect() as connection:
        run = connection.execution_options(no_parameters=True).exec_driver_sql
        run("CREATE SCHEMA shop")
        run("CREATE TYPE mood AS ENUM ('so so', 'fine')")
        run(
            'CREATE TABLE shop."Typed" ("Key" text COLLATE "und-x-icu", id uuid, '
            f'{columns}, PRIMARY KEY ("Key", id))'
        )
        for text in ODD_TEXTS:
            run(f"""INSERT INTO shop."Typed" VALUES ('{text}', '{ID}', {values})""")
    key = {"Key": pa.string(), "id": pa.string()}
    types = shape(tuple(key), **key, **{name: kept for name, (_, _, kept, _) in POSTGRES.items()})
    row = {"id": ID, **{name: value for name, (_, _, _, value) in POSTGRES.items()}}
    table = stage.replicate("Typed", types, *({"Key": text, **row} for text in ODD_TEXTS))
    code, told = stage.verify(url(engine), "--chunk", "4")
    assert (code, told["tables"][0]["ranges"]) == (0, 2), told["tables"][0]["differences"][0]
    table.put({"op": "upsert", "Key": "a b", **row, "c_num": Decimal("123.4501")}, of=types)
    [again] = stage.compare(url(engine), lambda _: None, settle=1.0).tables
    assert again.check is not None
    assert [each.key for each in again.check.outcome.differences] == [("a b", ID)]
    engine.dispose()
