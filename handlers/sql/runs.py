"""Split the changes of a batch into runs that are applied in one way each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from handlers.api import Batch, Change
from handlers.native_types import SchemaTypes
from handlers.rows import is_move

_DDL = frozenset(("ddl", "truncate"))
_op = attrgetter("op")
_key_columns = attrgetter("key_columns")


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
    """Split changes into runs. If `one_by_one`, each run is one change, or the two changes of a move."""
    if one_by_one:
        place = 0
        while place < len(changes):
            change = changes[place]
            run = changes[place : place + 2] if is_move(*changes[place : place + 2]) else [change]
            yield Run(change.op in _DDL, change.key_columns or (), run, place)
            place += len(run)
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
