"""Tables that no rule matches: counted, and logged once each, with the rule that was probably meant."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from handlers.logs import get_logger
from worker.configuration import TableRule
from worker.units.table_names import shown

log = get_logger("tables")

_MOST_TOLD = 100
_ALIKE = 0.75
_LONGEST_COMPARED = 256
"""Characters. The time grows with their square, and the fetcher's thread waits."""
_WILDCARDS = frozenset("*?[")


class Unmatched:
    """Records that are skipped and finished because of the rules. The fetcher's own; `records` any thread."""

    def __init__(self, rules: Sequence[TableRule]) -> None:
        self.records = 0
        """The skipped records."""
        self.adopt(rules)

    def adopt(self, rules: Sequence[TableRule]) -> None:
        """Use other rules from now on. Tables that they do not match are logged again."""
        self._unused = {id(rule): rule for rule in rules}
        self._told: set[str] = set()

    def used(self, rule: TableRule) -> None:
        """The rule matches a table, so it is meant as it is."""
        self._unused.pop(id(rule), None)

    def met(self, table: str) -> None:
        """No rule matches the table ("database.table")."""
        if table in self._told or len(self._told) > _MOST_TOLD:
            return
        self._told.add(table)
        if len(self._told) > _MOST_TOLD:
            log.info("more_tables_unmatched", hint=f"after {_MOST_TOLD} of them, no more are logged")
            return
        nearest = _nearest(table, self._unused.values())
        if nearest is None:
            log.info(
                "table_unmatched",
                table=shown(table),
                hint="its records are skipped and count as finished",
            )
        else:
            log.warning(
                "table_unmatched",
                table=shown(table),
                nearest=nearest,
                hint="its records are skipped and count as finished; no table matches that rule so far",
            )


def _nearest(table: str, rules: Iterable[TableRule]) -> str | None:
    """Return the pattern of the rule that would match it except for upper and lower case, or a letter or two.
    None for a name longer than a database's names."""
    if len(table) > _LONGEST_COMPARED:
        return None
    globs = []
    for rule in rules:
        if rule.match.startswith("/"):
            if re.fullmatch(rule.match[1:-1], table, re.IGNORECASE):
                return rule.match
        elif fnmatch.fnmatchcase(table.lower(), rule.match.lower()):
            return rule.match
        else:
            globs.append(rule.match)
    own = table.lower().partition(".")[::2]
    for pattern in globs:
        parts = pattern.lower().partition(".")[::2]
        if all(_alike(name, part) for name, part in zip(own, parts, strict=True)):
            return pattern
    return None


def _alike(name: str, part: str) -> bool:
    if _WILDCARDS & set(part):
        return fnmatch.fnmatchcase(name, part)
    # At most the whole shorter one can be equal in both.
    if 2 * min(len(name), len(part)) < _ALIKE * (len(name) + len(part)):
        return False
    matcher = SequenceMatcher(None, name, part)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE
