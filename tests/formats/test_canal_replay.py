"""A real server's stream through real Canal, replayed, against the server's own rows at the end."""

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
from canal_messages import captured, lines

from handlers import Change
from worker.formats import registry
from worker.formats.interface import Skip

ABSENT = "absent"  # of a column: this row does not have it

Row = dict[str, Any]


class Replica:
    """Tables kept by row events, and by the DDL that moves, empties or drops whole tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[tuple[str, ...] | None, Row]]] = {}

    def apply(self, table: str, change: Change) -> None:
        if change.op in ("ddl", "truncate"):
            self.apply_statement(table, change)
            return
        rows = self.tables.setdefault(table, [])
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

    def drop_database(self, sql: str) -> None:
        if dropped := re.fullmatch(r"DROP DATABASE (\w+)", sql):
            database = f"{dropped[1]}."
            self.tables = {name: rows for name, rows in self.tables.items() if not name.startswith(database)}

    def apply_statement(self, table: str, change: Change) -> None:
        sql = change.sql or ""
        of_tables = re.match(r"RENAME TABLE|ALTER TABLE \w+ RENAME TO", sql)
        renames = re.findall(r"(\w+) (?:RENAME )?TO ([\w.]+)", sql) if of_tables else []
        if change.op == "truncate":
            self.tables[table] = []
        elif sql.startswith("DROP TABLE"):
            self.tables.pop(table, None)
        elif renames:
            # The database in which the statement ran: the message names only that of the new table.
            for old, new in renames:
                target = new if "." in new else f"crm.{new}"
                self.tables[target] = self.tables.pop(f"crm.{old}")


@pytest.fixture(scope="module")
def replica() -> Replica:
    format_ = registry.get("canal")
    replica = Replica()
    for record in captured():
        route = format_.explain(record)
        changes: list[Change] = []
        format_.decode(record, changes)
        if isinstance(route, Skip):
            assert route.reason == "database_ddl"
            assert [change.op for change in changes] == ["ddl"]
            replica.drop_database(changes[0].sql or "")
            continue
        for change in changes:
            replica.apply(f"{route.database}.{route.table}", change)
    return replica


def expected_value(value: Any, column_type: str) -> Any:  # noqa: PLR0911 - one return a type
    """The server's value as the Python value that the documentation promises; zero dates stay text."""
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
        return value
    if name == "date":
        return date(*map(int, value.split("-")))
    if name in ("datetime", "timestamp"):
        moment = datetime.strptime(value, "%Y-%m-%d %H:%M:%S" + (".%f" if "." in value else ""))
        return moment.replace(tzinfo=UTC) if name == "timestamp" else moment
    if name in ("float", "double"):
        return float(value)
    return value


def truth() -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    types: dict[str, str] = {}
    for line in lines("final-state"):
        rows = tables.setdefault(line["table"], [])
        if "columns" in line:
            types = {name: column_type for name, column_type, _ in line["columns"]}
        else:
            rows.append({name: expected_value(value, types[name]) for name, value in line["row"].items()})
    return tables


def same(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(found, tuple):  # a set, whose labels changed their order in the table's type
        return sorted(found) == sorted(expected)
    # The text tells 9061.0 from 9061.00; of floats the server's dump dropped the sign of zero.
    return found == expected and (isinstance(found, float) or str(found) == str(expected))


def differences(replica: Replica) -> dict[tuple[str, str], int]:
    """(table, column) -> in how many rows it differs; "row missing" and "row too many" count as columns."""
    found: Counter[tuple[str, str]] = Counter()
    tables = truth()
    for table, expected_rows in tables.items():
        for key, row in replica.tables.pop(table, []):
            columns = key or tuple(row)
            match = next(
                (
                    other
                    for other in expected_rows
                    if all(same(row[c], other.get(c, ABSENT)) for c in columns)
                ),
                None,
            )
            if match is None:
                found[table, "row too many"] += 1
                continue
            expected_rows.remove(match)
            for column in row.keys() | match.keys():
                if not same(row.get(column, ABSENT), match.get(column, ABSENT)):
                    found[table, column] += 1
        if expected_rows:
            found[table, "row missing"] += len(expected_rows)
    found.update({(table, "table too many"): 1 for table, rows in replica.tables.items() if rows})
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
# What Canal writes otherwise: latin1 text read as UTF-8, a backtick in a name doubled, a double in JSON.
WRITTEN_BY_CANAL = {
    ("shop.all_types", "c_latin"): 78,
    ("shop.order.items", "q`tick"): 2,
    ("shop.order.items", "q``tick"): 2,
    ("shop.all_types", "c_json"): 6,
}
# Dates that no calendar has are None.
ZERO_DATES = {("crm.legacy", "d"): 4, ("crm.legacy", "dt"): 4, ("crm.legacy", "ts"): 2}


def test_a_replica_differs_from_its_source_only_where_the_stream_does_not_say_it(replica: Replica) -> None:
    assert differences(replica) == ALTERED | VANISHED | WRITTEN_BY_CANAL | ZERO_DATES


def every_change() -> Iterator[Change]:
    format_ = registry.get("canal")
    for record in captured():
        changes: list[Change] = []
        format_.decode(record, changes)
        yield from changes


def test_every_message_of_the_stream_is_a_change_or_says_why_not() -> None:
    operations = Counter(change.op for change in every_change())
    # 1,121 rows inserted, 530 updated, 84 deleted; twelve of the updates gave their row another key.
    assert operations == {
        "insert": 1121 + 12,
        "update": 530 - 12,
        "delete": 84 + 12,
        "ddl": 65,
        "truncate": 2,
    }


def test_before_and_after_of_an_update_differ_in_the_columns_of_old_alone() -> None:
    olds: list[Row] = []
    for line in lines("canal-flat"):
        value = json.loads(line["value"])
        key = set(value["pkNames"] or ())
        if value["type"] == "UPDATE":
            olds += [old for old in value["old"] if key.isdisjoint(old)]
    updates = [change for change in every_change() if change.op == "update"]
    assert len(updates) == len(olds)
    for change, old in zip(updates, olds, strict=True):
        assert change.before is not None
        assert change.after is not None
        changed = {c for c, value in change.after.items() if not same(change.before[c], value)}
        assert changed == old.keys()


def test_no_change_of_the_stream_changes_the_key_of_its_row() -> None:
    for change in every_change():
        if change.before is not None and change.after is not None:
            assert all(change.before[column] == change.after[column] for column in change.key_columns or ())


def test_values_are_the_same_whichever_way_a_message_was_read() -> None:
    """Each message by a reader that met none before it, and by one that has a decoder for its shape."""
    practised = registry.get("canal")
    for record in captured():
        fresh_changes: list[Change] = []
        registry.get("canal").decode(record, fresh_changes)
        for _ in range(70):
            practised_changes: list[Change] = []
            practised.decode(record, practised_changes)
        assert repr(practised_changes) == repr(fresh_changes)
