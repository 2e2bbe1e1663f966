"""Asks the rules of all tables for each statement, before anyone sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from handlers import Change
from worker.formats.interface import Apart, Format, PlainRoute, Record, Route, Skip, UndecodableRecord

if TYPE_CHECKING:  # few configurations have rules
    from worker.column_rules.statements import StatementRules

_PASSED_ON = ("decode_many", "ready", "log_position", "learn", "transactions")


class Guarded:
    """A format that does not decode a statement after which rows may show what rules hide.

    So whoever decodes, for whichever table, cannot pass it. All threads share one object."""

    def __init__(self, format_: Format, rules: Callable[[], StatementRules | None]) -> None:
        """`rules`: returns those of all tables; None if no table has any."""
        self.name = format_.name
        self.route: Callable[[bytes], Route] = format_.route
        self.explain: Callable[[Record], Route | Skip | Apart] = format_.explain
        self.source_time_ms: Callable[[Record], int | None] = format_.source_time_ms
        self.ungathered = self._format = format_  # its statements are not refused
        self._rules = rules
        for method in _PASSED_ON:
            if hasattr(format_, method):
                setattr(self, method, getattr(format_, method))

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
