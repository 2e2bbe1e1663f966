"""The images of a row that a source logs: what they tell together, and what they leave out."""

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
    """What a change says of its row; the fields are those of `Change`."""

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
    """The changes of a record, one for each image; the arguments are fields of `Change`.

    Raises UndecodableRecord for a row without a column of its key."""
    place = record.topic(), record.partition(), record.offset()
    changes = []
    for index, (op, before, after, lacks, is_whole, moves) in enumerate(images, first_index):
        row = before if after is None else after
        if key and row is not None:
            check_key(key, row)
        told = before, after, key, None, time_ms
        changes.append(Change(op, *told, *place, index, transaction, types, lacks, is_whole, moves))
    return changes


def check_key(key: Iterable[str], row: Collection[str]) -> None:
    """Raises UndecodableRecord where the row lacks a column of its key: all such rows would share one key."""
    for name in key:
        if name not in row:
            raise UndecodableRecord(f"key column {name!r} is not in the row")


def statement_from(
    sql: str, record: Record, *, truncates: bool, time_ms: int, transaction: str | None, index: int = 0
) -> list[Change]:
    """The one change of a record's statement, or of that at `index`; none if it is of no table."""
    if is_of_no_table(sql):
        return []
    op: Operation = "truncate" if truncates else "ddl"
    place = record.topic(), record.partition(), record.offset()
    return [Change(op, None, None, None, sql, time_ms, *place, index, transaction, None)]


def lacking(columns: AbstractSet[str], row: Row) -> frozenset[str]:
    """The table's columns that the row does not have: a frozen set, which `columns - row.keys()` is not."""
    return NOTHING if columns <= row.keys() else frozenset(columns).difference(row)


def tells_more(row: Row, key: Collection[str] | None) -> bool:
    """Whether the row has a value beside its key. If not, the source may have logged the key alone."""
    if not key:
        return True
    for name, value in row.items():  # noqa: SIM110 # as a generator it takes twice as long
        if value is not None and name not in key:
            return True
    return False


def deleted(row: Row, key: Collection[str] | None, columns: AbstractSet[str] | None = NOTHING) -> Image:
    """A deleted row. It is whole if it has all `columns`, as far as they are known, and more than its key.

    `columns` is None for a source that may leave some out."""
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
    """An update: one image, or a delete and an insert if the key changed.

    `before` has the key's old values. `after` has every value that either image tells."""
    for name in key or ():
        if before is not None and before.get(name) != after.get(name):
            return (
                # If the new row may lack columns, the old one may lack them, too.
                Image("delete", before, None, NOTHING, before_is_whole and lacks is not None, moves_key=True),
                Image("insert", None, after, lacks, moves_key=True),
            )
    return (Image("update", before, after, lacks, before_is_whole),)
