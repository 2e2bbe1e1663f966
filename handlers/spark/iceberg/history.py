"""Histories: every version of each row, with its period of validity. The rules are those of
`handlers.spark.delta.modes.history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.matching import among, key_tuples, matched, names_in, picked
from handlers.spark.rows.shape import TIME, Shape

_PLACE = ("op", "topic", "partition", "offset", "index")


@dataclass(slots=True)
class _Chain:
    """The versions of one key so far."""

    op: str = "delete"
    """Of the last change: `delete` if the row does not exist."""
    row: Mapping[str, int | None] = field(default_factory=dict)
    """Column -> where its value is. None: null."""
    since: int | None = None
    """Start of the last version, or its end, microseconds since 1970."""
    stored: tuple[int, int] | None = None
    """File and place of the current version, if the table has it."""
    opened: int | None = None
    """Number of the current version, if these changes have opened it."""


@dataclass(slots=True)
class _Versions:
    """The versions that changes open and end."""

    rows: list[tuple[int, Mapping[str, int | None]]] = field(default_factory=list)
    """(its change, column -> where its value is)."""
    since: list[int] = field(default_factory=list)
    until: list[int | None] = field(default_factory=list)
    ended: dict[int, dict[int, int]] = field(default_factory=dict)
    """File -> place of a version that ends -> its end."""

    def follow(self, chain: _Chain, change: int, op: str, time: int) -> None:
        """Take the next change of a key, of which `chain.row` is the row now."""
        chain.since = time if chain.since is None else max(chain.since, time)
        if chain.stored is not None:
            file, place = chain.stored
            self.ended.setdefault(file, {})[place] = chain.since
        elif chain.opened is not None:
            self.until[chain.opened] = chain.since
        chain.stored = chain.opened = None
        if op != "delete":
            chain.opened = len(self.rows)
            self.rows.append((change, chain.row))
            self.since.append(chain.since)
            self.until.append(None)


def bring(commit: TableCommit, changes: pa.Table, shape: Shape, note: CommitNote, *, prefix: str) -> None:
    """Write the versions into the commit. Files with a version that ends are written anew."""
    schema = arrow_schema(commit.schema)
    key = list(names_in(schema, shape.key))
    own = names_in(schema, shape.schema.names)
    added = {name: f"{prefix}{name}" for name in (*_PLACE, "valid_from", "valid_to", "current")}
    fitted = fitted_to(changes, schema)
    keys = fitted.select(key)
    matching = among(keys)
    files = commit.files(matching)
    chains: dict[Any, _Chain] = {}
    there = [schema.empty_table()]
    for number, file in enumerate(files):
        rows = commit.rows(file, commit.schema).cast(schema)
        places = pc.indices_nonzero(matched(rows, keys))
        start = sum(map(len, there))
        there.append(rows.take(places))
        _take_latest(chains, there[-1], places.to_pylist(), number, start, key, list(own), added)
    before = sum(map(len, there))
    every = pa.concat_tables([*there, fitted])
    versions = _followed(chains, changes, every, before, key_tuples(keys, key), own, prefix)
    touched = [files[number] for number in sorted(versions.ended)]

    def rows_of() -> Iterator[pa.Table]:
        for number, ends in sorted(versions.ended.items()):
            yield _ended(commit.rows(files[number], commit.schema).cast(schema), ends, added)
        yield _opened(versions, every, before, schema, list(own), added)

    commit.replace(touched, rows_of(), note, matching=matching)


def _take_latest(
    chains: dict[Any, _Chain],
    rows: pa.Table,
    places: Sequence[int],
    file: int,
    start: int,
    key: Sequence[str],
    own: Sequence[str],
    added: Mapping[str, str],
) -> None:
    """Begin each key's chain with its latest version in the table."""
    current = rows.column(added["current"]).to_pylist()
    since, until = (_micros(rows.column(added[name])) for name in ("valid_from", "valid_to"))
    for number, each in enumerate(key_tuples(rows, key)):
        chain = chains.get(each)
        moment = since[number] if current[number] else until[number]
        if chain is None or (current[number], moment or 0) > (chain.op != "delete", chain.since or 0):
            row = {name: start + number if current[number] or name in key else None for name in own}
            stored = (file, places[number]) if current[number] else None
            op = "current" if current[number] else "delete"
            chains[each] = _Chain(op, row, moment, stored)


def _followed(
    chains: dict[Any, _Chain],
    changes: pa.Table,
    every: pa.Table,
    before: int,
    keys: Sequence[Any],
    own: Mapping[str, str],
    prefix: str,
) -> _Versions:
    versions = _Versions()
    ops = changes.column(f"{prefix}op").to_pylist()
    times = _micros(changes.column(f"{prefix}source_time"))
    absent = changes.column(f"{prefix}absent").to_pylist()
    for number, (each, op) in enumerate(zip(keys, ops, strict=True)):
        chain = chains.setdefault(each, _Chain())
        lacks, place = absent[number] or (), before + number
        row = {
            name: chain.row.get(name) if told in lacks else None if op == "delete" else place
            for name, told in own.items()
        }
        is_known = (op == "delete" == chain.op) or (
            op == "snapshot" and chain.op != "delete" and _are_equal(every, chain.row, row)
        )
        chain.op, chain.row = op, row
        if not is_known:
            versions.follow(chain, number, op, times[number] or 0)
    return versions


def _are_equal(every: pa.Table, one: Mapping[str, int | None], other: Mapping[str, int | None]) -> bool:
    return all(_value(every, name, one.get(name)) == _value(every, name, other[name]) for name in other)


def _value(every: pa.Table, name: str, place: int | None) -> Any:
    value = None if place is None else every.column(name)[place].as_py()
    return "NaN" if isinstance(value, float) and value != value else value


def _ended(rows: pa.Table, ends: Mapping[int, int], added: Mapping[str, str]) -> pa.Table:
    is_ended = pa.array([place in ends for place in range(len(rows))])
    until = pa.array([ends[place] for place in sorted(ends)], pa.int64()).cast(TIME)
    for name, values in ((added["valid_to"], until), (added["current"], pa.array([False] * len(ends)))):
        place = rows.schema.get_field_index(name)
        column = pc.replace_with_mask(rows.column(name).combine_chunks(), is_ended, values)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


def _opened(
    versions: _Versions,
    every: pa.Table,
    before: int,
    schema: pa.Schema,
    own: Sequence[str],
    added: Mapping[str, str],
) -> pa.Table:
    chosen: dict[str, list[int | None]] = {name: [row.get(name) for _, row in versions.rows] for name in own}
    places: list[int | None] = [before + change for change, _ in versions.rows]
    chosen |= {added[name]: places for name in _PLACE}
    columns: dict[str, Any] = dict(picked(chosen, every))
    columns[added["valid_from"]] = pa.array(versions.since, pa.int64()).cast(TIME)
    columns[added["valid_to"]] = pa.array(versions.until, pa.int64()).cast(TIME)
    columns[added["current"]] = pa.array([each is None for each in versions.until], pa.bool_())
    nothing = len(versions.rows)
    return pa.table(
        [columns[each.name] if each.name in columns else pa.nulls(nothing, each.type) for each in schema],
        schema=schema,
    )


def _micros(column: pa.ChunkedArray) -> list[int | None]:
    return list(column.cast(TIME).cast(pa.int64()).to_pylist())
