"""`binlane verify` on real servers: every type and key of MySQL's and PostgreSQL's."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from verify_lab import Stage, url
from view_lab import HandMade, shape

from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.read.current import newest_frame
from handlers.spark.rows.conversions import text

pytestmark = pytest.mark.usefixtures("each_reader")

ID = "00000000-0000-0000-0000-0000000000aa"
ODD_TEXTS = ["Z", "a", "a b", "é", "字", "😀"]
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


def repaired_whole(stage: Stage, table: HandMade, against: str) -> None:
    """Each row is written into the table, whatever its types, and is what the log has."""
    view = newest_frame(table.spark, LocalFiles(), table.ref, "_")
    rows = {row[0]: row for row in view.collect()}
    view.limit(0).write.format("delta").save(table.path)
    code, told = stage.verify(against, "--repair", "--through", "table")
    [found] = told["tables"]
    assert (code, found["state"], found["repaired_rows"]) == (0, "repaired", len(ODD_TEXTS)), found
    for row in table.spark.sql(f"SELECT * FROM {table.ref.sql}").collect():
        both = zip(row.__fields__, row, rows[row[0]], strict=True)
        differ = {name for name, ours, theirs in both if ours != theirs}
        # Spaces, the order of keys; how a length and a time are written.
        assert differ <= {"c_json", "c_length", "c_midnight"}


@pytest.mark.soak
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
        for odd in ODD_TEXTS:
            run(f"INSERT INTO `all %s:types` VALUES ('{odd}', 1, {values})")
    key = {"k`1": pa.string(), "id": pa.int32()}
    types = shape(tuple(key), **key, **{name: kept for name, (_, kept, _) in IN_SPARK.items()})
    row = {name: value for name, (_, _, value) in IN_SPARK.items()}
    # The session that wrote was two hours ahead of UTC.
    row["c_ts"] = row["c_ts"].replace(hour=10)
    table = stage.replicate("all %s:types", types, *({"k`1": odd, "id": 1, **row} for odd in ODD_TEXTS))
    code, told = stage.verify(url(engine), "--chunk", "4")
    assert (code, told["tables"][0]["ranges"]) == (0, 2), told["tables"][0]["differences"][0]
    repaired_whole(stage, table, url(engine))
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
ODD_ITEMS = text(["a b", 'c"d', None, "NULL", ""])
LENGTH = timedelta(days=363, hours=6, seconds=1.5)
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
    "c_texts": ("text[]", """'{"a b","c\\"d",NULL,"NULL",""}'""", pa.string(), ODD_ITEMS),
    "c_bounds": ("numeric[]", "'[0:1]={1.50,NaN}'", pa.string(), text([Decimal("1.5"), "NaN"])),
    "c_bools": ("boolean[]", "'{t,f}'", pa.string(), text([True, False])),
    "c_moments": ("timestamptz[]", "'{2026-01-02 05:04:05.000006+02}'", pa.string(), text([AWARE])),
    "c_blobs": ("bytea[]", r"""'{"\\x00ff"}'""", pa.string(), text([b"\0\xff"])),
    "c_reals": ("real[]", "'{0.1}'", pa.string(), text([struct.unpack("f", struct.pack("f", 0.1))[0]])),
    "c_none": ("int[]", "'{}'", pa.string(), "[]"),
    "c_nets": ("inet[]", "'{10.0.0.1,10.0.0.0/8}'", pa.string(), text(["10.0.0.1", "10.0.0.0/8"])),
    "c_inet": ("inet", "'192.168.0.1'", pa.string(), "192.168.0.1"),
    "c_inet6": ("inet", "'::ffff:1.2.3.4/96'", pa.string(), "::ffff:1.2.3.4/96"),
    "c_cidr": ("cidr", "'10.0.0.0/8'", pa.string(), "10.0.0.0/8"),
    "c_macaddr": ("macaddr", "'08:00:2b:01:02:03'", pa.string(), "08:00:2b:01:02:03"),
    "c_range": ("int4range", "'[1,5]'", pa.string(), "[1,6)"),
    "c_bit": ("bit(8)", "B'00000101'", pa.int64(), 5),
    "c_bit1": ("bit(1)", "B'1'", pa.bool_(), True),
    "c_varbit": ("bit varying(9)", "B'00101'", pa.int64(), 5),
    "c_bits": ("bit(70)", f"B'{'01' * 35}'", pa.binary(), int("01" * 35, 2).to_bytes(9, "little")),
    "c_interval": ("interval", "'1 year -2 days 00:00:01.5'", pa.string(), text(LENGTH)),
    "c_length": ("interval", "'1 mon -04:05:06'", pa.string(), "P0Y1M0DT-4H-5M-6S"),
    "c_timetz": ("timetz", "'01:02:03.5+02'", pa.string(), "23:02:03.500000"),
    "c_midnight": ("time", "'24:00:00'", pa.string(), "24:00:00.000000"),
    "c_money": ("money", "'-1234.50'", pa.decimal128(19, 2), Decimal("-1234.50")),
    "c_hstore": ("hstore", """'a=>"1 \\" 2", b=>NULL'""", pa.string(), '{"a":"1 \\" 2","b":null}'),
    "c_citext": ("citext", "'MiXed'", pa.string(), "MiXed"),
    "c_xml": ("xml", "'<a/>'", pa.string(), "<a/>"),
    "c_point": ("point", "'(1.5,-2)'", pa.binary(), struct.pack("<IBIdd", 0, 1, 1, 1.5, -2)),
    "c_age": ("age", "42", pa.int32(), 42),
    "c_ever": ("timestamptz", "'infinity'", pa.timestamp("us", "UTC"), None),
    "c_bc": ("date", "'0044-03-15 BC'", pa.date32(), None),
    "c_mood": ("mood", "'so so'", pa.string(), "so so"),
}  # fmt: skip


@pytest.mark.soak
def test_postgresqls_types_and_keys(stage: Stage, postgres: PostgresServer) -> None:
    engine = sa.create_engine(postgres.new_database("shop_source"), isolation_level="AUTOCOMMIT")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _, _) in POSTGRES.items())
    values = ", ".join(sql for _, sql, _, _ in POSTGRES.values())
    with engine.connect() as connection:
        run = connection.execution_options(no_parameters=True).exec_driver_sql
        run("CREATE SCHEMA shop")
        run("CREATE EXTENSION hstore")
        run("CREATE EXTENSION citext")
        run("CREATE DOMAIN age AS integer")
        run("CREATE TYPE mood AS ENUM ('so so', 'fine')")
        run(
            'CREATE TABLE shop."Typed" ("Key" text COLLATE "und-x-icu", id uuid, '
            f'{columns}, PRIMARY KEY ("Key", id))'
        )
        for odd in ODD_TEXTS:
            run(f"""INSERT INTO shop."Typed" VALUES ('{odd}', '{ID}', {values})""")
    key = {"Key": pa.string(), "id": pa.string()}
    types = shape(tuple(key), **key, **{name: kept for name, (_, _, kept, _) in POSTGRES.items()})
    row = {"id": ID, **{name: value for name, (_, _, _, value) in POSTGRES.items()}}
    table = stage.replicate("Typed", types, *({"Key": odd, **row} for odd in ODD_TEXTS))
    code, told = stage.verify(url(engine), "--chunk", "4")
    assert (code, told["tables"][0]["ranges"]) == (0, 2), told["tables"][0]["differences"][0]
    repaired_whole(stage, table, url(engine))
    table.put({"op": "upsert", "Key": "a b", **row, "c_num": Decimal("123.4501")}, of=types)
    [again] = stage.compare(url(engine), lambda _: None, settle=1.0).tables
    assert again.check is not None
    assert [each.key for each in again.check.outcome.differences] == [("a b", ID)]
    engine.dispose()


def test_rows_of_partitions_are_looked_for_once(stage: Stage, postgres: PostgresServer) -> None:
    engine = sa.create_engine(postgres.new_database("shop_parts"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        run = connection.exec_driver_sql
        run("CREATE SCHEMA shop")
        for root in ("by_root", "by_leaf", "unseen"):
            run(f"CREATE TABLE shop.{root} (id int PRIMARY KEY) PARTITION BY RANGE (id)")
            run(f"CREATE TABLE shop.{root}_0 PARTITION OF shop.{root} FOR VALUES FROM (0) TO (10)")
            run(
                f"CREATE TABLE shop.{root}_1 PARTITION OF shop.{root} FOR VALUES FROM (10) TO (30) "
                "PARTITION BY RANGE (id)"
            )
            run(f"CREATE TABLE shop.{root}_1_0 PARTITION OF shop.{root}_1 FOR VALUES FROM (10) TO (20)")
            run(f"INSERT INTO shop.{root} VALUES (1), (11)")
    of = shape(("id",), id=pa.int32())
    stage.replicate("by_root", of, {"id": 1}, {"id": 11})
    stage.replicate("by_leaf_0", of, {"id": 1})
    stage.replicate("by_leaf_1_0", of, {"id": 11})
    code, told = stage.verify(url(engine))
    assert code == 1
    unseen = dict.fromkeys(("shop.unseen", "shop.unseen_0", "shop.unseen_1", "shop.unseen_1_0"), "no replica")
    equal = dict.fromkeys(("shop.by_root", "shop.by_leaf_0", "shop.by_leaf_1_0"), "equal")
    assert {each["table"]: each["state"] for each in told["tables"]} == unseen | equal
    engine.dispose()
