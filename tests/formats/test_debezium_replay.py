"""A real server's stream through real Debezium, replayed, against the server's own rows at the end."""

from __future__ import annotations

import pytest
from captured import records, truth
from debezium_streams import in_source_order, knowing
from memory_replica import ALTERED, VANISHED, Replica, decode, differences
from truth_rows import expected_row, same
from workload_events import reader

from worker.formats.debezium.format import Debezium
from worker.formats.interface import Skip

# What Debezium writes otherwise: dates that no calendar has as 1970-01-01, floats of its snapshot with six
# digits, 1e100 in JSON with all its digits.
WRITTEN_BY_DEBEZIUM = {
    ("crm.legacy", "d"): 4,
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
    return Replica().play(format_, in_source_order(format_, stream))


@pytest.mark.parametrize("stream", ["debezium-schemas", "debezium-plain"])
def test_a_replica_differs_from_its_source_only_where_the_stream_does_not_say_it(stream: str) -> None:
    found = differences(replica_of(knowing(stream), stream))
    assert found == ALTERED | VANISHED | WRITTEN_BY_DEBEZIUM


def test_schemas_alone_tell_all_but_the_sign() -> None:
    found = differences(replica_of(Debezium(), "debezium-schemas"))
    assert found == ALTERED | VANISHED | WRITTEN_BY_DEBEZIUM | SIGNED


def of_tables(found: dict[tuple[str, str], int], replica: Replica) -> dict[tuple[str, str], int]:
    return {place: count for place, count in found.items() if place[0] in replica.tables}


def test_decimals_and_bytes_as_text_and_times_of_connect_are_read_too() -> None:
    """`time.precision.mode=connect` cuts to milliseconds, and has no time beyond a day; this connector wrote
    no truncates."""
    replica = Replica().play(reader("debezium-strings"), records("debezium-strings"))
    assert replica.skipped == {("tombstone", 0)}
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
    format_ = reader("debezium-unwrap")
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
