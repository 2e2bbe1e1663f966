"""What the new table is called, and whether both look the same."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from handlers.sql.target.known_tables import KnownTable

__all__ = ["columns_of", "new_name", "told_apart"]

_SUFFIX = "__binlane_reload"
_LONGEST = 63 - len(_SUFFIX)


def columns_of(connection: sa.Connection, table: KnownTable) -> dict[str, str]:
    return {one.name: _type(one.sql_type, connection) for one in table.columns.values()}


def _type(type_: sa.types.TypeEngine[Any], connection: sa.Connection) -> str:
    return "?" if isinstance(type_, sa.types.NullType) else type_.compile(connection.dialect)


def told_apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The first three differences."""
    names = [name for name in dict.fromkeys((*ours, *theirs)) if ours.get(name) != theirs.get(name)]
    return "; ".join(
        f"{name} is {ours.get(name, 'not there')}, by the topic {theirs.get(name, 'not there')}"
        for name in names[:3]
    )


def new_name(table: str) -> str:
    """Of the new table: one for each, and none that a database would cut."""
    if len(table.encode()) <= _LONGEST:
        return table + _SUFFIX
    digest = sha256(table.encode()).hexdigest()[:8]
    return table.encode()[: _LONGEST - len(digest)].decode(errors="ignore") + digest + _SUFFIX
