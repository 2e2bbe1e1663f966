"""Which table a DDL statement is about: of DDL a DTS record names but the database it ran in."""

from __future__ import annotations

import re

# One space or comment; never tried in another way, for a text of many comments would take forever.
_SPACE = r"(?>\s|/\*.*?\*/|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))"
_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_WORDS = {"s": f"{_SPACE}+", "name": _NAME}
_INDEX = "INDEX{s}(?:CONCURRENTLY{s})?(?:IF{s}(?:NOT{s})?EXISTS{s})?{name}{s}ON"
_BEGINNINGS = (
    "CREATE{s}(?:(?:OR{s}REPLACE|UNLOGGED){s})?TABLE(?:{s}IF{s}NOT{s}EXISTS)?",
    "ALTER{s}(?:(?:ONLINE|IGNORE){s})*TABLE(?:{s}IF{s}EXISTS)?(?:{s}ONLY)?",
    "DROP{s}TABLES?(?:{s}IF{s}EXISTS)?",
    "(?P<truncate>TRUNCATE)(?:{s}TABLE)?(?:{s}ONLY)?",
    "RENAME{s}TABLES?(?:{s}IF{s}EXISTS)?",
    "CREATE{s}(?:OR{s}REPLACE{s})?(?:(?:UNIQUE|FULLTEXT|SPATIAL){s})?" + _INDEX,
    "DROP{s}" + _INDEX,
)
_STATEMENT = re.compile(
    rf"{_SPACE}*(?:{'|'.join(beginning.format_map(_WORDS) for beginning in _BEGINNINGS)})"
    rf"(?:{_SPACE}+|(?=[`\"]))(?P<first>{_NAME})(?:\s*\.\s*(?P<second>{_NAME}))?",
    re.IGNORECASE | re.DOTALL,
)


def table_of(sql: str, database: str) -> tuple[str, str] | None:
    """The (database, table) that the statement names first; None for a statement about no table.

    `database`: where it ran. A name stands as it is written, without its quotes."""
    found = _STATEMENT.match(sql)
    if found is None:
        return None
    first, second = found["first"], found["second"]
    if second is None:
        return database, _plain(first)
    return _plain(first), _plain(second)


def is_truncate(sql: str) -> bool:
    """Whether the statement empties a whole table."""
    found = _STATEMENT.match(sql)
    return found is not None and found["truncate"] is not None


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
