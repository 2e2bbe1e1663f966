"""Asks the rules of all tables for each statement, before anyone sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers import Change
from worker.formats.interface import (
    Apart,
    Format,
    PlainRoute,
    Record,
    Route,
    Skip,
    UndecodableRecord,
    passed_on,
)

if TYPE_CHECKING:  # few configurations have rules
    from worker.column_rules.statements import StatementRules


class Guarded:
    """A format that does not decode a statement after which rows may show what rules hide.

    So whoever decodes, for whichever table, cannot pass it. All threads share one object."""

    name: str
    route: Callable[[bytes], Route]
    explain: Callable[[Record], Route | Skip | Apart]
    source_time_ms: Callable[[Record], int | None]

    def __init__(self, format_: Format, rules: Callable[[], StatementRules | None]) -> None:
        """`rules`: returns those of all tables; None if no table has any."""
        vars(self).update(passed_on(format_, Guarded))
        self.ungathered = self._format = format_  # its statements are not refused
        self._rules = rules

    def decode(self, record: Record, into: list[Change]) -> None:
        """Raises ShownBehind."""
        first = len(into)
        self._format.decode(record, into)
        if len(into) == first or into[first].op != "ddl" or (rules := self._rules()) is None:
            return
        try:
            found = self._format.explain(record)
        except UndecodableRecord:  # as of an unknown table
            found = PlainRoute("", "", True)
        if isinstance(found, Skip | Apart):
            return
        try:
            for change in into[first:]:
                rules.judged(change.sql or "", found.database, found.table)
        except Exception:
            del into[first:]
            raise
