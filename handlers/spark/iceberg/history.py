"""Histories: every version of each row, with its period of validity. The rules are those of
`handlers.spark.delta.modes.history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.matching import among, key_tuples, matched, names_in, picked
from handlers.spark.rows.shape import TIME, Shape

_PLACE = ("op", "topic", "partition", "offset", "index")
_Row = Mapping[str, int | None]
"""Column -> the place of its value. None: null."""


def bring(commit: TableCommit, changes: pa.Table, shape: Shape, note: CommitNote, *, prefix: str) -> None:
    """Write the versions into the commit. Files with a version that ends are written anew."""
    schema = arrow_schema(commit.schema)
    fitted = fitted_to(changes, schema)
    versions = _Versions(schema, names_in(schema, shape.schema.names), prefix)
    key = list(names_in(schema, shape.key))
    keys = fitted.select(key)
    files = commit.files(among(keys))
    for number, file in enumerate(files):
        rows = commit.rows(file, commit.schema).cast(schema)
        places = pc.indices_nonzero(matched(rows, keys))
        versions.find(number, rows.take(places), places.to_pylist(), key)
    versions.follow(changes, fitted, key_tuples(keys, key))

    def rows_of() -> Iterator[pa.Table]:
        for number, ends in sorted(versions.ended.items()):
            yield versions.with_ends(commit.rows(files[number], commit.schema).cast(schema), ends)
        yield versions.opened()

    commit.replace([files[number] for number in sorted(versions.ended)], rows_of(), note)


@dataclass(slots=True)
class _Chain:
    """The versions of one key so far."""

    op: str = "delete"
    """Of the last change: `delete` if the row does not exist."""
    row: _Row = field(default_factory=dict)
    since: int | None = None
    """Start of the last version, or its end, microseconds since 1970."""
    stored: tuple[int, int] | None = None
    """File and place of the current version, if the table has it."""
    opened: int | None = None
    """Number of the current version, if these changes have opened it."""


class _Versions:
    """The versions that changes open and end."""

    def __init__(self, schema: pa.Schema, own: Mapping[str, str], prefix: str) -> None:
        """`own`: the table's spelling of the source's columns -> their name in the changes."""
        self.ended: dict[int, dict[int, int]] = {}
        """File -> place of a version that ends -> its end, microseconds since 1970."""
        self._schema = schema
        self._own = own
        self._prefix = prefix
        self._chains: dict[Any, _Chain] = {}
        self._there = [schema.empty_table()]
        self._every = schema.empty_table()
        self._rows: list[tuple[int, _Row]] = []  # of each opened version: its change's place, and its row
        self._since: list[int] = []
        self._until: list[int | None] = []

    def find(self, file: int, rows: pa.Table, places: Sequence[int], key: Sequence[str]) -> None:
        """Take a file's versions of changed keys. A key's chain begins with its latest one."""
        start = sum(map(len, self._there))
        self._there.append(rows)
        current = rows.column(self._added("current")).to_pylist()
        since, until = (_micros(rows.column(self._added(name))) for name in ("valid_from", "valid_to"))
        for number, each in enumerate(key_tuples(rows, key)):
            is_current, moment = current[number], since[number] if current[number] else until[number]
            chain = self._chains.get(each)
            if chain is None or (is_current, moment or 0) > (chain.op != "delete", chain.since or 0):
                row = dict.fromkeys(self._own, start + number if is_current else None)
                stored = (file, places[number]) if is_current else None
                self._chains[each] = _Chain("current" if is_current else "delete", row, moment, stored)

    def follow(self, changes: pa.Table, fitted: pa.Table, keys: Sequence[Any]) -> None:
        """Take all changes, in order. `fitted`: the same rows with the table's columns."""
        before = sum(map(len, self._there))
        self._every = pa.concat_tables([*self._there, fitted])
        ops = changes.column(self._added("op")).to_pylist()
        times = _micros(changes.column(self._added("source_time")))
        absent = changes.column(self._added("absent")).to_pylist()
        for number, (each, op) in enumerate(zip(keys, ops, strict=True)):
            chain, place = self._chains.setdefault(each, _Chain()), before + number
            lacks = absent[number] or ()
            row = {
                name: chain.row.get(name) if told in lacks else None if op == "delete" else place
                for name, told in self._own.items()
            }
            is_known = (op == "delete" and chain.op == "delete") or (
                op == "snapshot" and chain.op != "delete" and self._are_equal(chain.row, row)
            )
            chain.op, chain.row = op, row
            if not is_known:
                self._go_on(chain, place, op, times[number] or 0)

    def _go_on(self, chain: _Chain, place: int, op: str, time: int) -> None:
        chain.since = time if chain.since is None else max(chain.since, time)
        if chain.stored is not None:
            file, stored = chain.stored
            self.ended.setdefault(file, {})[stored] = chain.since
        elif chain.opened is not None:
            self._until[chain.opened] = chain.since
        chain.stored = chain.opened = None
        if op != "delete":
            chain.opened = len(self._rows)
            self._rows.append((place, chain.row))
            self._since.append(chain.since)
            self._until.append(None)

    def with_ends(self, rows: pa.Table, ends: Mapping[int, int]) -> pa.Table:
        """Return a file's rows, with the versions at these places ended."""
        is_ended = pa.array([place in ends for place in range(len(rows))])
        until = pa.array([ends[place] for place in sorted(ends)], pa.int64()).cast(TIME)
        for name, values in (("valid_to", until), ("current", pa.array([False] * len(ends)))):
            place = rows.schema.get_field_index(self._added(name))
            column = pc.replace_with_mask(rows.column(place).combine_chunks(), is_ended, values)
            rows = rows.set_column(place, rows.schema.field(place), column)
        return rows

    def opened(self) -> pa.Table:
        """Return the rows of the versions that were opened."""
        places: list[int | None] = [place for place, _ in self._rows]
        chosen = {name: [row.get(name) for _, row in self._rows] for name in self._own}
        columns: dict[str, Any] = dict(
            picked(chosen | dict.fromkeys(map(self._added, _PLACE), places), self._every)
        )
        columns[self._added("valid_from")] = pa.array(self._since, pa.int64()).cast(TIME)
        columns[self._added("valid_to")] = pa.array(self._until, pa.int64()).cast(TIME)
        columns[self._added("current")] = pa.array([each is None for each in self._until], pa.bool_())
        every = [
            columns[each.name] if each.name in columns else pa.nulls(len(places), each.type)
            for each in self._schema
        ]
        return pa.table(every, schema=self._schema)

    def _added(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _are_equal(self, one: _Row, other: _Row) -> bool:
        return all(self._value(name, one.get(name)) == self._value(name, other[name]) for name in other)

    def _value(self, name: str, place: int | None) -> Any:
        value = None if place is None else self._every.column(name)[place].as_py()
        return "NaN" if isinstance(value, float) and isnan(value) else value


def _micros(column: pa.ChunkedArray) -> list[int | None]:
    return list(column.cast(TIME).cast(pa.int64()).to_pylist())
