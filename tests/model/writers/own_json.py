"""JSON of one's own: upserts, and changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from worker.formats.interface import Format
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

from ..source import COLUMNS, Event, key_of
from ..told import Move, Put, Remove
from .writing import Names, Written, compact, moves, told_whole

__all__ = ["Changes", "Upserts"]


def _typed(all_types: bool) -> dict[str, str]:
    """Some columns, as docs/formats.md has it."""
    return dict(COLUMNS) if all_types else {"amount": COLUMNS["amount"]}


@dataclass(frozen=True)
class Upserts:
    """Each record is a row, without its NULLs if `leaves_nulls_out`; one without a value deletes."""

    leaves_nulls_out: bool
    all_types: bool
    tells_old_rows = False
    tells_gaps = True

    def format(self, names: Names) -> Format:
        layout = {"database": f"={names.database}", "table": f"={names.table}", "key": "$key"}
        return Json(JsonLayout.model_validate({**layout, "columns": _typed(self.all_types)}))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op == "truncate":
                continue  # such a writer knows none
            if event.before is not None and (event.after is None or moves(names, event)):
                gone = Remove(key_of(event.before, names.key), tells_old=False)
                yield Written([gone], None, compact(names.of(event.before)))
            if event.after is not None:
                row = {
                    name: value
                    for name, value in event.after.items()
                    if value is not None or not self.leaves_nulls_out
                }
                told = Put(key_of(row, names.key), row, replaces=True)
                yield Written([told], compact(row), compact(names.of(row)))


@dataclass(frozen=True)
class Changes:
    """Each record says what happened. `partial`: an update tells the key and the columns that it set;
    `tells_old_rows`: whole, or the key alone."""

    partial: bool
    tells_old_rows: bool
    all_types: bool

    @property
    def tells_gaps(self) -> bool:
        return not self.partial

    def format(self, names: Names) -> Format:
        layout: dict[str, Any] = {
            "database": "at.database",
            "table": "at.table",
            "operation": "op",
            "before": "before",
            "after": "after",
            "key": list(names.key),
            "columns": _typed(self.all_types),
            "updates": "partial" if self.partial else "whole",
        }
        return Json(JsonLayout.model_validate(layout))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op == "truncate":
                continue
            told, after = told_whole(names, event, tells_old=self.tells_old_rows), event.after
            if self.partial and event.op == "update" and after is not None:
                after = {name: after[name] for name in after if name in (*names.key, *event.changed)}
                row = event.after if self.tells_old_rows else after
                if isinstance(told, Move | Put):
                    told = replace(told, row=row or {}, in_parts=True)
            before = event.before
            if before is not None and not self.tells_old_rows:
                before = names.of(before)
            value = {
                "at": {"database": names.database, "table": names.table},
                "op": event.op,
                "before": before,
                "after": after,
            }
            yield Written([told], compact(value))
