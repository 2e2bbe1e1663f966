"""The layouts that docs/formats.md has for other tools, on records made up after their documentation."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_messages import record

from handlers import Change
from worker.formats.interface import Skip, UndecodableRecord
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text()


def layout(heading: str, **other: Any) -> Json:
    """The layout below this heading, changed as the text there says."""
    part = PAGE.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    found = re.search(r"^```yaml\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    assert found is not None
    return Json(JsonLayout.model_validate({**yaml.safe_load(found[1])["json"], **other}))


def read(format_: Json, value: Any, key: Any = None, **more: Any) -> tuple[str, str, list[Change]]:
    sent = record(value, key, **more)
    route = format_.explain(sent)
    assert not isinstance(route, Skip)
    changes: list[Change] = []
    format_.decode(sent, changes)
    return route.database, route.table, changes


SQL_SERVER = {
    "before": {"id": 7, "total": "10.00", "at": "2026-11-24T10:00:00.1234560+02:00"},
    "after": {"id": 7, "total": "11.50", "at": "2026-11-24T10:00:00.1234560+02:00"},
    "source": {
        "version": "3.5.0.Final",
        "connector": "sqlserver",
        "name": "erp",
        "ts_ms": 1763978400000,
        "snapshot": "false",
        "db": "erp",
        "schema": "dbo",
        "table": "orders",
        "change_lsn": "00000027:00000758:0003",
        "commit_lsn": "00000027:00000758:0005",
        "event_serial_no": "2",
    },
    "op": "u",
    "ts_ms": 1763978401000,
    "transaction": {"id": "00000027:00000758:0005", "total_order": 1, "data_collection_order": 1},
}


def test_debeziums_records_of_sql_server() -> None:
    format_ = layout("Debezium's other connectors", columns={"total": "decimal(12,2)", "at": "timestamp(6)"})
    database, table, [change] = read(format_, SQL_SERVER, {"id": 7})
    assert (database, table, change.op, change.key) == ("dbo", "orders", "update", {"id": 7})
    assert change.after is not None
    assert change.after["total"] == Decimal("11.50")
    assert change.after["at"] == datetime(2026, 11, 24, 8, 0, 0, 123456, UTC)
    finer = json.loads(json.dumps(SQL_SERVER).replace("1234560", "1234567"))
    with pytest.raises(UndecodableRecord, match="column 'at' of type"):
        read(format_, finer, {"id": 7})
    assert change.before is not None
    assert change.before["total"] == Decimal("10.00")
    assert (change.source_time_ms, change.transaction) == (1763978400000, "00000027:00000758:0005")


@pytest.mark.parametrize(
    ("op", "before", "after", "expected"),
    [
        ("c", None, {"id": 7}, "insert"),
        ("r", None, {"id": 7}, "snapshot"),
        ("d", {"id": 7}, None, "delete"),
    ],
)
@pytest.mark.parametrize("connector", ["oracle", "db2", "informix"])
def test_debeziums_records_of_other_databases_with_schemas(
    connector: str, op: str, before: Any, after: Any, expected: str
) -> None:
    source = {
        "connector": connector,
        "db": "ORCL",
        "schema": "SHOP",
        "table": "ORDERS",
        "ts_ms": 1763978400000,
    }
    value = {"before": before, "after": after, "source": source, "op": op, "transaction": None}
    database, table, [change] = read(layout("Debezium's other connectors"), value, {"id": 7})
    assert (database, table, change.op, change.key) == ("SHOP", "ORDERS", expected, {"id": 7})


def test_debeziums_records_of_vitess_and_those_with_schemas() -> None:
    source = {
        "connector": "vitess",
        "keyspace": "shop",
        "db": "shop",
        "table": "orders",
        "shard": "-80",
        "ts_ms": 7,
    }
    value = {"before": None, "after": {"id": 7}, "source": source, "op": "c"}
    format_ = layout("Debezium's other connectors", database="source.db")
    assert read(format_, value, {"id": 7})[:2] == ("shop", "orders")
    names = ("database", "table", "operation", "before", "after", "time", "transaction")
    plain = yaml.safe_load(
        re.findall(r"^```yaml\n(.*?)^```", PAGE.split("### Debezium's other connectors")[1], re.S | re.M)[0]
    )["json"]
    prefixed = {name: f"payload.{plain[name]}" for name in names} | {"database": "payload.source.db"}
    format_ = layout("Debezium's other connectors", **prefixed, key="$key.payload")
    wrapped, key = {"schema": {}, "payload": value}, {"schema": {}, "payload": {"id": 7}}
    database, table, [change] = read(format_, wrapped, key)
    assert (database, table, change.key) == ("shop", "orders", {"id": 7})


def test_what_debezium_tells_besides_rows_is_passed_over() -> None:
    source = {"connector": "oracle", "schema": "SHOP", "table": "ORDERS", "ts_ms": 7}
    for op in ("t", "m"):
        value = {"before": None, "after": None, "source": source, "op": op}
        assert (
            layout("Debezium's other connectors").explain(record(value, {"id": 7})) == Skip("operation")
            or not (read(layout("Debezium's other connectors"), value, {"id": 7})[2])
        )


CLOUD_EVENT = {
    "id": "name:shop;file:binlog.1;pos:154;row:0",
    "source": "/debezium/mysql/shop",
    "specversion": "1.0",
    "type": "io.debezium.connector.mysql.DataChangeEvent",
    "time": "2026-11-24T10:00:00.000Z",
    "datacontenttype": "application/json",
    "iodebeziumop": "u",
    "iodebeziumconnector": "mysql",
    "iodebeziumname": "shop",
    "iodebeziumtsms": "1763978400000",
    "iodebeziumdb": "shop",
    "iodebeziumtable": "orders",
    "data": {"before": {"id": 7, "note": "a"}, "after": {"id": 7, "note": "b"}},
}


def test_debezium_in_cloud_events() -> None:
    database, table, [change] = read(layout("CloudEvents"), CLOUD_EVENT, {"id": 7})
    assert (database, table, change.op, change.key) == ("shop", "orders", "update", {"id": 7})
    assert (change.before, change.after) == ({"id": 7, "note": "a"}, {"id": 7, "note": "b"})
    assert change.source_time_ms == 1763978400000


def test_debezium_in_binary_cloud_events() -> None:
    headers = {f"ce_{name}": text for name, text in CLOUD_EVENT.items() if isinstance(text, str)}
    places = {
        name: f"$header.ce_{place}"
        for name, place in {
            "database": "iodebeziumdb",
            "table": "iodebeziumtable",
            "operation": "iodebeziumop",
            "time": "iodebeziumtsms",
        }.items()
    }
    format_ = layout("CloudEvents", **places, before="before", after="after")
    database, table, [change] = read(format_, CLOUD_EVENT["data"], {"id": 7}, headers=headers)
    assert (database, table, change.op, change.after) == ("shop", "orders", "update", {"id": 7, "note": "b"})


GOLDEN_GATE = {
    "table": "SHOP.ORDERS",
    "op_type": "U",
    "op_ts": "2026-11-24 10:00:00.123456",
    "current_ts": "2026-11-24T10:00:01.000000",
    "pos": "00000000000000002928",
    "primary_keys": ["ID"],
    "before": {"ID": 7, "AMOUNT": 10.5, "CREATED": "2026-11-01 00:00:00"},
    "after": {"ID": 7, "AMOUNT": 11.25},
}


def test_golden_gates_json() -> None:
    database, table, [change] = read(layout("Oracle GoldenGate"), GOLDEN_GATE)
    assert (database, table, change.op, change.key) == ("ora", "SHOP.ORDERS", "update", {"ID": 7})
    assert change.after == {"ID": 7, "AMOUNT": Decimal("11.25"), "CREATED": datetime(2026, 11, 1)}
    assert change.before == {"ID": 7, "AMOUNT": Decimal("10.50"), "CREATED": datetime(2026, 11, 1)}
    assert change.source_time_ms == 1795514400123
    emptied = {**GOLDEN_GATE, "op_type": "T", "before": None, "after": None}
    assert read(layout("Oracle GoldenGate"), emptied)[2] == []
