"""Places in the source's log, and the definitions of tables by place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from debezium_messages import change_of, connect, create, ddl, definition, envelope, record, with_schema

from worker.formats.debezium.format import Debezium
from worker.formats.interface import LogPosition, PlainRoute, SeparateDDL, Skip

POSTGRESQL = {"connector": "postgresql", "schema": "sales", "file": None, "pos": None}


def at(pos: int, file: str = "mysql-bin.000003", **fields: Any) -> dict[str, Any]:
    return {"file": file, "pos": pos, **fields}


def value_at(format_: Debezium, value: Any, **place: Any) -> Any:
    """Of column `c` in a row at this place; read often, for readers remember where definitions hold."""
    one = record(envelope(after={"c": value}, at=place))
    for _ in range(3):
        told = (change_of(one, format_).after or {})["c"]
    return told


def test_the_format_has_ddl_on_topics_of_its_own() -> None:
    assert isinstance(Debezium(), SeparateDDL)


@pytest.mark.parametrize(
    ("one", "place"),
    [
        (record(envelope(at=at(484, row=2))), LogPosition("my", (3, 484, 2), False)),
        (record(with_schema(envelope(at=at(484)), {})), LogPosition("my", (3, 484, 0), False)),
        (
            record(envelope(at={"file": "mariadb-bin.000012", "connector": "mariadb"})),
            LogPosition("my", (12, 484, 0), False),
        ),
        (record(envelope("t", at=at(9))), LogPosition("my", (3, 9, 0), True)),
        (create({"id": "INT"}, at=at(9)), LogPosition("my", (3, 9), True)),
        (ddl("CREATE DATABASE x", at=at(9, table=None)), LogPosition("my", (3, 9), True)),
        (
            record(envelope(at={**POSTGRESQL, "lsn": 24_023_128, "sequence": '["24023119","24023128"]'})),
            LogPosition("my", (24_023_119, 24_023_128), False),
        ),
        (
            record(envelope(at={**POSTGRESQL, "lsn": 7, "sequence": '[null,"7"]'})),
            LogPosition("my", (0, 7), False),
        ),
        (record(envelope(at={**POSTGRESQL, "lsn": 7, "sequence": "?"})), LogPosition("my", (0, 7), False)),
        (record(envelope(at={"file": None, "pos": None})), LogPosition("my", (), False)),
        (record(envelope(at={"file": "binlog"})), LogPosition("my", (), False)),
        (
            record({"id": 7, "__name": "f", "__source_file": "b.000002", "__source_pos": 5, "__op": "c"}),
            LogPosition("f", (2, 5, 0), False),
        ),
        (
            record(
                {"id": 7}, headers=(("__debezium.context.connectorLogicalName", "f"), ("__source_pos", "5"))
            ),
            LogPosition("f", (), False),
        ),
        (record({"id": 7, "__op": "c"}, topic="p.shop.orders"), LogPosition("p", (), False)),
        (record(None, {"id": 7}), None),
        (record({"ts_ms": 1}, topic="__debezium-heartbeat.my"), None),
        (record({"status": "END", "id": "1", "event_count": 1, "data_collections": []}), None),
        (record(b"?"), None),
        (record({"a": 1}), None),
    ],
)
def test_a_record_tells_its_place(one: Any, place: LogPosition | None) -> None:
    assert Debezium().log_position(one) == place


def test_transactions_of_postgresql_come_in_the_order_of_their_commits() -> None:
    """One that began earlier, and has the lower LSNs, may be committed later."""
    first = record(envelope(at={**POSTGRESQL, "lsn": 500, "sequence": '["100","500"]'}))
    second = record(envelope(at={**POSTGRESQL, "lsn": 300, "sequence": '["600","300"]'}))
    format_ = Debezium()
    one, two = format_.log_position(first), format_.log_position(second)
    assert one is not None
    assert two is not None
    assert one.order < two.order


# ---- definitions


def test_a_row_is_read_by_the_definition_at_its_place() -> None:
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(100)))
    format_.learn(create({"c": ("DECIMAL", 10, 2)}, at=at(200)))
    format_.learn(create({"c": ("VARCHAR", 10)}, at=at(4, "mysql-bin.000004")))
    assert value_at(format_, -1, **at(150)) == 2**64 - 1
    assert value_at(format_, "Bw==", **at(250)) == Decimal("0.07")
    assert value_at(format_, "Bw==", **at(10_000)) == Decimal("0.07")
    assert value_at(format_, "Bw==", **at(5, "mysql-bin.000004")) == "Bw=="
    assert value_at(format_, -1, **at(199)) == 2**64 - 1
    assert value_at(format_, -1, **at(99)) == -1


def test_a_definition_learned_later_counts_for_what_follows_it() -> None:
    """As when a worker reads on: the row's shape was practised before."""
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(100)))
    for _ in range(70):
        assert value_at(format_, -1, **at(150)) == 2**64 - 1
    format_.learn(create({"c": "BIGINT"}, at=at(200)))
    assert value_at(format_, -1, **at(250)) == -1
    assert value_at(format_, -1, **at(150)) == 2**64 - 1


def test_definitions_are_those_of_one_connector_and_table() -> None:
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT UNSIGNED"}))
    assert value_at(format_, -1) == 2**64 - 1
    assert value_at(format_, -1, name="other") == -1
    assert value_at(format_, -1, table="customers") == -1
    assert value_at(format_, -1, db="crm") == -1


def test_a_snapshot_drops_and_creates_at_one_position() -> None:
    format_ = Debezium()
    drop = {"type": "DROP", "id": '"shop"."orders"', "table": None}
    format_.learn(ddl("DROP TABLE IF EXISTS `shop`.`orders`", drop, at=at(400, server_id=0)))
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(400, server_id=0)))
    assert value_at(format_, -1, **at(400, snapshot="true", server_id=0)) == 2**64 - 1
    assert value_at(format_, -1, **at(500)) == 2**64 - 1


@pytest.mark.parametrize("mark", ["true", "first", "first_in_data_collection", "last", True])
def test_a_drop_of_a_snapshot_is_none_of_the_source(mark: Any) -> None:
    """A snapshot that recovers the schema history sends no rows behind it, a blocking one only some."""
    format_, sql = Debezium(), "DROP TABLE IF EXISTS `shop`.`orders`"
    drop = {"type": "DROP", "id": '"shop"."orders"', "table": None}
    told = ddl(sql, drop, at=at(400, server_id=0, snapshot=mark))
    changes: list[Any] = []
    format_.decode(told, changes)
    assert (format_.explain(told), changes) == (Skip("snapshot_drop"), [])
    made = create({"c": "INT"}, at=at(400, server_id=0, snapshot=mark))
    assert change_of(made, format_).sql == "CREATE TABLE t (...)"


@pytest.mark.parametrize("mark", ["false", "incremental", "", False, None])
def test_a_drop_of_the_log_drops_the_table(mark: Any) -> None:
    drop = {"type": "DROP", "id": '"shop"."orders"', "table": None}
    told = ddl("DROP TABLE `orders`", drop, at=at(400, snapshot=mark))
    assert Debezium().explain(told) == PlainRoute("shop", "orders", True)
    assert change_of(told).sql == "DROP TABLE `orders`"


def test_a_dropped_table_has_no_definition() -> None:
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(100)))
    format_.learn(
        ddl("DROP TABLE `orders`", {"type": "DROP", "id": '"shop"."orders"', "table": None}, at=at(200))
    )
    assert value_at(format_, -1, **at(250)) == -1


def test_a_rename_takes_the_definition_along() -> None:
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(100)))
    renamed = {
        "type": "ALTER",
        "id": '"shop"."vouchers"',
        "previousId": '"shop"."orders"',
        "table": definition({"c": "BIGINT UNSIGNED"}),
    }
    format_.learn(ddl("RENAME TABLE orders TO vouchers", renamed, at=at(200)))
    assert value_at(format_, -1, **at(250, table="vouchers")) == 2**64 - 1
    assert value_at(format_, -1, **at(250)) == -1


def test_learning_again_changes_nothing() -> None:
    format_ = Debezium()
    records = [create({"c": "BIGINT UNSIGNED"}, at=at(100)), create({"c": "BIGINT"}, at=at(200))]
    for one in (*records, *records):
        format_.learn(one)
        format_.learn(one)
    assert [value_at(format_, -1, **at(pos)) for pos in (150, 250)] == [2**64 - 1, -1]
    types = change_of(record(envelope(after={"c": 1}, at=at(150))), format_).types
    format_.learn(records[0])
    assert change_of(record(envelope(after={"c": 1}, at=at(150))), format_).types is types


@pytest.mark.parametrize(
    "value", [None, b"?", {"a": 1}, envelope(), {"ddl": "x", "source": {}, "tableChanges": 5}]
)
def test_what_is_no_definition_is_passed_over(value: Any) -> None:
    format_ = Debezium()
    format_.learn(record(value))
    assert value_at(format_, -1) == -1


def test_a_flattened_row_without_its_place_has_the_latest_definition() -> None:
    format_ = Debezium()
    format_.learn(create({"c": "BIGINT"}, at=at(100)))
    format_.learn(create({"c": "BIGINT UNSIGNED"}, at=at(200)))
    signs = {"__op": "c", "__db": "shop", "__table": "orders", "__name": "my", "__connector": "mysql"}
    assert (change_of(record({"c": -1, **signs}), format_).after or {})["c"] == 2**64 - 1
    placed = {**signs, "__source_file": "mysql-bin.000003", "__source_pos": 150}
    assert (change_of(record({"c": -1, **placed}), format_).after or {})["c"] == -1


def test_the_definition_tells_the_key_of_a_record_without_one() -> None:
    format_ = Debezium()
    format_.learn(create({"id": "INT", "note": "TEXT"}))
    assert change_of(record(envelope(), None), format_).key_columns == ("id",)
    assert change_of(record(envelope(), {"note": "a"}), format_).key_columns == ("note",)


def test_a_column_that_the_connector_leaves_out_is_none_that_a_change_lacks() -> None:
    """`column.exclude.list`: the definition has the column all the same."""
    format_ = Debezium()
    format_.learn(create({"id": "INT", "name": "VARCHAR(9)", "ssn": "VARCHAR(9)"}, at=at(400)))
    old, new = {"id": 7, "name": "a"}, {"id": 7, "name": "b"}
    for op, before, after in (("c", None, new), ("u", old, new), ("d", old, None)):
        one = change_of(record(envelope(op, before=before, after=after, at=at(500)), {"id": 7}), format_)
        assert (one.before, one.after) == (before, after)
        assert one.is_whole
        assert one.before_is_whole


def test_a_column_that_the_definition_lacks_is_read_by_its_schema() -> None:
    format_ = Debezium()
    format_.learn(create({"id": "BIGINT UNSIGNED"}))
    columns = {"id": connect("int64"), "born": connect("int32", "time.Date")}
    change = change_of(record(with_schema(envelope(after={"id": -1, "born": 0}), columns)), format_)
    assert change.types == {"id": "bigint unsigned", "born": "date"}
    assert {name: str(value) for name, value in (change.after or {}).items()} == {
        "id": "18446744073709551615",
        "born": "1970-01-01",
    }


# ---- the connector's own record of its tables


def of_schema_history(sql: str | None = "ALTER TABLE orders ADD c BIGINT UNSIGNED", **fields: Any) -> Any:
    """A record of `schema.history.internal.kafka.topic`, as Debezium documents it."""
    table = {
        "type": "ALTER",
        "id": '"shop"."orders"',
        "table": definition({"id": "INT", "c": "BIGINT UNSIGNED"}),
    }
    place = {"ts_sec": 1763000000, "file": "mysql-bin.000003", "pos": 400, "server_id": 8015}
    value = {"source": {"server": "my"}, "position": place, "ts_ms": 1763000000123, "databaseName": "shop"}
    told = {} if sql is None else {"ddl": sql}
    return record({**value, **told, "tableChanges": [table], **fields}, topic="schema-history.my")


@pytest.mark.parametrize(
    "one",
    [
        of_schema_history(),
        of_schema_history(tableChanges=None),
        of_schema_history(None, schemaName="dbo", position={"commit_lsn": "00000025:00000d98:00a2"}),
        of_schema_history("SET character_set_server=utf8mb4", databaseName="", tableChanges=[]),
    ],
    ids=["alter", "before tableChanges", "of SQL Server", "of no table"],
)
def test_records_of_the_schema_history_topic_are_passed_over_by_name(one: Any) -> None:
    """Their statements are those of the DDL topic, and whoever reads all topics of a pattern gets both."""
    format_ = Debezium()
    assert format_.explain(one) == Skip("schema_history")
    changes: list[Any] = []
    format_.decode(one, changes)
    assert (changes, format_.log_position(one)) == ([], None)


def test_a_row_with_columns_of_the_schema_history_stays_a_row() -> None:
    point = {"x": 1.0, "y": 2.0, "wkb": "AQEAAAA=", "srid": None}
    told = {"__op": "c", "__db": "shop", "__table": "routes", "source": point, "position": point}
    assert not isinstance(Debezium().explain(record({"id": 7, **told})), Skip)
