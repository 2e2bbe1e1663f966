"""JSON of one's own: upserts, and changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from worker.formats.interface import Format
from worker.formats.own_json.format import Json
from worker.formats.own_json.layout import JsonLayout

from ..source import ALL_COLUMNS, COLUMNS, LARGE, Event, Row, key_of
from ..told import Move, Put, Remove
from .writing import Names, Written, compact, moves, told_whole

Old = Literal["all", "small", "key"]
OLD: tuple[Old, ...] = ("all", "small", "key")


def _typed(all_types: bool) -> dict[str, str]:
    """Some columns, as docs/formats.md has it."""
    return dict(ALL_COLUMNS) if all_types else {"amount": COLUMNS["amount"]}


@dataclass(frozen=True)
class Upserts:
    """Each record is a row, without its NULLs if `leaves_nulls_out`; one without a value deletes."""

    leaves_nulls_out: bool
    all_types: bool
    tells_old_rows = False
    tells_gaps = True
    tells_whole = False
    moves_keys = True

    def format(self, names: Names) -> Format:
        layout = {"database": f"={names.database}", "table": f"={names.table}", "key": "$key"}
        return Json(JsonLayout.model_validate({**layout, "columns": _typed(self.all_types)}))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op in ("truncate", "alter"):
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
    """Each record says what happened. `partial`: an update tells the key and the columns that it set; `old`:
    all of the old row, all but its large value, or its key."""

    partial: bool
    old: Old
    all_types: bool
    moves_keys = True

    @property
    def tells_old_rows(self) -> bool:
        return self.old != "key"

    @property
    def tells_whole(self) -> bool:
        return self.old == "all" and not self.partial

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
            "columns": _typed(self.all_types),
            "updates": "partial" if self.partial else "whole",
        }
        if names.key:
            layout["key"] = list(names.key)
        return Json(JsonLayout.model_validate(layout))

    def write(self, names: Names, events: Sequence[Event]) -> Iterator[Written]:
        for event in events:
            if event.op in ("truncate", "alter"):
                continue
            told, after = told_whole(names, event, tells_old=self._tells_old(event.op)), event.after
            before = self._before(names, event)
            if self.partial and event.op == "update" and after is not None:
                after = {name: after[name] for name in after if name in (*names.key, *event.changed)}
                if isinstance(told, Move | Put):
                    told = replace(told, row={**(before or {}), **after}, in_parts=True)
                if isinstance(told, Put):
                    told = replace(told, hides_gaps=self.old == "small")
            value = {
                "at": {"database": names.database, "table": names.table},
                "op": event.op,
                "before": before,
                "after": after,
            }
            yield Written([told], compact(value))

    def _tells_old(self, op: str) -> bool:
        if op == "update" and self.partial:
            return False  # if the new row may lack columns, so may the old one
        return self.old == "all" or (self.old == "small" and op == "delete")

    def _before(self, names: Names, event: Event) -> Row | None:
        """Of a delete all, or the key (docs/formats.md)."""
        row = event.before
        if row is None or self.old == "all" or (self.old == "small" and event.op == "delete"):
            return row
        wanted = names.key if self.old == "key" else row.keys() - {LARGE}
        return {name: value for name, value in row.items() if name in wanted}
