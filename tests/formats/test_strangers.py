"""Records of other tools than a topic's format expects: refused at the first, by name, with what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from canal_messages import message, sent

from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Format, Skip, UndecodableRecord
from worker.formats.maxwell.format import Maxwell

CLOUD_EVENT = {
    "id": "name:pg;lsn:29274832;txId:565",
    "source": "/debezium/postgresql/pg",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "datacontenttype": "application/json",
    "iodebeziumop": "c",
    "data": {"before": None, "after": {"id": 1}},
}
GOLDEN_GATE = {
    "table": "SHOP.ORDERS",
    "op_type": "I",
    "op_ts": "2026-11-24 10:00:00.000000",
    "after": {"ID": 1},
}
TICDC_SIMPLE = {
    "version": 1,
    "type": "INSERT",
    "database": "shop",
    "table": "orders",
    "commitTs": 7,
    "data": {},
}
MONGODB = {"_id": {}, "operationType": "insert", "ns": {"db": "shop", "coll": "orders"}, "documentKey": {}}
DEBEZIUM = {"before": None, "after": {"id": 1}, "source": {"db": "shop", "table": "orders"}, "op": "c"}
MAXWELL = {"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": {"id": 1}}


def refusal(format_: Format, value: Any) -> str:
    """What is said when the record is routed, or at the latest when it is decoded."""
    record = sent(json.dumps(value).encode())
    with pytest.raises(UndecodableRecord) as told:
        explain_and_decode(format_, record)
    return str(told.value)


def explain_and_decode(format_: Format, record: Any) -> None:
    assert not isinstance(format_.explain(record), Skip)
    format_.decode(record, [])


@pytest.mark.parametrize("format_", [Canal(), Debezium(), Maxwell()], ids=["canal", "debezium", "maxwell"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (CLOUD_EVENT, "CloudEvents"),
        (GOLDEN_GATE, "Oracle GoldenGate: describe its records with format: json"),
        (MONGODB, "MongoDB's own connector"),
    ],
)
def test_records_of_other_writers_are_named_by_every_format(format_: Format, value: Any, words: str) -> None:
    assert words in refusal(format_, value)
    assert words in refusal(format_, {"schema": {}, "payload": value})


@pytest.mark.parametrize(
    ("format_", "value", "words"),
    [
        (Canal(), DEBEZIUM, "set `format: debezium`"),
        (Canal(), MAXWELL, "set `format: maxwell`"),
        (Canal(), TICDC_SIMPLE, "set protocol=canal-json"),
        (Debezium(), MAXWELL, "set `format: maxwell`"),
        (Maxwell(), DEBEZIUM, "set `format: debezium`"),
        (Maxwell(), json.loads(message().value() or b""), "set `format: canal`"),
    ],
)
def test_records_of_another_format_say_which(format_: Format, value: Any, words: str) -> None:
    assert words in refusal(format_, value)


def test_ticdcs_open_protocol_is_told_by_its_key() -> None:
    key = bytes((0, 0, 0, 0, 0, 0, 0, 1)) + b'\0\0\0\0\0\0\0\x2a{"ts":1,"scm":"shop","tbl":"orders","t":1}'
    record = replace(sent(b'\0\0\0\0\0\0\0\x0a{"u":{}}'), key_=key)
    with pytest.raises(UndecodableRecord, match="open protocol: set protocol=canal-json"):
        Canal().explain(record)


@pytest.mark.parametrize(
    ("connector", "words"),
    [
        ("sqlserver", "format: json; docs/formats.md has a layout"),
        ("oracle", "format: json; docs/formats.md has a layout"),
        ("db2", "format: json; docs/formats.md has a layout"),
        ("vitess", "format: json; docs/formats.md has a layout"),
        ("mongodb", "ExtractNewDocumentState"),
        ("new", "describe its records (format: json)"),
    ],
)
def test_debeziums_other_connectors_are_named_with_what_to_do(connector: str, words: str) -> None:
    source = {"connector": connector, "name": "p", "db": "shop", "schema": "dbo", "table": "orders"}
    told = refusal(Debezium(), {**DEBEZIUM, "source": source})
    assert f"connector '{connector}'" in told
    assert words in told


NOTIFICATION = {
    "id": "5563ae14-49f8-4579-9641-c1bbc2d76f99",
    "aggregate_type": "Initial Snapshot",
    "type": "COMPLETED",
    "additional_data": {"connector_name": "shop"},
    "timestamp": 1695817046353,
}
SIGNAL = {"type": "execute-snapshot", "data": {"data-collections": ["shop.orders"], "type": "INCREMENTAL"}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (NOTIFICATION, "notification"),
        ({name: each for name, each in NOTIFICATION.items() if name != "timestamp"}, "notification"),
        (SIGNAL, "signal"),
        ({**SIGNAL, "id": "7"}, "signal"),
    ],
)
def test_debeziums_notifications_and_signals_are_passed_over_by_name(value: Any, reason: str) -> None:
    assert Debezium().explain(sent(json.dumps(value).encode())) == Skip(reason)
    whole = {"schema": {"type": "struct"}, "payload": value}
    assert Debezium().explain(sent(json.dumps(whole).encode())) == Skip(reason)


def test_a_row_that_looks_like_a_notification_stays_a_row() -> None:
    told = {"__op": "c", "__db": "shop", "__table": "notes"}
    found = Debezium().explain(sent(json.dumps({**NOTIFICATION, **told}).encode()))
    assert not isinstance(found, Skip)
    headers = [(name, text.encode()) for name, text in told.items()]
    record = replace(sent(json.dumps(NOTIFICATION).encode()), headers_=headers)
    assert not isinstance(Debezium().explain(record), Skip)


def test_a_record_with_the_marks_of_its_own_format_is_none_of_anothers() -> None:
    of_canal = message(isDdl=True, data=None, table="", type="QUERY", version=1, commitTs=7)
    assert Canal().explain(of_canal) == Skip("database_ddl")
