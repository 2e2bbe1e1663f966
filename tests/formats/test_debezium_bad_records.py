"""What is said of records that are none of Debezium, and of rows that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from debezium_messages import change_of, connect, create, envelope, record, source, with_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers import Change
from worker.formats.debezium.format import Debezium
from worker.formats.decoding import source_time
from worker.formats.interface import Skip, UndecodableRecord


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "not a Debezium record: the value is empty"),
        (
            b"\0\0\0\0\x07abcdef",
            "schema is in a registry (schema 7): set schema_registry.url to its address",
        ),
        (b"\x08\xff\xfe", "not JSON, but binary data; set value.converter"),
        (b"not json", "not a Debezium record: JSON is malformed"),
        (b"[1]", "not a Debezium record: Expected `object`, got `array`"),
        (b"[" * 100_000, "not a Debezium record: "),
        (b'{"a":1}', "ExtractNewRecordState wrote it, a flattened record needs add.fields=op,db,table"),
        (b'{"isDdl":false,"database":"a","data":[]}', "a Canal message: set `format: canal`"),
        (b'{"database":"a","table":"b","data":{}}', "a Maxwell record: set `format: maxwell`"),
        (b'{"before":null,"after":{}}', "before or after, but no `source` and `op`"),
        (b'{"op":"x","source":{"db":"a","table":"b"}}', "the operation 'x' is not known"),
        (b'{"op":"c","source":{"db":5}}', "not a Debezium record: Expected `str`, got `int`"),
        (b'{"op":"c","source":5}', "ExtractNewRecordState wrote it, a flattened record needs"),
        (b'{"op":"c","source":{"db":"a","table":""}}', "`source` names no database and table"),
        (b'{"ddl":5,"source":{}}', "not a Debezium record: Expected `str`, got `int`"),
        (b'{"__op":"x","__db":"a","__table":"b"}', "the operation 'x'"),
    ],
)
def test_what_is_no_record_is_told_in_words(value: bytes, message: str) -> None:
    with pytest.raises(UndecodableRecord) as told:
        Debezium().explain(record(value))
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_a_flattened_record_that_does_not_tell_its_table_is_told_what_it_needs() -> None:
    with pytest.raises(
        UndecodableRecord, match=r"does not name its database: a flattened record needs add\."
    ):
        Debezium().explain(record({"id": 7, "__op": "c", "__table": "orders"}, topic="orders"))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (envelope("u", after=None), "operation 'u', but no `after`"),
        (envelope("c", after=[1]), "Expected `object | null`, got `array`"),
        (envelope("d"), "the deleted row is unknown"),
        ({"schema": {"type": 5}, "payload": envelope()}, "no Connect schema"),
    ],
)
def test_a_row_that_is_none_is_told_in_words(message: dict[str, Any], told: str) -> None:
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord) as error:
        Debezium().decode(record(message), changes)
    assert told in str(error.value)
    assert changes == []


def test_a_delete_without_a_row_before_has_its_key() -> None:
    key = {"schema": {"type": "struct", "fields": []}, "payload": {"born": 0}}
    one = record(
        with_schema(envelope("d"), {"born": connect("int32", "time.Date"), "x": connect("int32")}), key
    )
    change = change_of(one)
    assert {name: str(value) for name, value in (change.before or {}).items()} == {"born": "1970-01-01"}
    assert change.key == change.before


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        (None, None),
        ({"id": 7}, ("id",)),
        ({"id": "x"}, ("id",)),
        ({"b": 7, "a": 1}, ("b", "a")),
        ({"id": 7, "a": "x"}, ("id", "a")),
        ({}, None),
        ({"schema": {"type": "struct"}, "payload": {"id": 7}}, ("id",)),
        ({"schema": {"type": "struct"}, "payload": {"id": "a", "b": 1}}, ("id", "b")),
    ],
)
def test_the_key_tells_the_key_columns(key: Any, columns: tuple[str, ...] | None) -> None:
    practised = Debezium()
    for earlier in ({"id": 1}, {"a": "y"}, {"schema": {"type": "array"}, "payload": {"no": 1}}):
        row = envelope(after={"id": 7, "a": "x", "b": 1, "no": 1})
        change_of(record(row, earlier), practised)
        assert change_of(record(row, key), practised).key_columns == columns
        assert change_of(record(row, key), practised).key_columns == columns


@pytest.mark.parametrize("key", [b"35", b'"a"', b"", b"[1]", b"\0\0\0\0\1\2", b"7-a"])
def test_a_key_that_is_there_and_cannot_be_read_is_a_fault(key: bytes) -> None:
    """Without its columns the table would have no key: updates would add rows, deletes find none."""
    one = record(envelope("u"), key)
    with pytest.raises(UndecodableRecord, match="the record's key is not a JSON object"):
        change_of(one)
    flat = record({"id": 7, "__op": "u", "__db": "shop", "__table": "orders"}, key)
    with pytest.raises(UndecodableRecord, match="the record's key is not a JSON object"):
        change_of(flat)
    knowing = Debezium()
    knowing.learn(create({"id": "INT"}))
    assert change_of(one, knowing).key_columns == ("id",)


@pytest.mark.parametrize("connector", ["oracle", "sqlserver", "mongodb", "db2"])
def test_records_of_connectors_that_were_never_tested_are_refused_by_name(connector: str) -> None:
    at = {"connector": connector, "schema": "dbo"}
    enveloped = record(envelope("u", at=at), {"id": 7})
    document = record(envelope("c", at={"connector": connector, "collection": "a"}, after="{}"), {"id": "7"})
    flat = record({"id": 7, "__source_connector": connector, "__op": "u", "__table": "orders"}, {"id": 7})
    change = record({"source": source(**at), "ddl": "ALTER TABLE a", "tableChanges": []}, {})
    for one in (enveloped, document, flat, change):
        for read in (Debezium().explain, change_of):
            with pytest.raises(UndecodableRecord, match=f"connector '{connector}'"):
                read(one)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WHOLE = with_schema(
    envelope("u", before={"id": 1}),
    {
        "id": connect("int32"),
        "d": connect("int32", "time.Date"),
        "s": connect("string", "data.Enum", allowed="a"),
    },
)


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """A good message with anything in one place of it."""
    message = json.loads(json.dumps(WHOLE if draw(st.booleans()) else WHOLE["payload"]))
    inside = message
    while True:
        place = draw(st.sampled_from(list(inside) if isinstance(inside, dict) else range(len(inside))))
        if not isinstance(inside[place], dict | list) or not inside[place] or draw(st.booleans()):
            inside[place] = draw(ANYTHING)
            return message
        inside = inside[place]


GARBAGE = st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode())
SPOILED = spoiled().map(lambda value: json.dumps(value).encode())
PRACTISED = Debezium()


@settings(max_examples=400, deadline=None)
@given(
    value=GARBAGE | SPOILED,
    key=st.none() | GARBAGE,
    topic=st.sampled_from(["my.shop.orders", "a", "a.b.c.d"]),
)
def test_garbage_raises_only_what_says_so(value: bytes, key: bytes | None, topic: str) -> None:
    one = record(value, key, topic=topic)
    for format_ in (Debezium(), PRACTISED):
        changes: list[Change] = []
        try:
            explained = format_.explain(one)
        except UndecodableRecord as error:
            explained = error  # type: ignore[assignment]  # compared only
        try:
            format_.decode(one, changes)
        except UndecodableRecord:
            assert changes == []
        else:
            assert changes or isinstance(explained, Skip)
        format_.log_position(one)
        format_.learn(one)
        source_time(format_, one)
