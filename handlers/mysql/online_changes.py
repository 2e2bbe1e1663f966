"""Names of the tables that gh-ost and pt-online-schema-change use to change another table.

Both copy the rows into a table of another name, and swap the two names at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

_GHOST = re.compile(r"(_+)(.+?)(?:_\d{14})?_(gho|new|del|old)", re.DOTALL)
"""`gho` and `new` are filled and replace the table; `del` and `old` are the replaced table.
gh-ost's `_ghc` contains no rows of the table."""


def replaced_by(table: str) -> Iterator[str]:
    """Yield the tables ("database.table") that this one may replace, or that it was before.

    >>> list(replaced_by("crm._people_gho")), list(replaced_by("crm.__a_20261101120000_del"))
    (['crm.people'], ['crm.a', 'crm._a'])
    """
    database, dot, name = table.rpartition(".")
    found = _GHOST.fullmatch(name)
    if found is not None:
        for more in range(len(found[1])):
            yield f"{database}{dot}{'_' * more}{found[2]}"


def ghosts_of(table: str) -> tuple[str, str]:
    """Return the names (or patterns) of the tables that may replace this table (or pattern)."""
    database, dot, name = table.rpartition(".")
    return f"{database}{dot}_{name}_gho", f"{database}{dot}_{name}_new"


def is_left_over(name: str) -> bool:
    """Whether this is the name of a replaced table, with its state before the change."""
    found = _GHOST.fullmatch(name)
    return found is not None and found[3] in ("del", "old")
