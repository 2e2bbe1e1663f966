"""DTS records one by one: their changes, and what is said of those that have none."""

from __future__ import annotations

from typing import Any

import pytest
from captured import CapturedRecord
from dts_records import NULL, Value, encode, record_fields, sent, value

from handlers import Change
from worker.formats import registry
from worker.formats.dts.format import DTS
from worker.formats.interface import UndecodableRecord

NONE = "NONE"


def decode(*records: CapturedRecord, format_: DTS | None = None) -> list[Change]:
    changes: list[Change] = []
    for item in records:
        (format_ or DTS()).decode(item, changes)
    return changes


def image(id_: int | str, note: str | None) -> list[Value]:
    """A row of shop.orders; an id in text is EmptyObject's."""
    first: Value = id_ if isinstance(id_, str) else value("Integer", precision=8, value=str(id_))
    second = NULL if note is None else value("Character", charset="utf8mb4", value=note.encode())
    return [first, NONE if note == NONE else second]


def test_an_insert_is_its_row_with_types_key_and_place() -> None:
    (change,) = decode(sent(sourceTxid="1234"))
    assert change == Change(
        op="insert",
        before=None,
        after={"id": 7, "note": "seven"},
        key_columns=("id",),
        sql=None,
        source_time_ms=1_763_000_000_000,
        topic="dts",
        partition=3,
        offset=42,
        index=0,
        transaction="1234",
        types={"id": "bigint", "note": "varchar"},
    )


def test_an_update_has_both_rows_and_a_delete_the_old_one() -> None:
    images = {"beforeImages": image(7, "a"), "afterImages": image(7, None)}
    (update,) = decode(sent(operation="UPDATE", **images))
    assert (update.op, update.before, update.after) == (
        "update",
        {"id": 7, "note": "a"},
        {"id": 7, "note": None},
    )
    (delete,) = decode(sent(operation="DELETE", beforeImages=image(7, "a"), afterImages=None))
    assert (delete.op, delete.before, delete.after, delete.key) == (
        "delete",
        {"id": 7, "note": "a"},
        None,
        {"id": 7},
    )


def test_an_update_of_the_key_is_a_delete_of_the_old_row_and_an_insert_of_the_new_one() -> None:
    gone, come = decode(
        sent(operation="UPDATE", beforeImages=image(1, "a"), afterImages=image(7, "b"), sourceTxid="9")
    )
    assert (gone.op, gone.before, gone.after, gone.index) == ("delete", {"id": 1, "note": "a"}, None, 0)
    assert (come.op, come.before, come.after, come.index) == ("insert", None, {"id": 7, "note": "b"}, 1)
    assert (gone.key, come.key, gone.transaction, come.transaction) == ({"id": 1}, {"id": 7}, "9", "9")


def test_without_a_primary_key_every_update_is_an_update() -> None:
    for tags in ({}, {"pk_uk_info": '{"uk":["id"]}'}, {"pk_uk_info": ""}):
        images = {"beforeImages": image(1, "a"), "afterImages": image(7, "a")}
        (change,) = decode(sent(operation="UPDATE", tags=tags, **images))
        assert (change.op, change.key_columns) == ("update", None)


def test_a_key_of_several_columns_keeps_their_order() -> None:
    (change,) = decode(sent(tags={"pk_uk_info": '{"u":["note"],"PRIMARY":["note","id"]}'}))
    assert change.key_columns == ("note", "id")


def test_a_column_whose_image_was_not_recorded_is_absent() -> None:
    (insert,) = decode(sent(afterImages=image(7, NONE)))
    assert insert.after == {"id": 7}
    (delete,) = decode(sent(operation="DELETE", beforeImages=image(7, NONE), afterImages=None))
    assert delete.before == {"id": 7}


def test_what_was_not_recorded_of_a_row_after_its_update_is_as_it_was_before() -> None:
    # As MySQL logs it with binlog_row_image=MINIMAL: before, the key alone; after, what changed alone.
    (change,) = decode(sent(operation="UPDATE", beforeImages=image(7, NONE), afterImages=image(NONE, "new")))
    assert (change.op, change.before, change.after) == ("update", {"id": 7}, {"id": 7, "note": "new"})


def test_an_update_whose_old_row_was_not_logged_has_no_before() -> None:
    (change,) = decode(sent(operation="UPDATE", beforeImages=None))
    assert (change.op, change.before, change.after) == ("update", None, {"id": 7, "note": "seven"})


def test_null_comes_in_two_spellings() -> None:
    (one,), (other,) = decode(sent(afterImages=image(7, None))), decode(sent(afterImages=[None, None]))
    assert (one.after, other.after) == ({"id": 7, "note": None}, {"id": None, "note": None})


@pytest.mark.parametrize(("txid", "gtid", "transaction"), [
    ("", None, None), ("0", None, None), ("0", "uuid:158", "uuid:158"), ("77", "uuid:158", "77"),
])  # fmt: skip
def test_a_transaction_is_named_by_its_id_or_its_gtid(txid: str, gtid: str | None, transaction: str) -> None:
    (change,) = decode(sent(sourceTxid=txid, tags={} if gtid is None else {"GTID": gtid}))
    assert change.transaction == transaction


def test_changes_of_one_table_share_their_types() -> None:
    shared = DTS()
    one, other = decode(sent(), sent(afterImages=image(8, "x")), format_=shared)
    assert one.types is other.types


def test_a_type_that_only_values_tell_is_known_from_the_first_value_on() -> None:
    fields = [{"name": "a", "dataTypeNumber": 253}, {"name": "b", "dataTypeNumber": 252}]
    text = value("Character", charset="gbk", value="中".encode("gbk"))
    blob = value("BinaryObject", type="blob", value=b"\xff")
    common = {"fields": fields, "tags": {}}
    changes = decode(
        sent(**common, afterImages=[NULL, NULL]),
        sent(**common, afterImages=[text, NULL]),
        sent(**common, afterImages=[NULL, blob]),
        sent(**common, afterImages=[NULL, NULL]),
        format_=DTS(),
    )
    assert [change.types for change in changes] == [
        {}, {"a": "varchar"}, {"a": "varchar", "b": "blob"}, {"a": "varchar", "b": "blob"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "op"),
    [
        ("ALTER TABLE orders ADD x int", "ddl"),
        ("/* now */ truncate table orders", "truncate"),
        ("TRUNCATE `orders`", "truncate"),
        ("ALTER TABLE orders TRUNCATE PARTITION p0", "ddl"),
    ],
)
def test_ddl_is_one_change_with_its_statement(sql: str, op: str) -> None:
    ddl = sent(operation="DDL", objectName="shop", fields=None, afterImages=sql, tags={"GTID": "uuid:5"})
    (change,) = decode(ddl)
    assert (change.op, change.sql, change.before, change.after) == (op, sql, None, None)
    assert (change.key, change.types, change.transaction) == (None, None, "uuid:5")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("ALTER TABLE crm.a RENAME TO b", "RENAME TABLE `crm`.`a` TO `shop`.`b`"),
        ("RENAME TABLE crm.a TO b, c TO crm.a",
         "RENAME TABLE `crm`.`a` TO `shop`.`b`, `shop`.`c` TO `crm`.`a`"),
        ("CREATE TABLE crm.a LIKE b", "CREATE TABLE `crm`.`a` LIKE `shop`.`b`"),
        ("DROP TABLE `crm`.`a`,`b` /* generated by server */", "DROP TABLE `crm`.`a`, `shop`.`b`"),
        # Nothing is untold.
        ("ALTER TABLE crm.a RENAME TO crm.b, ADD KEY (c)", None),
        ("CREATE TABLE crm.a (b int, KEY (b))", None),
        ("ALTER TABLE a RENAME TO crm.b", None),
        ("CREATE INDEX i ON crm.a (b)", None),
        ("ALTER TABLE crm.a ADD", None),
    ],
)  # fmt: skip
def test_a_statement_that_ran_in_another_database_tells_all_databases(sql: str, told: str | None) -> None:
    ddl: dict[str, Any] = {"operation": "DDL", "objectName": "shop", "fields": None, "afterImages": sql}
    [change] = decode(sent(**ddl))
    assert change.sql == (told or sql)
    for other in ({"objectName": None}, {"source": {"sourceType": "PostgreSQL", "version": "15"}}):
        [change] = decode(sent(**(ddl | other)))
        assert change.sql == sql


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"afterImages": image(7, "a")[:1]}, "`afterImages` has 1 values for 2 columns"),
        ({"afterImages": [*image(7, "a"), None]}, "`afterImages` has 3 values or more for 2 columns"),
        ({"afterImages": None}, "INSERT without `afterImages`"),
        ({"operation": "DELETE"}, "DELETE without `beforeImages`"),
        ({"afterImages": "text"}, "INSERT, but its images contain text"),
        ({"fields": None}, "`afterImages` has values, but `fields` is not an array"),
        ({"fields": "id,note"}, "`afterImages` has values, but `fields` is not an array"),
        ({"tags": {"pk_uk_info": "id"}}, "malformed"),
        ({"tags": {"pk_uk_info": '{"PRIMARY":"id"}'}}, "Expected `array`"),
        ({"source": {"sourceType": "Oracle", "version": "19"}}, "a stream of Oracle: only streams of MySQL"),
        ({"operation": "DDL", "afterImages": None}, "without a statement"),
        (
            {"afterImages": [value("Integer", precision=8, value="7.5"), NULL]},
            r"column 'id' in `afterImages`: .*7\.5",
        ),
        (
            {"afterImages": [NULL, value("Character", charset="klingon", value=b"x")]},
            "column 'note' in `afterImages`: text in an unknown character set, 'klingon'",
        ),
    ],
)
def test_what_cannot_be_decoded_says_what_was_found_and_changes_nothing(fields: Any, said: str) -> None:
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord, match=said):
        DTS().decode(sent(**fields), changes)
    assert changes == []


def test_bytes_behind_the_last_field_are_refused() -> None:
    with pytest.raises(UndecodableRecord, match="3 bytes too many after its last field"):
        decode(sent(encode(record_fields()) + b"\1\2\3"))


def test_the_format_has_its_name() -> None:
    assert isinstance(registry.get("dts"), DTS)
