"""Tables kept by the captured Debezium streams, and how they differ from those of the source."""

from __future__ import annotations

import base64
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from captured import CapturedRecord, records, truth

from handlers import Change
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Skip

__all__ = ["ABSENT", "Replica", "decode", "differences", "expected_row", "in_source_order", "knowing", "same"]

ABSENT = "absent"  # of a column: this row does not have it

Row = dict[str, Any]


def knowing(stream: str) -> Debezium:
    """A reader that has read the stream's DDL topic to its end."""
    format_ = Debezium()
    for record in records(stream):
        format_.learn(record)
    return format_


def decode(format_: Debezium, record: CapturedRecord) -> list[Change]:
    changes: list[Change] = []
    format_.decode(record, changes)
    return changes


def in_source_order(format_: Debezium, stream: str) -> list[CapturedRecord]:
    """The records of all topics and partitions that are of the log, by their places in it."""
    placed = [(format_.place(record), record) for record in records(stream)]
    of_log = [(place, record) for place, record in placed if place is not None]
    return [record for _, record in sorted(of_log, key=lambda one: one[0].order)]


class Replica:
    """Tables kept by row events, and by the DDL that moves or drops whole tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[tuple[str, ...] | None, Row]]] = {}

    def play(self, format_: Debezium, stream: str) -> None:
        for record in in_source_order(format_, stream):
            route = format_.explain(record)
            for change in decode(format_, record):
                if isinstance(route, Skip):
                    self.drop_database(change.sql or "")
                else:
                    assert route.alone == (change.op in ("ddl", "truncate"))
                    self.apply(f"{route.database}.{route.table}", change)

    def apply(self, table: str, change: Change) -> None:
        if change.op == "ddl":
            self.apply_statement(table, change.sql or "")
            return
        rows = self.tables.setdefault(table, [])
        if change.op == "truncate":
            rows.clear()
        if change.before is not None:
            rows.remove(self.find(rows, change.key_columns, change.before))
        elif change.op == "update":  # a flattened record
            rows.remove(self.find(rows, change.key_columns, change.after or {}))
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
            self.tables = {
                name: rows for name, rows in self.tables.items() if name.split(".")[0] != dropped[1]
            }

    def apply_statement(self, table: str, sql: str) -> None:
        if sql.startswith("DROP TABLE"):
            self.tables.pop(table, None)
        elif renamed := re.fullmatch(r"RENAME TABLE (\w+) TO (\w+)|ALTER TABLE (\w+) RENAME TO [\w.]+", sql):
            self.tables[table] = self.tables.pop(f"crm.{renamed[1] or renamed[3]}")


def expected_row(table: str, row: Row) -> Row:
    """A row of the source's own dump as the typed values that the documentation promises."""
    columns = truth()[table].columns
    return {name: _expected(value, columns[name]) for name, value in row.items()}


def _expected(value: Any, column_type: str) -> Any:  # noqa: PLR0911 - one return a type
    name = column_type.partition("(")[0]
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
    if name in ("date", "datetime", "timestamp"):
        if "-00" in value:
            return None
        moment = datetime.fromisoformat(value)
        return (
            moment.replace(tzinfo=UTC)
            if name == "timestamp"
            else moment
            if name == "datetime"
            else date.fromisoformat(value)
        )
    return float(value) if name in ("float", "double") else value


def same(found: Any, expected: Any) -> bool:
    """Equal, of the same type, and with the same digits (9061.0 is not 9061.00)."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, tuple):  # a set, whose labels changed their order in the table's type
        return sorted(found) == sorted(expected)
    # Of floats the server's dump dropped the sign of zero.
    return bool(found == expected) and (isinstance(found, float) or str(found) == str(expected))


def differences(replica: Replica) -> dict[tuple[str, str], int]:
    """(table, column) -> in how many rows it differs; "row missing" and "row too many" count as columns."""
    found: Counter[tuple[str, str]] = Counter()
    tables = dict(replica.tables)
    for table, expected in truth().items():
        rest = [expected_row(table, row) for row in expected.rows]
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
