"""A real server's stream through real Maxwell, replayed, against the server's own rows at the end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pytest
from captured import CapturedRecord, truth
from maxwell_messages import DDL_TOPIC, captured, knowing
from memory_replica import ALTERED, VANISHED, Replica, decode, differences
from truth_rows import same

from handlers import Change
from worker.formats.interface import Skip
from worker.formats.maxwell.format import Maxwell


def reader() -> Maxwell:
    """As the worker has it: the DDL topic was read to its end before the first row is decoded."""
    return knowing(*(record for record in captured() if record.topic() == DDL_TOPIC))


@pytest.fixture(scope="module")
def replica() -> Replica:
    return Replica(bootstraps=True).play(reader(), captured())


# Maxwell writes nothing of TRUNCATE TABLE, and DROP DATABASE drops no table by its name.
NOT_WRITTEN = {("shop.coupons_moved", "row too many"): 2, ("scratch_db.s", "table too many"): 1}
# The table that starts a bootstrap is Maxwell's own.
OF_MAXWELL = {("maxwell.bootstrap", "table too many"): 1}
# What Maxwell writes otherwise: bit(64) from 32-bit pieces, times of day only, JSON's null as NULL and 1e100
# with all its digits, a backtick in a name doubled.
WRITTEN_WRONG = {
    ("shop.all_types", "c_bit64"): 51,
    ("shop.all_types", "c_json"): 15,
    ("shop.all_types", "c_time"): 3,
    ("shop.all_types", "c_time6"): 3,
    ("shop.order.items", "q`tick"): 2,
    ("shop.order.items", "q``tick"): 2,
}


def test_a_replica_differs_from_its_source_only_where_the_stream_does_not_say_it(replica: Replica) -> None:
    assert differences(replica) == ALTERED | VANISHED | NOT_WRITTEN | OF_MAXWELL | WRITTEN_WRONG


def test_only_statements_about_databases_and_the_marks_of_a_bootstrap_are_passed_over(
    replica: Replica,
) -> None:
    assert replica.skipped == {("database_ddl", 0), ("bootstrap", 0)}


def every_change(format_: Maxwell) -> Iterator[tuple[CapturedRecord, list[Change]]]:
    for record in captured():
        yield record, decode(format_, record)


def test_every_record_of_the_stream_is_a_change_or_says_why_not() -> None:
    """Of 530 updates 12 changed their row's key."""
    operations = Counter(change.op for _, changes in every_change(reader()) for change in changes)
    assert operations == {"insert": 1134, "update": 518, "delete": 96, "snapshot": 40, "ddl": 51}


def test_a_change_of_the_key_is_a_delete_and_an_insert_of_one_record() -> None:
    pairs = [changes for _, changes in every_change(reader()) if len(changes) > 1]
    assert len(pairs) == 12
    for gone, come in pairs:
        assert (gone.op, gone.index, come.op, come.index) == ("delete", 0, "insert", 1)
        assert gone.key != come.key


def test_before_and_after_of_an_update_differ_in_the_columns_of_old_alone() -> None:
    updates = 0
    for record, changes in every_change(reader()):
        if changes and changes[0].op == "update":
            (change,) = changes
            assert change.before is not None
            assert change.after is not None
            changed = {c for c, value in change.after.items() if not same(change.before[c], value)}
            assert changed == json.loads(record.value() or b"")["old"].keys()
            updates += 1
    assert updates == 518


def test_types_are_those_of_the_servers_own_tables_at_the_end() -> None:
    format_ = reader()
    seen: dict[str, dict[str, str]] = {}
    for record, changes in every_change(format_):
        route = format_.explain(record)
        if changes and changes[0].types is not None and not isinstance(route, Skip):
            seen[f"{route.database}.{route.table}"] = dict(changes[0].types)
    # Altered after their last row; or no longer there.
    late = {"shop.orders", "shop.all_types", "shop.order-items", "shop.order.items"}
    gone = {
        "maxwell.bootstrap",
        "scratch_db.s",
        "crm.swap_old",
        "crm.swap_new",
        "crm.coupons",
        "crm.coupons_copy",
    }
    tables = truth()
    assert len(seen.keys() - late - gone) > 15
    for table in seen.keys() - late - gone:
        display_width = re.compile(r"((?:small|medium|big)?int|year|tinyint)\((?!1\))\d+\)")
        expected = {name: display_width.sub(r"\1", text) for name, text in tables[table].columns.items()}
        assert seen[table] == expected, table


def test_values_are_the_same_whichever_way_a_record_was_read() -> None:
    """Each record by a reader that read none before it, and by one that read many of its shape."""
    practised = reader()
    for record in captured():
        fresh = Maxwell()
        fresh._history = practised._history  # learning the topic for each record takes its time
        expected = decode(fresh, record)
        for _ in range(70):
            again = decode(practised, record)
        assert repr(again) == repr(expected)


def test_nothing_is_lost_of_a_stream_whose_table_definitions_are_not_known() -> None:
    for record in captured():
        fields = json.loads(record.value() or b"", parse_float=Decimal)
        for change in decode(Maxwell(), record):
            if change.op == "ddl":
                continue
            row = change.before if change.op == "delete" else change.after
            sent = {**fields["data"], **fields.get("old", {})} if change.op == "delete" else fields["data"]
            assert row is not None
            assert change.types is None
            for name, value in row.items():
                if isinstance(sent[name], Decimal):
                    assert Decimal(repr(value) if isinstance(value, float) else value) == sent[name]
                elif isinstance(sent[name], dict | list):
                    assert json.loads(value, parse_float=Decimal) == sent[name]
                else:
                    assert (type(value), value) == (type(sent[name]), sent[name])
