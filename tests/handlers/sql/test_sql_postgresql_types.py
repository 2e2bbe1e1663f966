"""From PostgreSQL into PostgreSQL: each type as itself, in tables made by the handler and by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from captured import CapturedRecord
from servers.postgres_server import PostgresServer
from sql_lab import SqlLab

from handlers import Batch, Change, Rejected
from handlers.values.native_types import NativeTypes
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings

EXTENSIONS = ("hstore", "citext", "ltree")


def field(type_: str, name: str | None = None, **parameters: Any) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {"type": type_, "optional": True, **named, "parameters": parameters}


def bits(text: str) -> str:
    number = int(text or "0", 2)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


STRING = field("string")
TIME = field("int64", "io.debezium.time.MicroTime")
ZONED = field("string", "io.debezium.time.ZonedTimestamp")
JSON = field("string", "io.debezium.data.Json")
INTERVAL = field("string", "io.debezium.time.Interval")
DECIMAL = "org.apache.kafka.connect.data.Decimal"
# Column -> (its type, what the connector calls it, its length, the value's text, its schema, its JSON)
TYPES: dict[str, tuple[str, str, int | None, str, dict[str, Any], Any]] = {
    "c_jsonb": ("jsonb", "JSONB", None, '{"a": [1, null]}', JSON, '{"a": [1, null]}'),
    "c_inet": ("inet", "INET", None, "10.0.0.1/8", STRING, "10.0.0.1/8"),
    "c_cidr": ("cidr", "CIDR", None, "10.0.0.0/8", STRING, "10.0.0.0/8"),
    "c_mac": ("macaddr", "MACADDR", None, "08:00:2b:01:02:03", STRING, "08:00:2b:01:02:03"),
    "c_range": ("int4range", "INT4RANGE", None, "[1,6)", STRING, "[1,6)"),
    "c_when": (
        "tstzrange",
        "TSTZRANGE",
        None,
        '["2026-01-01 00:00:00+00",)',
        STRING,
        '["2026-01-01 00:00:00+00",)',
    ),
    "c_bit": (
        "bit(9)",
        "BIT",
        9,
        "000000101",
        field("bytes", "io.debezium.data.Bits", length="9"),
        bits("101"),
    ),
    "c_bit1": ("bit(1)", "BIT", 1, "1", field("boolean"), True),
    "c_bits": (
        "bit(70)",
        "BIT",
        70,
        "01" * 35,
        field("bytes", "io.debezium.data.Bits", length="70"),
        bits("01" * 35),
    ),
    "c_varbit": (
        "bit varying(9)",
        "VARBIT",
        9,
        "101",
        field("bytes", "io.debezium.data.Bits", length="9"),
        bits("101"),
    ),
    "c_any": (
        "bit varying",
        "VARBIT",
        None,
        "1",
        field("bytes", "io.debezium.data.Bits", length="2147483647"),
        bits("1"),
    ),
    "c_hstore": ("hstore", "HSTORE", None, '"a"=>"1 \\" 2", "b"=>NULL', JSON, '{"a":"1 \\" 2","b":null}'),
    "c_citext": ("citext", "CITEXT", None, "MiXed", STRING, "MiXed"),
    "c_ltree": ("ltree", "LTREE", None, "a.b", STRING, "a.b"),
    "c_xml": ("xml", "XML", None, "<a/>", STRING, "<a/>"),
    "c_money": ("money", "MONEY", None, "-$1,234.50", field("bytes", DECIMAL, scale="2"), "/h3G"),
    "c_interval": ("interval", "INTERVAL", None, "1 mon 2 days -00:00:01.5", INTERVAL, "P0Y1M2DT0H0M-1.5S"),
    "c_time": ("time without time zone", "TIME", None, "24:00:00", TIME, 86_400_000_000),
    "c_timetz": (
        "time with time zone",
        "TIMETZ",
        None,
        "23:02:03+00",
        field("string", "io.debezium.time.ZonedTime"),
        "23:02:03Z",
    ),
    "c_moment": (
        "timestamp with time zone",
        "TIMESTAMPTZ",
        None,
        "2026-01-02 03:04:05+00",
        ZONED,
        "2026-01-02T03:04:05Z",
    ),
    "c_uuid": (
        "uuid",
        "UUID",
        None,
        "00000000-0000-0000-0000-0000000000aa",
        field("string", "io.debezium.data.Uuid"),
        "00000000-0000-0000-0000-0000000000aa",
    ),
    "c_ints": ("integer[]", "_INT4", None, "{1,NULL}", {"type": "array", "items": field("int32")}, [1, None]),
    "c_texts": (
        "text[]",
        "_TEXT",
        None,
        '{"a b",NULL,"","c\\"\\\\"}',
        {"type": "array", "items": STRING},
        ["a b", None, "", 'c"\\'],
    ),
    "c_nets": ("inet[]", "_INET", None, "{10.0.0.1}", {"type": "array", "items": STRING}, ["10.0.0.1"]),
    "c_blobs": (
        "bytea[]",
        "_BYTEA",
        None,
        '{"\\\\x00ff"}',
        {"type": "array", "items": field("bytes")},
        ["AP8="],
    ),
    "c_moments": (
        "timestamp with time zone[]",
        "_TIMESTAMPTZ",
        None,
        '{"2026-01-02 03:04:05+00"}',
        {"type": "array", "items": ZONED},
        ["2026-01-02T03:04:05Z"],
    ),
    "c_docs": ("jsonb[]", "_JSONB", None, '{"{\\"a\\": 1}"}', {"type": "array", "items": JSON}, ['{"a": 1}']),
}


@pytest.fixture
def lab(postgres: PostgresServer, tmp_path: Path) -> Iterator[SqlLab]:
    made = SqlLab(postgres.new_database("native"), tmp_path)
    yield made
    made.close()


def record(id_: int, *, told: bool, op: str = "c") -> CapturedRecord:
    """A row as the connector sends it; `told`: with `column.propagate.source.type`."""
    fields = [{"field": "id", **field("int32")}]
    for name, (_, own, length, _, schema, _) in TYPES.items():
        parameters = dict(schema.get("parameters", {}))
        if told:
            parameters["__debezium.source.column.type"] = own
            if length is not None:
                parameters["__debezium.source.column.length"] = str(length)
        fields.append({"field": name, **schema, "parameters": parameters})
    row = {"id": id_, **{name: value for name, (*_, value) in TYPES.items()}}
    source = {
        "connector": "postgresql",
        "name": "pg",
        "db": "d",
        "schema": "shop",
        "table": "typed",
        "lsn": 1,
    }
    parts = [{"type": "struct", "field": part, "fields": fields} for part in ("before", "after")]
    parts += [{"type": "struct", "field": "source", "fields": []}, {"type": "string", "field": "op"}]
    before, after = (None, row) if op == "c" else ({"id": id_}, None) if op == "d" else (None, row)
    message = {
        "schema": {"type": "struct", "fields": parts},
        "payload": {"before": before, "after": after, "source": source, "op": op},
    }
    key = {"schema": {"type": "struct", "fields": [fields[0]]}, "payload": {"id": id_}}
    return CapturedRecord(
        topic_="pg.shop.typed",
        partition_=0,
        offset_=id_ * 10 + "cud".index(op),
        timestamp_ms=1,
        key_=json.dumps(key).encode(),
        value_=json.dumps(message).encode(),
        headers_=[],
    )


def batch(*records: CapturedRecord, settings: DebeziumSettings | None = None) -> Batch:
    format_, changes = Debezium(settings), list[Change]()
    for one in records:
        format_.decode(one, changes)
    return Batch("shop.typed", changes, database="shop", name="typed")


def kept(lab: SqlLab, id_: int = 1) -> dict[str, str | None]:
    """As PostgreSQL prints the row."""
    shown = ", ".join(f"format('%s', {name}) AS {name}" for name in TYPES)
    [row] = lab.run(f"SELECT {shown} FROM shop.typed WHERE id = {id_}")
    return dict(row._mapping)


def types(lab: SqlLab) -> dict[str, str]:
    found = lab.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'shop.typed'::regclass AND attnum > 0 AND attname <> 'id' AND NOT attisdropped"
    )
    return {row[0]: row[1] for row in found}


EXPECTED = {name: text for name, (_, _, _, text, _, _) in TYPES.items()}
DECLARED = {name: type_ for name, (type_, *_) in TYPES.items()}


MADE = DECLARED | {"c_money": "numeric"}
"""Which holds what the connector rounds, too."""
MADE_VALUES = EXPECTED | {"c_money": "-1234.50"}


def test_a_made_table_has_the_sources_own_types_and_values(lab: SqlLab) -> None:
    for extension in EXTENSIONS:
        lab.run(f"CREATE EXTENSION {extension}")
    with lab.handler() as handler:
        handler.handle(batch(*(record(number, told=True) for number in (1, 2))))
        handler.handle(batch(record(1, told=True, op="u"), record(2, told=True, op="d")))
    assert types(lab) == MADE
    assert kept(lab) == MADE_VALUES
    assert lab.run("SELECT count(*) FROM shop.typed") == [(1,)]


def test_without_the_extension_its_types_are_json_and_text(lab: SqlLab) -> None:
    with lab.handler() as handler:
        handler.handle(batch(record(1, told=True)))
    assert {name: types(lab)[name] for name in ("c_hstore", "c_citext", "c_ltree")} == {
        "c_hstore": "json",
        "c_citext": "text",
        "c_ltree": "text",
    }
    assert kept(lab) == MADE_VALUES | {"c_hstore": '{"a":"1 \\" 2","b":null}'}


@pytest.mark.parametrize("told", [True, False])
def test_a_table_made_by_hand_takes_the_values_by_its_own_types(lab: SqlLab, told: bool) -> None:
    for extension in EXTENSIONS:
        lab.run(f"CREATE EXTENSION {extension}")
    lab.run("CREATE TYPE mood AS ENUM ('MiXed')")
    lab.run("CREATE SCHEMA shop")
    columns = ", ".join(f"{name} {type_}" for name, type_ in (DECLARED | {"c_citext": "mood"}).items())
    lab.run(f"CREATE TABLE shop.typed (id int PRIMARY KEY, {columns}, mine text NOT NULL DEFAULT 'x')")
    with lab.handler(create=False) as handler:
        handler.handle(batch(record(1, told=told)))
        handler.handle(batch(record(1, told=told, op="u")))
    assert kept(lab) == EXPECTED
    assert lab.run("SELECT mine FROM shop.typed") == [("x",)]


def test_the_configuration_tells_types_where_records_do_not(lab: SqlLab) -> None:
    for extension in EXTENSIONS:
        lab.run(f"CREATE EXTENSION {extension}")
    settings = DebeziumSettings(columns={"shop.typed": DECLARED})
    with lab.handler() as handler:
        handler.handle(batch(record(1, told=False), settings=settings))
    assert types(lab) == MADE
    # bit(1) is a number then, and the rest as ever
    assert kept(lab) == MADE_VALUES


def test_an_unknown_type_is_never_written_into_a_statement(lab: SqlLab) -> None:
    one = record(1, told=True)
    evil = (one.value_ or b"").replace(b'"INET"', b'"INET); DROP TABLE x --"')
    assert evil != one.value_
    with lab.handler() as handler:
        handler.handle(batch(replace(one, value_=evil)))
    assert types(lab)["c_inet"] == "text"


# ---- numbers and bytes that travel as text: decimal.handling.mode=string, binary.handling.mode=hex

AS_TEXT: dict[str, tuple[str, int | None, int | None, Any, str, str]] = {
    # Column -> (the connector's type, its length and scale, what is sent; the made type, the text)
    "c_sized": ("NUMERIC", 12, 2, "1234.50", "numeric(12,2)", "1234.50"),
    "c_left": ("NUMERIC", 5, 2046, "12300", "numeric(7,0)", "12300"),
    "c_any": ("NUMERIC", 131089, 0, "0.10", "numeric", "0.10"),
    "c_nan": ("NUMERIC", None, None, "NaN", "numeric", "NaN"),
    "c_rounded": ("MONEY", None, 0, "92233720368547760.00", "numeric", "92233720368547760.00"),
    "c_bytes": ("BYTEA", 2147483647, 0, "00ff", "bytea", "\\x00ff"),
    "c_text": ("TEXT", 2147483647, 0, "00ff", "text", "00ff"),
}


def text_record(own: dict[str, tuple[str, int | None, int | None, Any, str, str]]) -> CapturedRecord:
    one = record(1, told=True)
    message = json.loads(one.value_ or b"")
    fields = [{"field": "id", **field("int32")}]
    for name, (type_, length, scale, *_) in own.items():
        told = {"type": type_, "length": length, "scale": scale}
        parameters = {
            f"__debezium.source.column.{part}": str(value)
            for part, value in told.items()
            if value is not None
        }
        fields.append({"field": name, **field("string", **parameters)})
    for part in message["schema"]["fields"][:2]:
        part["fields"] = fields
    message["payload"]["after"] = {"id": 1, **{name: row[3] for name, row in own.items()}}
    return replace(one, value_=json.dumps(message).encode())


def test_text_is_read_by_the_type_that_the_schema_tells(lab: SqlLab) -> None:
    settings = DebeziumSettings(binary="hex")
    with lab.handler() as handler:
        handler.handle(batch(text_record(AS_TEXT), settings=settings))
    assert types(lab) == {name: row[4] for name, row in AS_TEXT.items()}
    [row] = lab.run(f"SELECT {', '.join(f'{name}::text' for name in AS_TEXT)} FROM shop.typed")
    assert list(row) == [row[5] for row in AS_TEXT.values()]


def test_what_was_made_as_text_becomes_a_number_but_bytes_only_by_hand(lab: SqlLab) -> None:
    """Earlier releases took both for text: the digits of old bytes must not become bytes."""
    own = {name: AS_TEXT[name] for name in ("c_sized", "c_bytes")}
    untold = {name: ("TEXT", *row[1:]) for name, row in own.items()}
    settings = DebeziumSettings(binary="hex")
    later = replace(text_record(own), offset_=11)
    with lab.handler() as handler:
        handler.handle(batch(text_record(untold), settings=settings))
        assert types(lab) == {"c_sized": "text", "c_bytes": "text"}
        with pytest.raises(Rejected, match="column c_bytes: bytes do not fit into a text column"):
            handler.handle(batch(later, settings=settings))
        assert types(lab) == {"c_sized": "numeric(12,2)", "c_bytes": "text"}
        lab.run("ALTER TABLE shop.typed ALTER c_bytes TYPE bytea USING decode(c_bytes, 'hex')")
        handler.handle(batch(later, settings=settings))
    [row] = lab.run("SELECT c_sized::text, c_bytes::text FROM shop.typed")
    assert tuple(row) == ("1234.50", "\\x00ff")


def test_an_array_of_numbers_as_text_is_read_by_its_type() -> None:
    one = text_record({"c": ("_NUMERIC", None, None, None, "", "")})
    value = json.loads(one.value_ or b"")
    for part in value["schema"]["fields"][:2]:
        part["fields"][1] |= {"type": "array", "items": field("string")}
    value["payload"]["after"]["c"] = ["1.50", None]
    [change] = batch(replace(one, value_=json.dumps(value).encode())).changes
    assert change.after == {"id": 1, "c": [Decimal("1.50"), None]}
    assert isinstance(change.types, NativeTypes)
    assert change.types.native["c"] == "numeric[]"
