"""Column rules of gathered tables: no statement says that a hidden column has another name."""

from __future__ import annotations

import pytest
from configuration.shorthand import Faults, Load

DATABASES = "databases: {shops: {match: 'shop_*.*'}}\n"


def tables(match: str, columns: str) -> str:
    return f"{DATABASES}tables: [{{match: '{match}', columns: {columns}, handlers: [{{type: log}}]}}]"


@pytest.mark.parametrize("match", ["shops.users", "shop*.users", "*", "/shops.*/"])
@pytest.mark.parametrize("columns", ["{exclude: [ssn]}", "{mask: {ssn: redact}}"])
def test_columns_are_not_hidden_by_name_alone(faults: Faults, match: str, columns: str) -> None:
    [told] = faults(tables=tables(match, columns))
    assert "tables[0].columns" in told
    assert "with databases, a hidden column that one source renames would be shown" in told


@pytest.mark.parametrize(
    ("match", "columns"),
    [
        ("crm.users", "{exclude: [ssn]}"),
        ("shops.users", "{include: [id, ssn], mask: {ssn: redact}}"),
        ("shops.users", "{rename: {a: b}}"),
    ],
)
def test_other_rules_are_taken(read: Load, match: str, columns: str) -> None:
    assert read(tables=tables(match, columns)).databases.keys() == {"shops"}
