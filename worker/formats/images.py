"""The before and after images of a row, and the columns that they leave out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from handlers.api import Change, Operation
from worker.formats.interface import Record, UndecodableRecord
from worker.formats.statements import is_of_no_table

Row = dict[str, Any]

NOTHING: frozenset[str] = frozenset()


class Image(NamedTuple):
    """A change's images of its row. The fields are those of `Change`."""

    op: Operation
    before: Row | None
    after: Row | None
    lacks: frozenset[str] | None = NOTHING
    before_is_whole: bool = True
    moves_key: bool = False


def changes_from(
    images: Iterable[Image],
    record: Record,
    *,
    key: tuple[str, ...] | None,
    types: Mapping[str, str] | None,
    time_ms: int,
    transaction: str | None,
    first_index: int = 0,
) -> list[Change]:
    """Make a record's changes, one for each image. The arguments are fields of `Change`.

    Raises UndecodableRecord if a row lacks a column of its key."""
    place = record.topic(), record.partition(), record.offset()
    changes = []
    for index, (op, before, after, lacks, is_whole, moves) in enumerate(images, first_index):
        row = before if after is None else after
        if key and row is not None:
            check_key(key, row)
        content = before, after, key, None, time_ms
        changes.append(Change(op, *content, *place, index, transaction, types, lacks, is_whole, moves))
    return changes


def check_key(key: Iterable[str], row: Collection[str]) -> None:
    """Raise UndecodableRecord if the row lacks a key column: all such rows would share one key."""
    for name in key:
        if name not in row:
            raise UndecodableRecord(f"key column {name!r} is not in the row")


def statement_from(
    sql: str, record: Record, *, truncates: bool, time_ms: int, transaction: str | None, index: int = 0
) -> list[Change]:
    """The change of a record's statement, with this `index`. Empty if the statement changes no table."""
    if is_of_no_table(sql):
        return []
    op: Operation = "truncate" if truncates else "ddl"
    place = record.topic(), record.partition(), record.offset()
    return [Change(op, None, None, None, sql, time_ms, *place, index, transaction, None)]


def lacking(columns: AbstractSet[str], row: Row) -> frozenset[str]:
    """The table's columns that the row lacks, as a frozenset (`columns - row.keys()` gives a set)."""
    return NOTHING if columns <= row.keys() else frozenset(columns).difference(row)


def tells_more(row: Row, key: Collection[str] | None) -> bool:
    """Whether the row has a value outside its key. If not, the source may have logged only the key."""
    if not key:
        return True
    for name, value in row.items():  # noqa: SIM110 # a generator takes twice as long
        if value is not None and name not in key:
            return True
    return False


def deleted(row: Row, key: Collection[str] | None, columns: AbstractSet[str] | None = NOTHING) -> Image:
    """The image of a deleted row. It is whole if it has all known `columns` and a value outside its key.

    `columns` is None if the record may leave columns out and the table's columns are unknown."""
    is_whole = tells_more(row, key) and (columns or NOTHING) <= row.keys()
    return Image("delete", row, None, None if columns is None else NOTHING, is_whole)


def updated(
    before: Row | None,
    after: Row,
    key: Collection[str] | None,
    *,
    lacks: frozenset[str] | None = NOTHING,
    before_is_whole: bool = True,
) -> tuple[Image, ...]:
    """The image of an update, or a delete and an insert if the key changed.

    `before` contains the key's old values. `after` contains every value that either image has."""
    for name in key or ():
        if before is not None and before.get(name) != after.get(name):
            return (
                # If the new row may lack columns, the old one may lack them too.
                Image("delete", before, None, NOTHING, before_is_whole and lacks is not None, moves_key=True),
                Image("insert", None, after, lacks, moves_key=True),
            )
    return (Image("update", before, after, lacks, before_is_whole),)
