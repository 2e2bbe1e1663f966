"""Canal's packets one by one: where they belong, their changes, and what is said of those that have none."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from canal_messages import message as flat_message
from canal_packets import (
    DELETE,
    ES,
    QUERY,
    TRUNCATE,
    UPDATE,
    begin,
    ddl,
    end,
    field,
    packet,
    row,
    rows,
    sent,
)

from handlers import Change
from worker.formats.canal.format import Canal
from worker.formats.decoding import source_time
from worker.formats.interface import Apart, Skip, UndecodableRecord

ORDER = {"id": "7", "total": "9061.0", "note": None}


def decode(value: bytes) -> list[Change]:
    changes: list[Change] = []
    Canal().decode(sent(value), changes)
    return changes


def apart(value: bytes) -> list[tuple[str, bool, list[Change]]]:
    """(table, alone, changes) of each part."""
    found = Canal().explain(sent(value))
    assert isinstance(found, Apart)
    return [(route.table, route.alone, decode(part)) for route, part in found.parts]


def routed(value: bytes) -> tuple[str, str, bool]:
    found = Canal().explain(sent(value))
    assert not isinstance(found, Skip | Apart)
    return found.database, found.table, found.alone


def test_an_insert_is_its_row_with_types_key_and_place() -> None:
    value = packet(begin(), rows("orders", row(ORDER), header=field(13, "uuid:5")), end())
    assert routed(value) == ("shop", "orders", False)
    (change,) = decode(value)
    first = len(begin())
    assert change == Change(
        op="insert",
        before=None,
        after={"id": 7, "total": Decimal("9061.00"), "note": None},
        key_columns=("id",),
        sql=None,
        source_time_ms=ES,
        topic="cdc.shop",
        partition=3,
        offset=42,
        index=first,
        transaction="uuid:5",
        types={"id": "bigint", "total": "decimal(10,2)", "note": "varchar(20)"},
    )
    assert source_time(Canal(), sent(value)) == ES


def test_before_an_update_the_row_had_other_values_where_columns_are_marked() -> None:
    new = {"id": "7", "total": "2.00", "note": "b"}
    (change,) = decode(packet(rows("orders", row(new, {**new, "total": "1.00", "note": None}), event=UPDATE)))
    assert (change.op, change.after) == ("update", {"id": 7, "total": Decimal("2.00"), "note": "b"})
    assert change.before == {"id": 7, "total": Decimal("1.00"), "note": None}


def test_an_update_of_the_key_is_a_delete_of_the_old_row_and_an_insert_of_the_new_one() -> None:
    entry = rows("orders", row(ORDER, {**ORDER, "id": "1"}), row(ORDER, ORDER), event=UPDATE)
    gone, come, other = decode(packet(entry))
    assert [gone.op, come.op, other.op] == ["delete", "insert", "update"]
    assert (gone.key, come.key, gone.after, come.before) == ({"id": 1}, {"id": 7}, None, None)
    assert [gone.index, come.index, other.index] == [0, 1, 2]


def test_a_delete_has_its_row_before_and_none_after() -> None:
    (change,) = decode(packet(rows("orders", row(before=ORDER), event=DELETE)))
    assert (change.op, change.after) == ("delete", None)
    assert change.before == {"id": 7, "total": Decimal("9061.00"), "note": None}


def test_an_update_whose_old_row_was_not_logged_has_no_before() -> None:
    (change,) = decode(packet(rows("orders", row(ORDER), event=UPDATE)))
    assert (change.op, change.before) == ("update", None)


def test_statements_stand_alone_with_their_text() -> None:
    value = packet(ddl("orders", "ALTER TABLE orders ADD x INT"))
    assert routed(value) == ("shop", "orders", True)
    (change,) = decode(value)
    assert (change.op, change.sql, change.key_columns, change.types) == (
        "ddl",
        "ALTER TABLE orders ADD x INT",
        None,
        None,
    )
    (emptied,) = decode(packet(ddl("orders", "TRUNCATE orders", event=TRUNCATE)))
    assert emptied.op == "truncate"


def test_rows_of_several_tables_are_taken_apart_each_table_in_its_order() -> None:
    entries = [
        begin(),
        rows("orders", row(ORDER)),
        rows("items", row({**ORDER, "id": "8"})),
        rows("orders", row(before=ORDER), event=DELETE),
        end(),
    ]
    parts = apart(packet(*entries))
    assert [(table, alone) for table, alone, _ in parts] == [("orders", False), ("items", False)]
    assert [[change.op for change in changes] for _, _, changes in parts] == [
        ["insert", "delete"],
        ["insert"],
    ]


def test_nothing_goes_past_a_statement_in_a_record_of_several_tables() -> None:
    entries = [
        rows("orders", row(ORDER)),
        rows("items", row(ORDER)),
        ddl("orders", "RENAME TABLE orders TO items2, items TO orders"),
        rows("items", row(before=ORDER), event=DELETE),
        rows("orders", row(before=ORDER), event=DELETE),
    ]
    parts = [
        (table, alone, [change.op for change in changes]) for table, alone, changes in apart(packet(*entries))
    ]
    assert parts == [
        ("orders", False, ["insert"]),
        ("items", False, ["insert"]),
        ("orders", True, ["ddl"]),
        ("items", False, ["delete"]),
        ("orders", False, ["delete"]),
    ]


def test_a_change_has_one_index_in_its_record_however_it_is_taken_apart() -> None:
    entries = [
        rows("orders", row(ORDER), row(ORDER, {**ORDER, "id": "1"}), event=UPDATE),
        rows("items", *[row(ORDER)] * 20),
        ddl("orders", "ALTER TABLE orders ADD x INT"),
        rows("orders", *[row(ORDER)] * 20),
        rows("items", row(ORDER)),
    ]
    found = [change.index for _, _, changes in apart(packet(*entries)) for change in changes]
    assert len(found) == len(set(found)) == 3 + 20 + 1 + 20 + 1
    # Part by part they stand as the record has them: the last part of `items` is its last entry.
    assert found == sorted(found)
    # Of one part the same again, as a dead letter of it is read.
    route_and_part = Canal().explain(sent(packet(*entries)))
    assert isinstance(route_and_part, Apart)
    value = route_and_part.parts[-1][1]
    again = Canal().explain(sent(value))
    assert not isinstance(again, Skip | Apart)
    assert (again.table, decode(value)[0].index) == ("items", found[-1])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (packet(begin(), end()), "transaction"),
        (packet(), "transaction"),
        (packet(begin(), ddl("", "CREATE DATABASE x", event=QUERY)), "database_ddl"),
        (packet(ddl("orders", "INSERT INTO orders ...", event=QUERY, database="", is_ddl=0)), "query"),
    ],
)
def test_what_holds_no_change_says_why(value: bytes | None, reason: str) -> None:
    assert Canal().explain(sent(value)) == Skip(reason)


def test_an_entry_without_rows_is_finished_without_a_change() -> None:
    value = packet(rows("orders"))
    assert routed(value) == ("shop", "orders", False)
    assert decode(value) == []


def test_a_statement_that_canal_does_not_understand_goes_to_the_table_that_it_names() -> None:
    value = packet(ddl("", "ALTER TABLE t RENAME COLUMN a TO b", event=QUERY, database="", ran_in="shop"))
    assert routed(value) == ("shop", "t", True)
    assert [change.sql for change in decode(value)] == ["ALTER TABLE t RENAME COLUMN a TO b"]


def test_of_some_statements_canal_quotes_the_database() -> None:
    assert routed(packet(ddl("t", "DROP TABLE t", database="`shop`"))) == ("shop", "t", True)


WHOLE = packet(rows("orders", row(ORDER)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (WHOLE[:-3], "not a Canal packet"),
        (packet(rows("orders", row(ORDER)), type=3), "of type 3, not MESSAGES"),
        (packet(rows("orders", row(ORDER)), compression=2), "with compression 2"),
        (packet(b"\xff\xff"), "one of its entries"),
        (
            packet(rows("orders", row({**ORDER, "total": "x"}))),
            "column 'total' of type decimal(10,2) holds 'x'",
        ),
        (packet(rows("orders", row(ORDER), event=UPDATE, is_ddl=1)), "contradict each other"),
        (packet(rows("orders", row(ORDER), database="")), "without a database"),
        (packet(rows("", row(ORDER))), "rows without a table"),
        (packet(ddl("orders", " ")), "has no `sql`"),
        (packet(rows("orders", row(before=ORDER), event=UPDATE)), "an update without the row after it"),
        (packet(rows("orders", row({"id": "1"}), row(ORDER))), "not in the first"),
    ],
)
def test_what_cannot_be_read_is_told_and_gives_no_change(value: bytes, words: str) -> None:
    changes: list[Change] = []
    with pytest.raises(UndecodableRecord, match=re.escape(words)):
        explain_and_decode(value, changes)
    assert not changes


def explain_and_decode(value: bytes, changes: list[Change]) -> None:
    format_ = Canal()
    format_.explain(sent(value))
    format_.decode(sent(value), changes)


def test_a_packet_of_several_tables_is_not_decoded_as_if_it_were_of_one() -> None:
    with pytest.raises(UndecodableRecord, match=r"several tables: shop\.orders, shop\.items"):
        decode(packet(rows("orders", row(ORDER)), rows("items", row(ORDER))))


def test_flat_messages_and_packets_may_come_in_one_topic() -> None:
    format_, changes = Canal(), list[Change]()
    for record in (flat_message(), sent(WHOLE), flat_message()):
        assert not isinstance(format_.explain(record), Skip | Apart)
        format_.decode(record, changes)
    assert [change.after and change.after["id"] for change in changes] == [7, 7, 7]


def test_an_event_type_that_has_no_rows_is_no_operation() -> None:
    with pytest.raises(UndecodableRecord, match="event type 5"):
        decode(packet(rows("orders", row(ORDER), event=5)))
