"""What the demo verifies: the replica equals the source's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from handlers.values.change_json import duration_text

Row = Mapping[str, Any]


class Difference(NamedTuple):
    """A row that differs between the two sides."""

    table: str
    row: str
    """Its key, or the whole row for a table without one."""
    what: str


def compare_columns(table: str, truth: Sequence[str], found: Sequence[str]) -> list[Difference]:
    """Return one difference if the columns, or their order, differ from the source's."""
    if list(truth) == list(found):
        return []
    what = f"its columns are {', '.join(found)}; in the source {', '.join(truth)}"
    return [Difference(table, "", what)]


def compare(table: str, key: Sequence[str], truth: Iterable[Row], found: Iterable[Row]) -> list[Difference]:
    """Return the rows that differ, in the source's order. Values are compared with their types."""
    expected = [_comparable(row) for row in truth]
    actual = [_comparable(row) for row in found]
    if not key:
        return _compare_bags(table, expected, actual)
    differences = []
    by_key = {tuple(row[column] for column in key): row for row in actual}
    if len(by_key) < len(actual):
        differences.append(Difference(table, "", f"{len(actual) - len(by_key)} rows have a duplicate key"))
    for row in expected:
        at = tuple(row[column] for column in key)
        other = by_key.pop(at, None)
        if other is None:
            differences.append(Difference(table, _shown(at), "is not in the replica"))
            continue
        for column, value in row.items():
            there = other.get(column)
            # Ints and decimals are both exact (`bigint unsigned` becomes a decimal).
            exact = isinstance(there, int | Decimal) and isinstance(value, int | Decimal)
            if there != value or not (type(there) is type(value) or exact):
                what = f"{column} is {there!r} in the replica, {value!r} in the source"
                differences.append(Difference(table, _shown(at), what))
    differences += [Difference(table, _shown(at), "is not in the source") for at in by_key]
    return differences


def _comparable(row: Row) -> dict[str, Any]:
    return {column: _kept(value) for column, value in row.items()}


def _kept(value: Any) -> Any:
    """Convert a source value to the Spark handler's form."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return list(value) if isinstance(value, tuple) else value


def _compare_bags(
    table: str, expected: Sequence[dict[str, Any]], actual: Sequence[dict[str, Any]]
) -> list[Difference]:
    wanted, there = (Counter(repr(sorted(row.items())) for row in rows) for rows in (expected, actual))
    missing = [Difference(table, row, "is not in the replica") for row in (wanted - there).elements()]
    return missing + [Difference(table, row, "is not in the source") for row in (there - wanted).elements()]


def _shown(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))
