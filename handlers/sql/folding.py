"""Split a batch into runs that are applied in one way, and fold them: the last change of a key counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any

from handlers.api import Batch, Change, Row
from handlers.rows import borders, is_move
from handlers.values.native_types import SchemaTypes

Covers = Callable[[Row], bool]
_moves_key = attrgetter("moves_key")
_DDL = frozenset(("ddl", "truncate"))
_op = attrgetter("op")
_key_columns = attrgetter("key_columns")


class KeyMissing(ValueError):
    """A change without its whole key, or with a NULL in its key."""


@dataclass(slots=True)
class Folded:
    """The net effect. Deletes run first, then rows. Each key is in `inserted` or `updated` at most once."""

    deleted: list[tuple[Any, ...]] = field(default_factory=list)
    """Keys, including those of rows that were deleted and inserted again."""
    inserted: list[Row] = field(default_factory=list)
    """Rows that replace the row of their key."""
    updated: list[Row] = field(default_factory=list)
    """Rows that keep the columns that they do not contain."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that set the same columns."""

    columns: tuple[str, ...]
    values: Sequence[Sequence[Any]]
    """For each column the values of all rows."""
    count: int


def pieces(
    changes: Sequence[Change], key: tuple[str, ...], covers: Covers, *, moves: bool
) -> Iterator[tuple[bool, Sequence[Change]]]:
    """Split the changes in their order. Yields True with each one that changes a key without all columns of
    the target: the old row contains the rest. `covers` and `moves` are described at `fold`."""
    if not moves and not any(map(_moves_key, changes)):
        yield False, changes
        return
    first = place = 0
    while place < len(changes):
        piece = changes[place : place + 1] if moves else changes[place : place + 2]
        if _is_apart(piece, key, covers, moves=moves):
            if first < place:
                yield False, changes[first:place]
            yield True, piece
            first = place = place + len(piece)
        else:
            place += 1
    if first < len(changes):
        yield False, changes[first:]


def _is_apart(piece: Sequence[Change], key: tuple[str, ...], covers: Covers, *, moves: bool) -> bool:
    """Return whether an update, or its two halves, changes the key without all columns of the row."""
    before, after = piece[0].before or {}, piece[-1].after or {}
    return (
        (moves or is_move(*piece))
        and all(column in before and column in after for column in key)
        and (not moves or any(before[column] != after[column] for column in key))
        and (not piece[-1].is_whole or not covers(after))
    )


_UNKNOWN = object()


def fold(changes: Sequence[Change], key: tuple[str, ...], *, covers: Covers, moves: bool) -> Folded:
    """Fold the changes of one table, which are in source order.

    `covers` returns whether a row has all columns of the target's table. A deleted row that is inserted again
    with fewer columns is deleted first, so no old value stays. `moves`: an update may change the key, because
    the key is the target's and not the source's.

    Raises KeyMissing."""
    try:
        return _fold(changes, key, covers=covers, moves=moves)
    except TypeError:
        for change in changes:
            for row in (change.before, change.after):
                _refuse_compound(row or {}, key)
        raise


def _fold(changes: Sequence[Change], key: tuple[str, ...], *, covers: Covers, moves: bool) -> Folded:
    take: Callable[[Row], Any] = itemgetter(*key)
    final: dict[Any, Row | None] = {}
    again: set[Any] = set()
    inserted: set[Any] = set()
    for change in changes:
        row = change.after
        if row is None:
            final[_key(take, change.before, change, key)] = None
            continue
        its = _key(take, row, change, key)
        if moves and change.before is not None:
            old = _key(take, {**row, **change.before}, change, key)
            if old != its:
                final[old] = None
        known = final.get(its, _UNKNOWN)
        if known is None and not covers(row):
            again.add(its)
        if change.op != "update" and not change.moves_key:
            inserted.add(its)
        elif known is not _UNKNOWN and known is not None:
            row = {**known, **row}  # type: ignore[dict-item]  # known is a row
        final[its] = row
    return _folded(final, again, inserted, is_single=len(key) == 1)


def _folded(final: dict[Any, Row | None], again: set[Any], inserted: set[Any], *, is_single: bool) -> Folded:
    if (None in final) if is_single else any(None in key for key in final):
        raise KeyMissing("a column of its primary key is NULL")
    deleted = [key for key, row in final.items() if row is None or key in again]
    new = [row for key, row in final.items() if row is not None and key in inserted]
    rest = [row for key, row in final.items() if row is not None and key not in inserted]
    return Folded([(key,) for key in deleted] if is_single else deleted, new, rest)


def _key(take: Callable[[Row], Any], row: Row | None, change: Change, key: tuple[str, ...]) -> Any:
    try:
        return take(row or {})
    except KeyError as error:
        raise KeyMissing(f"it does not have the key column {error.args[0]}") from None


def _refuse_compound(row: Row, key: tuple[str, ...]) -> None:
    """Raise KeyMissing if a key contains a list or an object."""
    for column in key:
        if isinstance(row.get(column), list | dict):
            kind = "a list" if isinstance(row[column], list) else "an object"
            raise KeyMissing(f"its key column {column} contains {kind}, so no row can be found by it")


def blocks(rows: Sequence[Row]) -> Iterator[Block]:
    """Group the rows by the columns that they set."""
    if not rows:
        return
    columns = tuple(rows[0])
    block = _block(columns, rows)
    if block is not None:
        yield block
        return
    groups: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    for group in groups.values():
        one = _block(tuple(group[0]), group)
        if one is not None:
            yield one


def _block(columns: tuple[str, ...], rows: Sequence[Row]) -> Block | None:
    """Return the rows as a block, or None if some row sets other columns."""
    if set(map(len, rows)) != {len(columns)}:
        return None
    try:
        return Block(columns, [list(map(itemgetter(column), rows)) for column in columns], len(rows))
    except KeyError:
        return None


class ChangeFailed(Exception):
    """The change at index `place` of the batch failed on its own with `error`."""

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(place)
        self.place = place
        self.error = error


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive changes that are applied in the same way."""

    is_ddl: bool
    key: tuple[str, ...]
    changes: Sequence[Change]
    first: int


def has_ddl(changes: Sequence[Change]) -> bool:
    return not _DDL.isdisjoint(map(_op, changes))


def runs(changes: Sequence[Change], *, one_by_one: bool) -> Iterator[Run]:
    """Split changes into runs. If `one_by_one`, each run is as short as `borders` allows."""
    if one_by_one and changes:
        for place, end in pairwise(borders(changes, 0, len(changes))):
            change = changes[place]
            yield Run(change.op in _DDL, change.key_columns or (), changes[place:end], place)
        return
    keys = set(map(_key_columns, changes))
    if len(keys) == 1 and not has_ddl(changes):
        yield Run(False, keys.pop() or (), changes, 0)
        return
    first = 0
    for (is_ddl, key), group in groupby(changes, lambda one: (one.op in _DDL, one.key_columns)):
        run = list(group)
        yield Run(is_ddl, key or (), run, first)
        first += len(run)


def parts(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Split the batch by its records' schemas. Yields (index of the first change, batch)."""
    place = 0
    changes = batch.changes
    for _, group in groupby(changes, lambda one: id(one.types) if isinstance(one.types, SchemaTypes) else 0):
        count = len(list(group))
        yield place, batch if count == len(changes) else batch.part(place, place + count)
        place += count
