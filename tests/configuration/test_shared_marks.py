"""Handlers of a rule that would take each other's marks for their own are told before a worker runs."""

from __future__ import annotations

import pytest
from configuration.shorthand import Faults, Load

FIRST = "{type: sql, url: 'sqlite:///a.db', table: 'a_{table}'}"


def tables(second: str) -> str:
    return f"tables: [{{match: 'shop.*', handlers: [{FIRST}, {second}]}}]"


@pytest.mark.parametrize("more", ["", ", marks_table: binlane_marks", ", name: sql"])
def test_two_sql_handlers_with_one_name_in_one_database_are_refused(faults: Faults, more: str) -> None:
    """The second one would skip what the first has applied."""
    second = f"{{type: sql, url: 'sqlite:///a.db', table: 'b_{{table}}'{more}}}"
    [told] = faults(tables=tables(second))
    assert "tables[0].handlers[1]: found a mapping; handlers[0] has its name (sql), its database" in told


@pytest.mark.parametrize(
    "second",
    [
        "{type: sql, url: 'sqlite:///a.db', table: 'b_{table}', name: other}",
        "{type: sql, url: 'sqlite:///a.db', table: 'b_{table}', marks_table: other}",
        "{type: sql, url: 'sqlite:///b.db'}",
        "{type: log, name: sql}",
    ],
)
def test_handlers_with_marks_of_their_own_are_taken(read: Load, second: str) -> None:
    assert len(read(tables=tables(second)).tables[0].handlers) == 2
