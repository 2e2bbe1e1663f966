"""A sample of which no record meets a rule: which rule was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from handlers.options.matching import table_matcher
from worker.configuration import TableRule

_MOST_TABLES = 5
_ALIKE = 0.6
"""As difflib has it of words that resemble each other."""


def unmet(rules: Sequence[TableRule], tables: Iterable[str]) -> str:
    """Which tables (`database.table`) the sample has, and the rule nearest to one of them; one line.

    >>> unmet([TableRule(match="shpo.*", handlers=[{"type": "log"}])], ["shop.orders"])
    'no record of the sample meets a rule; its tables: shop.orders; nearest: tables[0].match: shpo.*'
    """
    names = list(dict.fromkeys(tables))
    shown = ", ".join(names[:_MOST_TABLES])
    if len(names) > _MOST_TABLES:
        shown += f" and {len(names) - _MOST_TABLES} more"
    told = f"no record of the sample meets a rule; its tables: {shown}"
    alike = [(_likeness(rule.match, name), -number) for number, rule in enumerate(rules) for name in names]
    likeness, number = max(alike, default=(0.0, 0))
    if likeness < _ALIKE:
        return f"{told}; tables are matched as database.table"
    return f"{told}; nearest: tables[{-number}].match: {rules[-number].match}"


def _likeness(pattern: str, name: str) -> float:
    """From 0 to 1; of a glob the halves are looked at by themselves: its wildcards resemble nothing."""
    database, dot, table = pattern.partition(".")
    if pattern.startswith("/") or not dot:
        return SequenceMatcher(None, pattern.strip("/").casefold(), name.casefold()).ratio()
    of_database, _, of_table = name.partition(".")
    return (_of_half(database, of_database) + _of_half(table, of_table)) / 2


def _of_half(pattern: str, name: str) -> float:
    if table_matcher(f"*.{pattern}")(f".{name}"):
        return 1.0
    return SequenceMatcher(None, pattern.casefold(), name.casefold()).ratio()
