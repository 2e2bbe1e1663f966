"""Names of the tables with which gh-ost and pt-online-schema-change change another table.

Both copy the table's rows into a table of another name, and let the two change names at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

_GHOST = re.compile(r"(_+)(.+?)(?:_\d{14})?_(gho|new|del|old)", re.DOTALL)
"""`gho` and `new` are filled and take the table's place; `del` and `old` are what the table is after that.
gh-ost's `_ghc` holds no row of the table."""


def replaced_by(table: str) -> Iterator[str]:
    """The tables ("database.table") whose place this one may take, or took.

    >>> list(replaced_by("crm._people_gho")), list(replaced_by("crm.__a_20261101120000_del"))
    (['crm.people'], ['crm.a', 'crm._a'])
    """
    database, dot, name = table.rpartition(".")
    found = _GHOST.fullmatch(name)
    if found is not None:
        for more in range(len(found[1])):
            yield f"{database}{dot}{'_' * more}{found[2]}"


def ghosts_of(table: str) -> tuple[str, str]:
    """The tables, or the patterns of them, from which the table's new rows come."""
    database, dot, name = table.rpartition(".")
    return f"{database}{dot}_{name}_gho", f"{database}{dot}_{name}_new"


def is_left_over(name: str) -> bool:
    """Whether a table of this name holds what a table was before it was changed."""
    found = _GHOST.fullmatch(name)
    return found is not None and found[3] in ("del", "old")
