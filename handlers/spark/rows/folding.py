"""Folds the row changes of a batch: the last change of each key, in one row.

`handlers.sql.folding` does the same for statements. This does it for whole columns: if no row lacks a column,
no row is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from handlers.api import Row
from handlers.rows import ValueUntold, check_told
from handlers.spark.rows.source_columns import Columns, Run, values_of


@dataclass(frozen=True, slots=True)
class Folded:
    """Folded changes. No key occurs twice."""

    rows: Sequence[Row]
    """The rows of keys that exist afterwards."""
    places: Sequence[int]
    """The place of each row's last change."""
    are_new: Sequence[bool]
    """Whether a row's first change was an insert."""
    partial: frozenset[int]
    """Places in `rows` of rows that lack some columns."""
    deleted: Sequence[int]
    """The last change's place, for each key that does not exist afterwards."""


def fold(images: Sequence[Row], ops: Sequence[str], keys: Sequence[Any], lacking: Collection[int]) -> Folded:
    """Fold the changes.

    `images`: the row after each change (before it, for a delete). `keys`: each change's key, hashable.
    `lacking`: places of the updates without some column.

    An update without some column is added to the batch's earlier row. A row that the batch inserted is whole.
    So is one that it deleted and inserted again: missing columns are null."""
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) == len(keys):
        first = last
    else:
        first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    places = [place for place in last.values() if ops[place] != "delete"]
    are_new = [ops[first[keys[place]]] == "insert" for place in places]
    deleted = [place for place in last.values() if ops[place] == "delete"]
    rows = [images[place] for place in places]
    wanted = {keys[place]: number for number, place in enumerate(places) if place in lacking}
    partial = set()
    for key, (row, is_whole) in _merged(images, ops, keys, wanted.keys(), lacking).items():
        rows[wanted[key]] = row
        if not is_whole:
            partial.add(wanted[key])
    return Folded(rows, places, are_new, frozenset(partial), deleted)


def _merged(
    images: Sequence[Row], ops: Sequence[str], keys: Sequence[Any], wanted: Any, lacking: Collection[int]
) -> dict[Any, tuple[Row, bool]]:
    """For each wanted key, return the row according to the batch, and whether it is whole."""
    merged: dict[Any, tuple[Row, bool]] = {}
    if not wanted:
        return merged
    for place, (image, op, key) in enumerate(zip(images, ops, keys, strict=True)):
        if key not in wanted:
            continue
        if op == "delete":
            merged[key] = ({}, True)
        elif place not in lacking:
            merged[key] = (image, True)
        else:
            row, is_whole = merged.get(key, ({}, False))
            merged[key] = ({**row, **image}, is_whole)
    return merged


_EQUAL_IN_PART = frozenset((float, datetime))
"""Types with values that are one key but not equal in Python: NaN, or a time with and without a zone."""


def images_of(run: Run) -> list[Row]:
    """Return the row after each change, for a delete the one before it. Raises Rejected."""
    return [
        change.after
        if change.after is not None and (change.op == "update" or change.is_whole)  # as nearly all are
        else image_of(run, place)
        for place, change in enumerate(run.changes)
    ]


def image_of(run: Run, place: int) -> Row:
    change = run.changes[place]
    image = change.before if change.after is None else change.after
    try:
        check_told(change)
    except ValueUntold as error:
        told = str(error)
        raise run.rejected(place, lambda where: f"at {where} {told}") from None
    if image is None:
        raise run.rejected(place, lambda where: f"the {change.op} at {where} has no row")
    return image


def keys_of(run: Run, columns: Columns, images: Sequence[Row]) -> Sequence[Any]:
    """Return each row's key, hashable. Keys are equal if the kept values are. Raises Rejected."""
    parts = [_key_part(run, columns, name, images) for name in run.key]
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def _key_part(run: Run, columns: Columns, name: str, images: Sequence[Row]) -> Sequence[Any]:
    values = values_of(images, name)
    if None in values:
        place = values.index(None)
        is_there = name in images[place]
        raise run.rejected(place, lambda where: _without_key(name, where, is_there=is_there))
    kept = columns.kept(name, values)
    types = set(map(type, values))
    if kept is None or (len(types) == 1 and types <= kept.natives - _EQUAL_IN_PART):
        return values
    return list(map(_hashable, columns.array(name, values, kept, range(len(values))).to_pylist()))


def _hashable(value: Any) -> Any:
    """NaN is a key like any other."""
    if isinstance(value, list):
        return tuple(value)
    return value if value == value else "NaN"  # noqa: PLR0124 - NaN alone is not


def _without_key(name: str, where: str, *, is_there: bool) -> str:
    if is_there:
        return f"the key column {name!r} is NULL at {where}: such a row cannot be distinguished from others"
    return (
        f"the change at {where} does not have the key column {name!r}: let the source send it with every "
        "change, or name another key"
    )
