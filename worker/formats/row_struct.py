"""Rows of one shape, decoded from JSON in one pass, and the shapes that a format knows.

Records of a table look alike, one after the other: what is learnt of the first ones reads the rest. A decoder
of its own costs a shape 1 ms and about 1.3 KiB a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, astuple

__all__ = ["Row", "RowStruct", "Shapes", "StructColumn"]

Row = dict[str, Any]
Key = TypeVar("Key")
Shape = TypeVar("Shape")

_MOST_COLUMNS = 100_000
"""Of all shapes together: 130 MiB, if each has a decoder."""
_WEIGHT = 4  # of a shape beside its columns, in columns


class StructColumn(NamedTuple):
    """How the JSON of one column becomes its value."""

    name: str
    json_type: Any
    """What the decoder reads it as; null is None."""
    finish: Callable[[Any], Any] | None = None
    """What is left to do with the decoder's value; None: nothing."""
    is_finished: Callable[[Any], bool] | None = None
    """Whether the decoder's value can stay as it is; None: it never can."""


class RowStruct:
    """Rows with these columns and no others: nothing is dropped, nothing made up. Never changed."""

    __slots__ = ("_checks", "_finishes", "_names", "as_row", "type")

    def __init__(self, columns: Iterable[StructColumn]) -> None:
        columns = tuple(columns)
        self._names = names = tuple(column.name for column in columns)
        plain = all(name.isidentifier() and not name.startswith("__") for name in names)
        fields = names if plain else tuple(f"column{place}" for place in range(len(names)))
        self.type: Any = msgspec.defstruct(
            "Row",
            [
                # Raw holds null as it is, and stands in no union.
                (field, column.json_type if column.json_type is msgspec.Raw else column.json_type | None)
                for field, column in zip(fields, columns, strict=True)
            ],
            rename=dict(zip(fields, names, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        """What a decoder makes of a row."""
        self.as_row: Callable[[Any], Row] = asdict
        """The decoder's values by column, not finished yet."""
        if not plain:
            self.as_row = lambda values: dict(zip(names, astuple(values), strict=True))
        unfinished = [(c.name, c.is_finished, c.finish) for c in columns if c.finish is not None]
        self._checks = tuple((name, check, finish) for name, check, finish in unfinished if check is not None)
        self._finishes = tuple((name, finish) for name, check, finish in unfinished if check is None)

    def reader(self, on_null: Callable[[bytes], None]) -> Callable[[Any, bytes], Row]:
        """What makes the finished row of the decoder's values and of the text that they come from, at one go:
        code for these columns alone, of which there is at least one.

        `on_null` is told the text of a row that holds None. The reader raises what it or a `finish` does."""
        places = {name: f"v{place}" for place, name in enumerate(self._names)}
        values = list(places.values())
        known: dict[str, Any] = {"astuple": astuple, "on_null": on_null}
        lines = [
            f"    {', '.join(values)}, = astuple(values)",
            f"    if {' is None or '.join(values)} is None:",
            "        on_null(text)",
        ]
        for column, check, finish in (
            *self._checks,
            *((name, None, finish) for name, finish in self._finishes),
        ):
            value = places[column]
            known[f"finish_{value}"], known[f"check_{value}"] = finish, check
            unless = "" if check is None else f" and not check_{value}({value})"
            lines += [f"    if {value} is not None{unless}:", f"        {value} = finish_{value}({value})"]
        items = ", ".join(f"{name!r}: {value}" for name, value in places.items())
        # Names of columns stand in it as the texts that `repr` makes of them, and nowhere else.
        exec("\n".join(["def read(values, text):", *lines, f"    return {{{items}}}"]), known)
        made: Callable[[Any, bytes], Row] = known["read"]
        return made

    def finish(self, row: Row) -> Row:
        """The same row, with finished values. Raises what a column's `finish` does."""
        for column, is_finished, finish in self._checks:
            value = row[column]
            if value is not None and not is_finished(value):
                row[column] = finish(value)
        for column, finish in self._finishes:
            value = row[column]
            if value is not None:
                row[column] = finish(value)
        return row

    def finish_both(self, old: Row, new: Row) -> tuple[Row, Row]:
        """The rows of an update: what is the same in both, as most is, is finished once. Raises as `finish`
        does."""
        for column, is_finished, finish in self._checks:
            for row in (old, new):
                value = row[column]
                if value is not None and not is_finished(value):
                    row[column] = finish(value)
        for column, finish in self._finishes:
            was, value = old[column], new[column]
            if value is not None:
                new[column] = finished = finish(value)
                if was == value:
                    old[column] = finished
                    continue
            if was is not None:
                old[column] = finish(was)
        return old, new


class Shapes(Generic[Key, Shape]):
    """The shapes that are known, within bounds: beyond them all are forgotten, and learnt again.

    Threads share it without a lock: each access is one dict operation, and two threads that miss together
    make the same shape twice.
    """

    def __init__(self) -> None:
        self._shapes: dict[Key, Shape] = {}
        self._weight = 0
        self.get: Callable[[Key], Shape | None] = self._shapes.get

    def add(self, key: Key, shape: Shape, columns: int) -> bool:
        """`columns`: about so many that it has. Whether all others were forgotten."""
        self._weight += columns + _WEIGHT
        full = self._weight > _MOST_COLUMNS
        if full:
            self._shapes.clear()
            self._weight = columns + _WEIGHT
        self._shapes[key] = shape
        return full
