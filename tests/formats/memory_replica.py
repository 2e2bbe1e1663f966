"""Tables kept in memory by a stream's changes, as a target would keep them, and where they differ in the end
from those of the source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from captured import CapturedRecord, truth
from truth_rows import ABSENT, Row, expected_row, same

from handlers import Change
from worker.formats.interface import Format, Skip

__all__ = ["ALTERED", "VANISHED", "Replica", "decode", "differences"]

Differences = dict[tuple[str, str], int]
"""(table, column) -> in how many rows it differs. For columns stand, too: `row missing`, `row too many`,
`table too many`."""

# What no row event says, because the server rewrites the rows of an ALTER TABLE without one.
ALTERED: Differences = {
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
VANISHED: Differences = {("crm.child", "row too many"): 6, ("crm.parted", "row too many"): 4}

_RENAMES = re.compile(r"RENAME TABLE|ALTER TABLE \w+ RENAME TO")
_TABLE = r"(?:`?(\w+)`?\.)?`?(\w+)`?"
_RENAME = re.compile(f"{_TABLE} (?:RENAME )?TO {_TABLE}")


def decode(format_: Format, record: CapturedRecord) -> list[Change]:
    changes: list[Change] = []
    format_.decode(record, changes)
    return changes


class Replica:
    """Tables kept by row events, and by the DDL that moves, empties or drops whole tables."""

    def __init__(self, *, bootstraps: bool = False) -> None:
        """bootstraps: a row of a snapshot may be there, and takes its place."""
        self.bootstraps = bootstraps
        self.tables: dict[str, list[tuple[tuple[str, ...] | None, Row]]] = {}
        self.skipped: set[tuple[str, int]] = set()
        """Why records were passed over -> how many changes each gave."""

    def play(self, format_: Format, stream: Iterable[CapturedRecord]) -> Replica:
        for record in stream:
            route = format_.explain(record)
            changes = decode(format_, record)
            if isinstance(route, Skip):
                self.skipped.add((route.reason, len(changes)))
            for change in changes:
                if isinstance(route, Skip):
                    assert change.op == "ddl"
                    self.drop_database(change.sql or "")
                else:
                    assert route.alone == (change.op in ("ddl", "truncate"))
                    self.apply(f"{route.database}.{route.table}", change)
        return self

    def apply(self, table: str, change: Change) -> None:
        if change.op == "ddl":
            self.apply_statement(table, change.sql or "")
            return
        rows = self.tables.setdefault(table, [])
        after = change.after or {}
        if change.op == "truncate":
            rows.clear()
        if change.op == "snapshot" and change.key_columns and self.bootstraps:
            rows[:] = [row for row in rows if any(row[1][c] != after[c] for c in change.key_columns)]
        if change.before is not None:
            rows.remove(self.find(rows, change.key_columns, change.before))
        elif change.op == "update":  # a flattened record
            rows.remove(self.find(rows, change.key_columns, after))
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

    def apply_statement(self, table: str, sql: str) -> None:
        if sql.startswith("DROP TABLE"):
            self.tables.pop(table, None)
        elif _RENAMES.match(sql):
            # The database in which the statements ran: tools may name only that of the new table.
            pairs = [
                (f"{database or 'crm'}.{name}", f"{new_database or 'crm'}.{new_name}")
                for database, name, new_database, new_name in _RENAME.findall(sql)
            ]
            assert table in [new for _, new in pairs]
            for old, new in pairs:
                self.tables[new] = self.tables.pop(old, [])


def differences(replica: Replica) -> Differences:
    """Of the replica's tables from those of the source."""
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
