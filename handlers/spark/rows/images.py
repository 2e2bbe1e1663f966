"""The rows of changes, and the keys that they are folded by."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from handlers.api import Row
from handlers.rows import ValueUntold, check_told
from handlers.spark.rows.source_columns import Columns, Run, values_of

_EQUAL_IN_PART = frozenset((float, datetime))
"""Types with values that are one key and not equal in Python: NaN, a time with a zone and one without."""


def images_of(run: Run) -> list[Row]:
    """The row after each change, of a delete the one before it. Raises Rejected."""
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
        raise run.rejected(place, lambda where: f"the {change.op} at {where} tells no row")
    return image


def keys_of(run: Run, columns: Columns, images: Sequence[Row]) -> Sequence[Any]:
    """Of each row the key, hashable; equal when the kept values are. Raises Rejected."""
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
        return f"the key column {name!r} is NULL at {where}: such a row cannot be told from others"
    return (
        f"the change at {where} does not carry the key column {name!r}: let the source send it with every "
        f"change, or name another key"
    )
