"""Rows whose key their record does not tell: never one row with the key NULL for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import canal_messages as canal
import canal_packets as packets
import debezium_messages as debezium
import dts_records as dts
import pytest

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.debezium.format import Debezium
from worker.formats.dts.format import DTS
from worker.formats.interface import Format, Record, UndecodableRecord

_FLAT = {"__op": "c", "__db": "shop", "__table": "orders"}


def _changes(format_: Format, record: Record) -> list[Change]:
    into: list[Change] = []
    format_.decode(record, into)
    return into


@pytest.mark.parametrize(
    ("value", "key"),
    [
        pytest.param(debezium.envelope(), {"uid": 7}, id="a transform renamed the key's column"),
        pytest.param(debezium.envelope(after={"note": "a"}), {"id": 7}, id="column.exclude.list"),
        pytest.param(debezium.envelope("d", before={"note": "a"}), {"id": 7}, id="of a delete"),
        pytest.param({"_id": "a", "n": 1, **_FLAT}, {"id": "a"}, id="ExtractNewDocumentState"),
    ],
)
def test_a_row_of_debezium_without_a_column_of_its_key_is_undecodable(
    value: Mapping[str, Any], key: Mapping[str, Any]
) -> None:
    with pytest.raises(UndecodableRecord, match=r"key column '(uid|id)' is not in the row"):
        _changes(Debezium(), debezium.record(value, key))


@pytest.mark.parametrize("name", ["__dbz__physicalTableIdentifier", "__dbz__sourceIdentifier"])
@pytest.mark.parametrize("op", ["c", "d"])
def test_what_a_router_of_topics_adds_to_the_key_is_no_column(name: str, op: str) -> None:
    format_ = Debezium()
    for _ in range(3):
        row = {"before": {"id": 7, "note": "a"}} if op == "d" else {}
        [change] = _changes(
            format_, debezium.record(debezium.envelope(op, **row), {"id": 7, name: "my.shop.orders"})
        )
        assert (change.key_columns, change.key) == (("id",), {"id": 7})


def test_what_a_router_of_topics_adds_is_no_column_of_a_row_of_its_key_alone() -> None:
    key = {"id": 7, "__dbz__physicalTableIdentifier": "my.shop.orders"}
    [change] = _changes(Debezium(), debezium.record(debezium.envelope("d"), key))
    assert change.before == {"id": 7}


_ROUTED = {"id": 7, "__dbz__physicalTableIdentifier": "my.shop.orders_1"}


@pytest.mark.parametrize("told", [{}, {"__table": "orders_1"}, {"__db": "shop"}])
def test_a_flattened_row_of_several_tables_in_one_topic_has_to_tell_its_own(told: Mapping[str, str]) -> None:
    """Their keys may be equal: by the topic's name they would be one row."""
    record = debezium.record(
        {"id": 7, "__op": "c", "__connector": "mysql", **told}, _ROUTED, topic="my.shop.all_orders"
    )
    with pytest.raises(UndecodableRecord, match="ByLogicalTableRouter"):
        _changes(Debezium(), record)


def test_a_flattened_row_of_several_tables_in_one_topic_belongs_to_the_one_it_tells() -> None:
    told = {"__op": "c", "__connector": "mysql", "__db": "shop", "__table": "orders_1"}
    [change] = _changes(Debezium(), debezium.record({"id": 7, **told}, _ROUTED, topic="my.shop.all_orders"))
    assert change.key == {"id": 7}


@pytest.mark.parametrize("types", [None, {"note": "varchar(20)"}])
def test_a_row_of_canal_without_a_column_of_its_key_is_undecodable(types: Mapping[str, str] | None) -> None:
    with pytest.raises(UndecodableRecord, match="key column 'id' is not in the row"):
        _changes(Canal(), canal.message(data=[{"note": "a"}], mysqlType=types))


def test_a_later_row_of_a_message_of_canal_needs_its_key_too() -> None:
    with pytest.raises(UndecodableRecord, match="key column 'id' is not in the row"):
        _changes(Canal(), canal.message(data=[{"id": "7", "note": "a"}, {"note": "b"}]))


def test_a_later_row_of_a_packet_needs_its_key_too() -> None:
    two = packets.row({"id": "7", "note": "a"}), packets.row({"note": "b"})
    with pytest.raises(UndecodableRecord, match="key column 'id' is not in the row"):
        _changes(Canal(), packets.sent(packets.packet(packets.rows("orders", *two))))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"tags": {"pk_uk_info": '{"PRIMARY":["uid"]}'}}, id="no such column"),
        pytest.param(
            {"afterImages": ["NONE", dts.value("Character", charset="utf8mb4", value=b"a")]},
            id="not recorded",
        ),
    ],
)
def test_a_row_of_dts_without_a_column_of_its_key_is_undecodable(fields: Mapping[str, Any]) -> None:
    with pytest.raises(UndecodableRecord, match=r"key column '(uid|id)' is not in the row"):
        _changes(DTS(), dts.sent(**fields))


def _moved(connector: str, **before: Any) -> Record:
    at = {"connector": connector, "schema": "public" if connector == "postgresql" else None}
    row = {"id": 8, "note": "a"}
    return debezium.record(debezium.envelope("u", at=at, before=before, after=row), {"id": 8})


@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
def test_an_update_of_the_key_in_one_record_is_a_delete_and_an_insert(connector: str) -> None:
    """Whoever makes the record's key of other columns (ValueToKey) hides from Debezium that they changed."""
    gone, came = _changes(Debezium(), _moved(connector, id=7, note="a"))
    assert (gone.op, gone.before, gone.after, gone.index) == ("delete", {"id": 7, "note": "a"}, None, 0)
    assert (came.op, came.before, came.after, came.index) == ("insert", None, {"id": 8, "note": "a"}, 1)
    assert gone.moves_key
    assert came.moves_key


def test_what_stands_in_for_a_key_of_postgresql_that_is_not_told_is_no_other_key() -> None:
    [change] = _changes(Debezium(), _moved("postgresql", id=0, note="b"))
    assert (change.op, change.key) == ("update", {"id": 8})
