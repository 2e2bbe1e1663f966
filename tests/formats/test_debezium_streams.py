"""Every record of streams that real Debezium wrote: its route, its changes, its place in the log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from captured import records, truth
from debezium_streams import in_source_order, knowing
from memory_replica import decode

from handlers import Change
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Skip

COUNTS = {
    "debezium-schemas": {
        "snapshot": 350,
        "insert": 784,
        "update": 517,
        "delete": 97,
        "truncate": 2,
        "ddl": 76,
    },
    "debezium-plain": {
        "snapshot": 350,
        "insert": 784,
        "update": 517,
        "delete": 97,
        "truncate": 2,
        "ddl": 76,
    },
    "debezium-strings": {"snapshot": 91, "insert": 78, "update": 151, "delete": 10},
    "debezium-unwrap": {"snapshot": 248, "insert": 689, "update": 433, "delete": 86},
}
SKIPPED = {
    "debezium-schemas": {
        "tombstone": 97,
        "transaction": 1270,
        "heartbeat": 9,
        "database_ddl": 17,
        "snapshot_drop": 29,
    },
    "debezium-plain": {"tombstone": 97, "transaction": 1270, "database_ddl": 17, "snapshot_drop": 29},
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
    decoders = [shape.practice.decoder for shape in practised._shapes._shapes.values()]
    assert any(decoders) is (stream != "debezium-unwrap"), "flattened records are read column by column"
    for record in records(stream):
        assert repr(decode(practised, record)) == repr(decode(fresh, record))


def test_streams_with_and_without_schemas_give_the_same_changes() -> None:
    def all_changes(stream: str) -> dict[Any, list[Any]]:
        format_ = knowing(stream)
        found: dict[Any, list[Any]] = {}
        for record in in_source_order(format_, stream):
            for change in decode(format_, record):
                told = (change.op, change.before, change.after, change.key_columns, change.sql, change.types)
                found.setdefault((format_.log_position(record), change.transaction), []).append(told)
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
        place = format_.log_position(record)
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
        place = format_.log_position(record)
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
