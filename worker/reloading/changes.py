"""Extract one table's changes from records of any tables, as a worker would pass them to its handler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from handlers import Change
from worker.column_rules.applying import bring_under, decode_under
from worker.column_rules.plan import RuleFault
from worker.configuration import Configuration, TableRule
from worker.configuration.formats import formats_of
from worker.formats.choice import NoFormatError
from worker.formats.decoding import explained
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord, remade
from worker.formats.statements import tables_of


class Unfollowable(Exception):
    """Why the table cannot be built from these records, in one sentence."""


class ChangesOf:
    """The changes of one table. For one thread."""

    def __init__(self, configuration: Configuration, rule: TableRule, database: str, name: str) -> None:
        self._formats = formats_of(configuration)
        self._halts = configuration.on_undecodable == "halt"
        self._rule = rule
        self._database, self._name = database, name
        self.undecodable = 0
        """Records that were skipped, as on_undecodable says."""

    def of(self, record: Record) -> Iterator[Sequence[Change]]:
        """Yield the changes of the record; a statement comes alone. Raises Unfollowable."""
        place = f"{record.topic()}[{record.partition()}] offset {record.offset()}"
        try:
            format_ = self._formats.of(record.topic())
            for route, piece in self._pieces(format_, record):
                is_ours = (route.database, route.table) == (self._database, self._name)
                if not is_ours and not route.alone:
                    continue
                changes: list[Change] = []
                rules = (self._rule.row_rules if is_ours else None, self._rule.statement_rules)
                decode_under(format_, piece, changes, *rules, alone=route.alone)
                self._refuse_others(changes, route.database, place, is_ours=is_ours)
                if is_ours:
                    bring_under(*rules, changes, 0, database=self._database, table=self._name)
                    if changes:
                        yield changes
        except NoFormatError as error:
            raise Unfollowable(str(error)) from None
        except RuleFault as fault:
            raise Unfollowable(f"{place}: column rules: {fault}") from None
        except UndecodableRecord as fault:
            if self._halts:
                raise Unfollowable(
                    f"undecodable record at {place}: {fault}. To skip all such records, set on_undecodable: "
                    "skip, or dead_letter"
                ) from None
            self.undecodable += 1

    def _pieces(self, format_: Format, record: Record) -> Iterator[tuple[Route, Record]]:
        try:
            route: Route | Skip | Apart | None = format_.route(record.value() or b"")
        except Exception:  # as in the router: the slow path then finds the reason
            route = None
        if route is None or not (route.database and route.table):  # type: ignore[union-attr]
            route = explained(format_, record)
        if isinstance(route, Apart):
            for own, value in route.parts:
                piece = remade(record, record.key(), value, record.headers())
                if not own.table:
                    explained(format_, piece)  # raises with the reason
                yield own, piece
        elif not isinstance(route, Skip):
            yield route, record

    def _refuse_others(self, changes: Sequence[Change], database: str, place: str, *, is_ours: bool) -> None:
        """Refuse a statement about this table and another: rows or columns come from the other one."""
        ours = self._database, self._name
        for change in changes:
            named = tables_of(change.sql or "", database)
            others = [one for one in named if one != ours]
            if others and (is_ours or any(one in (ours, ("", self._name)) for one in named)):
                told = ", ".join(".".join(filter(None, one)) for one in named)
                raise Unfollowable(
                    f"{place} is a statement about several tables ({told}): the contents of "
                    f"{self._database}.{self._name} do not follow from its own records alone"
                )
