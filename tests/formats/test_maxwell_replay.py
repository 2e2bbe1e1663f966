"""A real server's stream through real Maxwell, replayed, against the server's own rows at the end."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from captured import CapturedRecord, truth
from maxwell_messages import DDL_TOPIC, captured, knowing

from handlers import Change
from worker.formats.interface import Skip
from worker.formats.maxwell.format import Maxwell

ABSENT = "absent"  # of a column: this row does not have it

Row = dict[str, Any]


def reader() -> Maxwell:
    """As the worker has it: the DDL topic was read to its end before the first row is decoded."""
    return knowing(*(record for record in captured() if record.topic() == DDL_TOPIC))


def decode(format_: Maxwell, record: CapturedRecord) -> list[Change]:
    changes: list[Change] = []
    format_.decode(record, changes)
    return changes


class Replica:
    """Tables kept by row events, and by the DDL that moves or drops whole tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[tuple[str, ...] | None, Row]]] = {}

    def apply(self, table: str, change: Change) -> None:
        if change.op == "ddl":
            self.apply_statement(table, change.sql or "")
            return
        rows = self.tables.setdefault(table, [])
        if change.op == "snapshot" and change.key_columns:
            key = change.key_columns
            rows[:] = [row for row in rows if any(row[1][c] != (change.after or {})[c] for c in key)]
        if change.before is not None:
            rows.remove(self.find(rows, change.key_columns, change.before))
        if change.after is not None:
            rows.append((change.key_columns, change.after))

    @staticmethod
    def find(rows: list[Any], key: tuple[str, ...] | None, before: Row) -> Any:
        for entry in rows:
            if key is None and entry[1] == before:
                return entry
            if key is not None and all(entry[1].get(column, ABSENT) == before[column] for column in key):
                return entry
        raise AssertionError(f"a change of a row that is not there: {before}")

    def apply_statement(self, table: str, sql: str) -> None:
        if sql.startswith("DROP TABLE"):
            self.tables.pop(table, None)
        elif renamed := re.fullmatch(r"RENAME TABLE `(\w+)`\.`(\w+)` TO `(\w+)`\.`(\w+)`", sql):
            database, name, new_database, new_name = renamed.groups()
            assert table == f"{new_database}.{new_name}"
            self.tables[table] = self.tables.pop(f"{database}.{name}", [])


@pytest.fixture(scope="module")
def replica() -> Replica:
    format_ = reader()
    replica = Replica()
    for record in captured():
        route = format_.explain(record)
        if isinstance(route, Skip):
            assert route.reason in ("database_ddl", "bootstrap")
            assert decode(format_, record) == []
            continue
        for change in decode(format_, record):
            assert route.alone == (change.op == "ddl")
            replica.apply(f"{route.database}.{route.table}", change)
    return replica


def expected_value(value: Any, column_type: str) -> Any:  # noqa: PLR0911 - one return a type
    """The server's value as the Python value that the documentation promises; zero dates are None."""
    name = re.match(r"\w+", column_type)[0]  # type: ignore[index]  # every type begins with its name
    if value is None:
        return None
    if isinstance(value, dict) and "json" in value:
        return msgspec.json.format(value["json"], indent=-1)
    if isinstance(value, dict):
        srid = value["srid"].to_bytes(4, "little") if "srid" in value else b""
        return srid + base64.b64decode(value["base64"])
    if name == "decimal":
        return Decimal(value)
    if name == "set":
        return tuple(value.split(",")) if value else ()
    if name == "time":
        sign, hours, minutes, seconds = re.fullmatch(r"(-?)(\d+):(\d+):([\d.]+)", value).groups()  # type: ignore[union-attr]
        micros = round(Decimal(seconds) * 1_000_000)
        length = timedelta(hours=int(hours), minutes=int(minutes), microseconds=micros)
        return -length if sign else length
    if "-00" in value if name in ("date", "datetime", "timestamp") else False:
        return None
    if name == "date":
        return date(*map(int, value.split("-")))
    if name in ("datetime", "timestamp"):
        moment = datetime.strptime(value, "%Y-%m-%d %H:%M:%S" + (".%f" if "." in value else ""))
        return moment.replace(tzinfo=UTC) if name == "timestamp" else moment
    if name in ("float", "double"):
        return float(value)
    return value


def same(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(found, tuple):  # a set, whose labels changed their order in the table's type
        return sorted(found) == sorted(expected)
    # The text tells 9061.0 from 9061.00; of floats the server's dump dropped the sign of zero.
    return bool(found == expected) and (isinstance(found, float) or str(found) == str(expected))


def differences(replica: Replica) -> dict[tuple[str, str], int]:
    """(table, column) -> in how many rows it differs; "row missing" and "row too many" count as columns."""
    found: Counter[tuple[str, str]] = Counter()
    tables = dict(replica.tables)
    for table, expected in truth().items():
        rest = [
            {name: expected_value(value, expected.columns[name]) for name, value in row.items()}
            for row in expected.rows
        ]
        for key, row in tables.pop(table, []):
            columns = key or tuple(row)
            match = next(
                (other for other in rest if all(same(row[c], other.get(c, ABSENT)) for c in columns)), None
            )
            if match is None:
                found[table, "row too many"] += 1
                continue
            rest.remove(match)
            for column in row.keys() | match.keys():
                if not same(row.get(column, ABSENT), match.get(column, ABSENT)):
                    found[table, column] += 1
        if rest:
            found[table, "row missing"] += len(rest)
    found.update({(table, "table too many"): 1 for table, rows in tables.items() if rows})
    return dict(found)


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
