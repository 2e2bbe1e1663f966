"""Where Debezium's records belong, and what is said of those that belong nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from captured import CapturedRecord
from debezium_messages import change_of, connect, ddl, definition, envelope, record, with_schema

from handlers import Change
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Skip, UndecodableRecord

POSTGRESQL = {"connector": "postgresql", "db": "shop", "schema": "sales", "file": None, "pos": None, "lsn": 7}


def routed(one: CapturedRecord, format_: Debezium | None = None) -> tuple[str, str, bool]:
    route = (format_ or Debezium()).explain(one)
    assert not isinstance(route, Skip)
    return route.database, route.table, route.alone


def fast(one: CapturedRecord) -> tuple[str, str, bool]:
    """By the hot path alone."""
    route = Debezium().route(one.value() or b"")
    return route.database, route.table, route.alone


@pytest.mark.parametrize("op", ["c", "r", "u", "d"])
@pytest.mark.parametrize("has_schema", [True, False])
def test_a_row_belongs_to_the_table_of_its_source_whatever_its_topic(op: str, has_schema: bool) -> None:
    message = envelope(op, at={"db": "sh.op", "table": "订单"})
    one = record(
        with_schema(message, {"id": connect("int32")}) if has_schema else message, topic="my.shop.__"
    )
    assert fast(one) == routed(one) == ("sh.op", "订单", False)


def test_a_row_of_postgresql_belongs_to_the_schema() -> None:
    one = record(envelope(at=POSTGRESQL))
    assert fast(one) == routed(one) == ("sales", "orders", False)


@pytest.mark.parametrize("at", [{"ts_ms": 10**17}, {"ts_ms": "soon"}, {"gtid": 7}])
def test_a_row_whose_source_is_damaged_elsewhere_belongs_to_its_table(at: dict[str, Any]) -> None:
    one = record(envelope(at=at))
    assert fast(one) == routed(one) == ("shop", "orders", False)
    with pytest.raises(UndecodableRecord):
        change_of(one)


@pytest.mark.parametrize("at", [{}, POSTGRESQL])
def test_a_truncate_stands_alone(at: dict[str, Any]) -> None:
    one = record(envelope("t", at=at))
    assert fast(one) == routed(one) == (at.get("schema", "shop"), "orders", True)
    change = change_of(one)
    assert (change.op, change.before, change.after, change.key_columns, change.sql) == (
        "truncate",
        None,
        None,
        None,
        None,
    )


def test_values_of_several_tables_take_turns() -> None:
    format_ = Debezium()
    for turn in range(200):
        table = f"t{turn % 7}"
        message = with_schema(envelope(at={"table": table}), {table: connect("int32")})
        assert format_.route(record(message).value() or b"").table == table


def test_whitespace_and_order_do_not_matter() -> None:
    wrapped = with_schema(envelope(), {"id": connect("int32"), "note": connect("string")})
    turned = {"payload": wrapped["payload"], "schema": wrapped["schema"]}
    format_ = Debezium()
    for text in (json.dumps(wrapped), json.dumps(wrapped, indent=1), json.dumps(turned)):
        for _ in range(2):
            one = record(text.encode())
            assert routed(one) == ("shop", "orders", False)
            assert change_of(one, format_).after == {"id": 7, "note": "a"}


def test_an_empty_schema_is_no_schema() -> None:
    one = record({"schema": None, "payload": envelope()}, {"schema": None, "payload": {"id": 7}})
    row = envelope(after={"a": 7, "b": 1})
    two = record({"schema": None, "payload": row}, {"schema": None, "payload": {"a": 7, "b": 1}})
    format_ = Debezium()
    assert fast(one) == routed(one) == ("shop", "orders", False)
    assert change_of(one, format_).key == {"id": 7}
    assert change_of(two, format_).key_columns == ("a", "b")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (record(None, {"id": 7}), "tombstone"),
        (record(None, None), "tombstone"),
        (
            record(envelope("m", at={**POSTGRESQL, "schema": "", "table": ""}, message={"prefix": "a"})),
            "message",
        ),
        (
            record(
                {
                    "status": "BEGIN",
                    "id": "f6:158",
                    "event_count": None,
                    "data_collections": None,
                    "ts_ms": 1,
                },
                topic="my.transaction",
            ),
            "transaction",
        ),
        (
            record({"status": "END", "id": "0-1-2", "event_count": 1, "data_collections": [], "ts_ms": 1}),
            "transaction",
        ),
        (record({"ts_ms": 1}, {"serverName": "my"}, topic="__debezium-heartbeat.my"), "heartbeat"),
        (record({"schema": {"type": "struct"}, "payload": {"ts_ms": 1}}), "heartbeat"),
        (ddl("SET character_set_server=utf8mb4", at={"db": "", "table": None}, database=""), "database_ddl"),
        (ddl("CREATE DATABASE `crm`", at={"table": None}), "database_ddl"),
        (ddl("CREATE INDEX ix ON orders (id)", at={"table": ""}), "database_ddl"),
    ],
)
def test_a_record_without_a_row_is_skipped(one: CapturedRecord, reason: str) -> None:
    assert Debezium().explain(one) == Skip(reason)
    changes: list[Change] = []
    Debezium().decode(one, changes)
    assert [change.op for change in changes] == (["ddl"] if reason == "database_ddl" else [])


# ---- DDL


def test_ddl_belongs_to_its_table_and_stands_alone() -> None:
    change = {"type": "ALTER", "id": '"shop"."orders"', "table": definition({"id": "INT"})}
    one = ddl("ALTER TABLE orders ADD x int", change)
    assert routed(one) == ("shop", "orders", True)
    told = change_of(one)
    assert (told.op, told.sql, told.key) == ("ddl", "ALTER TABLE orders ADD x int", None)
    assert (told.source_time_ms, told.transaction) == (1763000000000, "24DA167-0C0C-11E8-8442-00059A3C7B00:7")


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ('"shop"."order.items"', ("shop", "order.items")),
        ('"shop"."a"","""', ("shop", 'a","')),
        ('"db"."sales"."orders"', ("sales", "orders")),
    ],
)
def test_names_in_quotes_are_taken_as_they_are(id_: str, expected: tuple[str, str]) -> None:
    one = ddl("DROP TABLE x", {"type": "DROP", "id": id_, "table": None})
    assert routed(one) == (*expected, True)


def test_a_rename_belongs_to_the_table_that_is_there_after_it() -> None:
    change = {"type": "ALTER", "id": '"shop"."swap_old"', "table": definition({"id": "INT"})}
    one = ddl("RENAME TABLE vouchers TO swap_old", change, at={"table": "vouchers,swap_old"})
    assert routed(one) == ("shop", "swap_old", True)
    without_details = ddl("RENAME TABLE vouchers TO swap_old", at={"table": "vouchers,swap_old"})
    assert routed(without_details) == ("shop", "swap_old", True)


def test_a_truncate_that_comes_as_ddl_is_a_truncate() -> None:
    assert change_of(ddl(" truncate TABLE orders")).op == "truncate"


# ---- flattened

SIGNS = {
    "__op": "u",
    "__db": "shop",
    "__table": "orders",
    "__source_ts_ms": 1763000000000,
    "__deleted": "false",
}


def flat(row: dict[str, Any], **kwargs: Any) -> CapturedRecord:
    return record(row, {"id": 7}, **kwargs)


def test_a_flattened_record_is_an_update_without_a_row_before() -> None:
    one = flat({"id": 7, "note": "a", **SIGNS, "__transaction_id": "f6:1"}, topic="any")
    assert routed(one) == ("shop", "orders", False)
    change = change_of(one)
    assert (change.op, change.before, change.after) == ("update", None, {"id": 7, "note": "a"})
    assert (change.key_columns, change.source_time_ms, change.transaction) == (("id",), 1763000000000, "f6:1")


@pytest.mark.parametrize(
    ("signs", "op"),
    [
        ({"__op": "c"}, "insert"),
        ({"__op": "r"}, "snapshot"),
        ({"__op": "d", "__deleted": "true"}, "delete"),
        ({"__op": None, "__deleted": "true"}, "delete"),
        ({"__op": None, "__deleted": True}, "delete"),
        ({"__op": None}, "update"),
    ],
)
def test_a_flattened_record_tells_what_happened(signs: dict[str, Any], op: str) -> None:
    change = change_of(flat({"id": 7, **SIGNS, **signs}))
    assert change.op == op
    assert (change.before, change.after) == (({"id": 7}, None) if op == "delete" else (None, {"id": 7}))


def test_headers_tell_as_much_as_fields() -> None:
    headers = (("__op", "d"), ("__db", '"shop"'), ("__source_table", '{"schema":{},"payload":"orders"}'))
    one = flat({"id": 7, "source": "web", "op": 5, "ddl": None}, topic="any", headers=headers)
    assert routed(one) == ("shop", "orders", False)
    change = change_of(one)
    assert (change.op, change.before) == ("delete", {"id": 7, "source": "web", "op": 5, "ddl": None})


@pytest.mark.parametrize(
    "row",
    [
        {"id": 7, "type": "log", "data": "a"},
        {"ts_ms": 7},
        {"id": 7, "aggregate_type": "a", "type": "b", "additional_data": "c"},
    ],
    ids=["signal", "heartbeat", "notification"],
)
def test_a_row_that_looks_like_a_record_without_one_is_a_row_if_its_headers_say_so(
    row: dict[str, Any],
) -> None:
    headers = (("__op", "c"), ("__db", "shop"), ("__table", "events"))
    one = record(row, None, topic="any", headers=headers)
    assert routed(one) == ("shop", "events", False)
    assert change_of(one).after == row
    assert isinstance(Debezium().explain(record(row, headers=(("traceparent", "00"), ("db", "crm")))), Skip)


def test_the_topic_tells_the_table_where_nothing_else_does() -> None:
    one = flat({"id": 7, "__deleted": "false"}, topic="my.shop.orders")
    assert routed(one) == ("shop", "orders", False)


@pytest.mark.parametrize(
    ("prefix", "table"), [("my", "order.items"), ("prod.my", "orders"), ("prod.my", "order.items")]
)
def test_a_topic_with_more_dots_tells_the_table_if_its_prefix_is_known(prefix: str, table: str) -> None:
    topic = f"{prefix}.shop.{table}"
    known = [{"__source_name": prefix}, {"__db": "shop", "__table": table}]
    unknown = [{"__op": "c"}, {"__db": "shop"}]
    (known if prefix == "my" else unknown).append({"__table": table})  # before the table are just two names
    for signs in known:
        assert routed(flat({"id": 7, **signs}, topic=topic)) == ("shop", table, False)
    for signs in unknown:
        with pytest.raises(UndecodableRecord, match=r"does not name its (table|database): .*add\.fields"):
            routed(flat({"id": 7, **signs}, topic=topic))


def test_the_topic_tells_the_schema_of_postgresql() -> None:
    headers = (("__debezium.context.connectorName", "postgresql"), ("__db", "shop"))
    assert routed(flat({"id": 7}, topic="my.sales.orders", headers=headers)) == ("sales", "orders", False)


@pytest.mark.parametrize("topic", ["any", "prod.my.sales.orders"])
def test_a_database_of_postgresql_is_no_schema(topic: str) -> None:
    one = flat({"id": 7, "__db": "shop", "__table": "orders", "__connector": "postgresql"}, topic=topic)
    with pytest.raises(UndecodableRecord, match=r"does not name its database: .*for PostgreSQL, schema"):
        routed(one)


def test_a_flattened_row_with_a_schema_has_typed_values() -> None:
    fields = [connect("int32", "time.Date") | {"field": "born"}, connect("string") | {"field": "__op"}]
    fields.append(connect("int32") | {"field": "id"})
    schema = {"type": "struct", "fields": fields, "name": "my.shop.orders.Value"}
    one = flat({"schema": schema, "payload": {"id": 7, "born": 0, "__op": "c"}})
    change = change_of(one)
    assert str((change.after or {})["born"]) == "1970-01-01"
    assert (change.types or {})["born"] == "date"


def test_what_a_flattened_row_tells_of_itself_is_no_column_with_a_schema_either() -> None:
    columns = [connect("int32") | {"field": "id"}, connect("int32", "time.Date") | {"field": "born"}]
    signs = [connect("string") | {"field": name} for name in ("__op", "__deleted", "__table")]
    schema = {"type": "struct", "fields": columns + signs}
    payload = {"id": 7, "born": 0, "__op": "c", "__deleted": "false", "__table": "orders"}
    change = change_of(flat({"schema": schema, "payload": payload}))
    assert change.types == {"id": "int", "born": "date"}
    assert (change.after or {}).keys() == {"id", "born"}


def test_fields_with_a_prefix_of_their_own_are_no_columns() -> None:
    row = {"id": 7, "cdc_op": "d", "cdc_db": "crm", "cdc_table": "tags", "cdc_source_ts_ms": 5}
    one = flat({**row, "__deleted": "true"}, topic="any")
    format_ = Debezium(DebeziumSettings(fields_prefix="cdc_"))
    assert routed(one, format_) == ("crm", "tags", False)
    change = change_of(one, format_)
    assert (change.op, change.before, change.source_time_ms) == ("delete", {"id": 7}, 5)
    with pytest.raises(UndecodableRecord, match=r"prefix 'cdc_': set debezium\.fields_prefix"):
        change_of(one)


def test_columns_that_look_a_little_like_such_fields_are_columns() -> None:
    row = {"id": 7, "op": "c", "table": "a", "stop": "c", "cdc_op": "x", "cdc_table": "t"}
    assert change_of(flat({**row, **SIGNS})).after == row
