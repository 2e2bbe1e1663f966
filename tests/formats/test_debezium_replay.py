"""A real server's stream through real Debezium, replayed, against the server's own rows at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from captured import records, truth
from debezium_replica import Replica, decode, differences, expected_row, in_source_order, knowing, same

from handlers import Change
from worker.formats.debezium import Debezium
from worker.formats.interface import Skip

# What no row event says, because the server rewrites the rows of an ALTER TABLE without one.
ALTERED = {
    ("crm.contacts", "age"): 14,
    ("crm.contacts", "extra"): 19,
    ("crm.contacts", "first_col"): 6,
    ("crm.contacts", "flag"): 6,
    ("crm.contacts", "rating"): 23,
    ("crm.contacts", "remark"): 19,
    ("crm.contacts", "score"): 5,
    ("shop.all_types", "c_added"): 101,
    ("shop.order-items", "uid"): 237,
    ("shop.order.items", "new.col"): 1,
    ("shop.order.items", "列"): 1,
    ("shop.orders", "total_g"): 502,
}
# Rows that went without a row event: by ON DELETE CASCADE, and by TRUNCATE PARTITION.
VANISHED = {("crm.child", "row too many"): 6, ("crm.parted", "row too many"): 4}
# What Debezium writes otherwise: dates that no calendar has as 1970-01-01, floats of its snapshot with six
# digits, 1e100 in JSON with all its digits.
WRITTEN_BY_DEBEZIUM = {
    ("crm.legacy", "d"): 4,
    ("crm.legacy", "ts"): 1,
    ("shop.all_types", "c_float"): 3,
    ("shop.all_types", "c_json"): 6,
}
# Without the tables' definitions a schema cannot tell BIGINT UNSIGNED from BIGINT: 2^64 - 1 is -1.
SIGNED = {
    ("crm.dec_key", "row missing"): 2,
    ("crm.dec_key", "row too many"): 2,
    ("shop.all_types", "c_added"): 100,
    ("shop.all_types", "c_bigu"): 48,
    ("shop.all_types", "row missing"): 1,
    ("shop.all_types", "row too many"): 1,
}


def replica_of(format_: Debezium, stream: str) -> Replica:
    replica = Replica()
    replica.play(format_, stream)
    return replica


@pytest.mark.parametrize("stream", ["debezium-schemas", "debezium-plain"])
def test_a_replica_differs_from_its_source_only_where_the_stream_does_not_say_it(stream: str) -> None:
    found = differences(replica_of(knowing(stream), stream))
    assert found == ALTERED | VANISHED | WRITTEN_BY_DEBEZIUM


def test_schemas_alone_tell_all_but_the_sign() -> None:
    found = differences(replica_of(Debezium(), "debezium-schemas"))
    assert found == ALTERED | VANISHED | WRITTEN_BY_DEBEZIUM | SIGNED


def named(stream: str, name: str) -> Debezium:
    """A reader that knows the tables of this stream: its own connector wrote no DDL topic, that of the plain
    stream saw the same statements."""
    format_ = Debezium()
    for record in records("debezium-plain"):
        value = (record.value_ or b"").replace(b'"name":"my2"', b'"name":"%s"' % name.encode())
        format_.learn(replace(record, value_=value))
    return format_


def of_tables(found: dict[tuple[str, str], int], replica: Replica) -> dict[tuple[str, str], int]:
    return {place: count for place, count in found.items() if place[0] in replica.tables}


def test_decimals_and_bytes_as_text_and_times_of_connect_are_read_too() -> None:
    """`time.precision.mode=connect` cuts to milliseconds, and has no time beyond a day; this connector wrote
    no truncates."""
    replica = Replica()
    format_ = named("debezium-strings", "my3")
    for record in records("debezium-strings"):
        route = format_.explain(record)
        for change in decode(format_, record):
            assert not isinstance(route, Skip)
            replica.apply(f"{route.database}.{route.table}", change)
    assert of_tables(differences(replica), replica) == WRITTEN_BY_DEBEZIUM | {
        ("shop.all_types", "c_added"): 101,
        ("shop.all_types", "c_time"): 3,
        ("shop.all_types", "c_time6"): 97,
        ("shop.all_types", "c_dt6"): 95,
        ("crm.coupons_copy", "table too many"): 1,
    }


def test_flattened_records_are_read_too() -> None:
    """Of updates they hold no row before: in a table without a key nobody can tell which row it was."""
    replica = Replica()
    format_ = named("debezium-unwrap", "my4")
    lost = 0
    for record in records("debezium-unwrap"):
        route = format_.explain(record)
        for change in decode(format_, record):
            assert not isinstance(route, Skip)
            assert change.op == "delete" or change.before is None
            if change.op == "update" and change.key_columns is None:
                lost += 1
            else:
                replica.apply(f"{route.database}.{route.table}", change)
    assert lost == 4
    found = of_tables(differences(replica), replica)
    assert found == {place: count for place, count in ALTERED.items() if place[0] in replica.tables} | {
        ("crm.event_log", "row too many"): 4,
        ("crm.event_log", "row missing"): 4,
    }


def test_every_row_of_all_types_in_the_snapshot_is_that_of_the_source() -> None:
    """Value for value and type for type, but for floats, which the snapshot rounds."""
    format_ = knowing("debezium-schemas")
    expected = {
        row["id"]: expected_row("shop.all_types", row) for row in truth("snapshot")["shop.all_types"].rows
    }
    seen = 0
    for record in records("debezium-schemas"):
        for change in decode(format_, record):
            if change.op != "snapshot" or not record.topic().endswith(".all_types"):
                continue
            assert change.after is not None
            row = expected[change.after["id"]]
            differing = {name for name, value in change.after.items() if not same(value, row[name])}
            assert differing <= {"c_float"}
            assert change.after.keys() == row.keys()
            seen += 1
    assert seen == len(expected) == 40


# ---- every record


COUNTS = {
    "debezium-schemas": {
        "snapshot": 350,
        "insert": 784,
        "update": 517,
        "delete": 97,
        "truncate": 2,
        "ddl": 105,
    },
    "debezium-plain": {
        "snapshot": 350,
        "insert": 784,
        "update": 517,
        "delete": 97,
        "truncate": 2,
        "ddl": 105,
    },
    "debezium-strings": {"snapshot": 91, "insert": 78, "update": 151, "delete": 10},
    "debezium-unwrap": {"snapshot": 248, "insert": 689, "update": 433, "delete": 86},
}
SKIPPED = {
    "debezium-schemas": {"tombstone": 97, "transaction": 1270, "heartbeat": 9, "database_ddl": 17},
    "debezium-plain": {"tombstone": 97, "transaction": 1270, "database_ddl": 17},
    "debezium-strings": {"tombstone": 10},
    "debezium-unwrap": {"tombstone": 86},
}


@pytest.mark.parametrize("stream", COUNTS)
def test_every_record_of_a_stream_is_a_change_or_says_why_not(stream: str) -> None:
    format_ = knowing(stream)
    operations: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for record in records(stream):
        route = format_.explain(record)
        changes = decode(format_, record)
        operations.update(change.op for change in changes)
        if isinstance(route, Skip):
            skipped[route.reason] += 1
            assert [change.op for change in changes] == (["ddl"] if route.reason == "database_ddl" else [])
        else:
            assert route.alone == (changes[0].op in ("ddl", "truncate"))
            assert (changes[0].offset, changes[0].index) == (record.offset(), 0)
    assert operations == COUNTS[stream]
    assert skipped == SKIPPED[stream]


@pytest.mark.parametrize("stream", ["debezium-schemas", "debezium-plain", "debezium-strings"])
def test_the_fast_route_is_that_of_the_slow_path(stream: str) -> None:
    format_ = Debezium()
    routed = 0
    for record in records(stream):
        explained = format_.explain(record)
        try:
            route = format_.route(record.value())  # type: ignore[arg-type]  # the router gives it None, too
        except Exception:
            assert isinstance(explained, Skip) or explained.alone
            continue
        if isinstance(explained, Skip):
            assert (route.database, route.table) == ("", "")
        else:
            assert (route.database, route.table, route.alone) == (
                explained.database,
                explained.table,
                explained.alone,
            )
            routed += 1
    assert routed == sum(COUNTS[stream].values()) - COUNTS[stream].get("ddl", 0)


@pytest.mark.parametrize("stream", COUNTS)
def test_values_are_the_same_whichever_way_a_record_was_read(stream: str) -> None:
    """By a reader that met each record's shape often, and by one that has just begun."""
    practised, fresh = knowing(stream), knowing(stream)
    for _ in range(3):
        for record in records(stream):
            decode(practised, record)
    assert any(shape.is_fast for shape in practised._shapes.values())
    for record in records(stream):
        assert repr(decode(practised, record)) == repr(decode(fresh, record))


def test_streams_with_and_without_schemas_give_the_same_changes() -> None:
    def all_changes(stream: str) -> dict[Any, list[Any]]:
        format_ = knowing(stream)
        found: dict[Any, list[Any]] = {}
        for record in in_source_order(format_, stream):
            for change in decode(format_, record):
                told = (change.op, change.before, change.after, change.key_columns, change.sql, change.types)
                found.setdefault((format_.place(record), change.transaction), []).append(told)
        return {(place.order, transaction): told for (place, transaction), told in found.items()}

    with_schemas, plain = all_changes("debezium-schemas"), all_changes("debezium-plain")
    assert with_schemas.keys() == plain.keys()
    for place, told in with_schemas.items():
        assert sorted(map(repr, told)) == sorted(map(repr, plain[place]))


# ---- places


def test_places_put_the_records_of_all_topics_in_one_order() -> None:
    """Each partition's own order is kept, and DDL has its place between the rows."""
    format_ = Debezium()
    last: dict[tuple[str, int], tuple[int, ...]] = {}
    barriers = 0
    for record in records("debezium-plain"):
        place = format_.place(record)
        if place is None:
            assert isinstance(format_.explain(record), Skip)
            continue
        assert place.stream == "my2"
        partition = (record.topic(), record.partition())
        assert place.order >= last.get(partition, ())
        last[partition] = place.order
        barriers += place.barrier
    assert barriers == 105 + 2


def test_a_snapshot_has_one_place_and_its_ddl_comes_before_its_rows() -> None:
    format_ = Debezium()
    rows: set[tuple[int, ...]] = set()
    statements: set[tuple[int, ...]] = set()
    for record in records("debezium-plain"):
        if b'"snapshot":"false"' in (record.value() or b'"snapshot":"false"'):
            continue
        place = format_.place(record)
        if place is not None:
            (statements if place.barrier else rows).add(place.order)
    assert (len(rows), len(statements)) == (1, 1)
    assert max(statements) < min(rows)


def test_the_time_is_that_of_the_source() -> None:
    for stream in COUNTS:
        format_ = Debezium()
        for record in records(stream):
            for change in decode(format_, record):
                assert format_.source_time_ms(record) == change.source_time_ms
                assert change.source_time_ms < record.timestamp_ms


def test_a_change_of_the_key_is_a_delete_and_an_insert() -> None:
    """Debezium itself writes two records."""
    format_ = Debezium()
    changed: list[tuple[str, Change]] = []
    for record in records("debezium-plain"):
        names = {name for name, _ in record.headers()}
        for change in decode(format_, record):
            if names & {"__debezium.newkey", "__debezium.oldkey"}:
                changed.append((record.topic(), change))
    assert Counter(change.op for _, change in changed) == {"delete": 13, "insert": 13}


def test_a_key_is_that_of_the_record() -> None:
    format_ = Debezium()
    keys: dict[str, set[Any]] = {}
    for record in records("debezium-plain"):
        for change in decode(format_, record):
            if change.op not in ("ddl", "truncate"):
                keys.setdefault(record.topic(), set()).add(change.key_columns)
    assert keys["my2.shop.orders"] == {("id",)}
    assert keys["my2.shop.order-items"] == {("order_id", "line_no"), ("uid",)}
    assert keys["my2.crm.event_log"] == {None}
    assert keys["my2.crm.only_unique"] == {("code",)}
    assert keys["my2.crm.dec_key"] == {("k", "u")}


def test_types_are_those_of_the_server() -> None:
    """But for display widths, which Debezium does not always tell."""
    format_ = knowing("debezium-plain")
    last: dict[str, Change] = {}
    for record in in_source_order(format_, "debezium-plain"):
        route = format_.explain(record)
        for change in decode(format_, record):
            if not isinstance(route, Skip) and change.types is not None:
                last[f"{route.database}.{route.table}"] = change
    compared = 0
    for table, expected in truth().items():
        # A table whose last row came before its last ALTER TABLE has the types of then.
        if table in last and (last[table].types or {}).keys() == expected.columns.keys():
            for column, text in expected.columns.items():
                told = (last[table].types or {})[column]
                assert told == text or told == text.replace("(20)", "").replace("(11)", "").replace("(3)", "")
                compared += 1
    assert compared > 100
