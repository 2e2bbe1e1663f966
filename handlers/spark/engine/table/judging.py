"""Rows that are judged before they are taken: what their table declares of all rows must be true of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from handlers.api import Rejected
from handlers.options.templates import place_of
from handlers.spark.delta.refused_rows import as_in_table, first_refused, kept_rows, whole_rows
from handlers.spark.delta.state import look
from handlers.spark.engine.table.world import World
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.pieces import RowPiece
from handlers.spark.table_ref import TableRef, quoted


@dataclass(frozen=True, slots=True)
class Judging:
    """Of the rows of one table."""

    name: str
    """The source table's."""
    ref: TableRef
    world: World

    def check(self, piece: RowPiece, declared: Declared, catch_up: Callable[[], None]) -> None:
        """`catch_up` brings all that came before into the table: called where the table's own columns, or
        what it has of rows that do not carry all theirs, decide. Raises Rejected, what `catch_up` does, and
        what Spark raises."""
        self._check_keyless(piece)
        conditions, prefix = dict(declared.conditions), self.world.options.prefix
        is_there = False
        if self.world.options.mode == "replica":
            is_there = piece.partial or declared.has_checks_beyond(piece.shape)
            if piece.partial:
                conditions |= {
                    f"{each} NOT NULL": f"{quoted(each)} IS NOT NULL" for each in declared.not_null
                }
        if not conditions:
            return
        if is_there:
            catch_up()
        with self.world.spark.slots, self.world.session() as session:
            frame = kept_rows(session, piece.rows, prefix)
            table = look(session, self.ref) if is_there else None
            if table is None:
                frame = whole_rows(frame, prefix)
            else:
                frame = as_in_table(frame, self.ref, table, piece.shape, prefix)
            found = first_refused(frame, piece.rows.num_rows, conditions)
        if found is not None:
            row, what = found
            place = piece.places[row]
            where = place_of(piece.changes[place], self.name)
            raise Rejected(
                f"{where}: the row does not meet what the table declares: {what}", at=piece.start + place
            )

    def _check_keyless(self, piece: RowPiece) -> None:
        mode, allowed = self.world.options.mode, self.world.options.without_key
        if not piece.shape.key and (mode == "history" or (mode == "replica" and allowed == "refuse")):
            advice = (
                "keep its changelog" if mode == "history" else "set without_key: match, or keep its changelog"
            )
            raise Rejected(
                f"{place_of(piece.changes[0], self.name)}: the table has no primary key, without which there "
                f"is no {mode}: give it one, or {advice}",
                at=piece.start,
            )
