"""The row changes of a batch as what they come to: of each key the last change, in one row.

What `handlers.sql.folding` does for statements is done here for whole columns: where no row lacks a column,
no row is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.api import Row


@dataclass(frozen=True, slots=True)
class Folded:
    """No key is in it twice."""

    rows: Sequence[Row]
    """Of the keys that are there afterwards."""
    places: Sequence[int]
    """Of each row, where its last change is."""
    are_new: Sequence[bool]
    """Whether a row's first change was an insert."""
    partial: frozenset[int]
    """Which rows do not carry all their columns: places in `rows`."""
    deleted: Sequence[int]
    """Of each key that is not there afterwards, where its last change is."""


def fold(images: Sequence[Row], ops: Sequence[str], keys: Sequence[Any], lacking: Collection[int]) -> Folded:
    """What the changes come to.

    `images`: the row after each change (before it, for a delete); `keys`: of each the key, hashable;
    `lacking`: places of the updates without some column.

    An update without some column adds to what the batch tells of the row before. A row that was inserted in
    the batch is whole, and so is one that was deleted in it and came again: what they lack is null.
    """
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
    images: Sequence[Row],
    ops: Sequence[str],
    keys: Sequence[Any],
    wanted: Any,
    lacking: Collection[int],
) -> dict[Any, tuple[Row, bool]]:
    """Of the wanted keys: what the batch tells of the row, and whether that is all of it."""
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
