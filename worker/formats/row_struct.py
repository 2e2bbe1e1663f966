"""Rows of one shape, decoded from JSON in one pass, and the shapes that a format knows.

Records of a table look alike, one after the other: what is learnt of the first ones reads the rest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar, get_origin

import msgspec
from msgspec.structs import astuple

Row = dict[str, Any]
Key = TypeVar("Key")
Shape = TypeVar("Shape")
Decoder = TypeVar("Decoder")

_MOST_COLUMNS = 100_000
"""Of all shapes together: 130 MiB, if each has a decoder."""
_WEIGHT = 4  # of a shape beside its columns, in columns
_MET_BEFORE = 64
"""Messages of a shape from which on a decoder of its own is worth it."""
_MOST_PUT_OFF = 10_000
"""Messages that are read the long way after refusals, at the most."""


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
    """Rows with these columns and no others: nothing is dropped, nothing made up. Never changed.

    Its readers are code made for these columns alone, and raise what a column's `finish` raises. Names of
    columns are in that code only as the texts that `repr` makes of them."""

    __slots__ = ("_columns", "type")

    def __init__(self, columns: Iterable[StructColumn]) -> None:
        """Raises ValueError for a name that no decoder takes."""
        self._columns = tuple(columns)
        self.type: Any = msgspec.defstruct(
            "Row",
            [
                # Raw holds null as it is, and stands in no union.
                (f"v{place}", each.json_type if each.json_type is msgspec.Raw else each.json_type | None)
                for place, each in enumerate(self._columns)
            ],
            rename={f"v{place}": column.name for place, column in enumerate(self._columns)},
            forbid_unknown_fields=True,
            gc=False,
        )
        """What a decoder makes of a row."""

    def reader(self, on_null: Callable[[bytes], None] | None = None) -> Callable[..., Row]:
        """What makes a row of the decoder's values: `read(values)`; with `on_null` `read(values, text)`.

        The latter calls `on_null(text)` for a row that holds None."""
        lines = [self._unpack("v", "values")]
        if on_null is not None:
            values = " is None or ".join(f"v{place}" for place in range(len(self._columns)))
            lines.append(f"if {values} is None: on_null(text)")
        lines += [self._finish("v", place) for place, column in enumerate(self._columns) if column.finish]
        return self._made("values, text=None", [*lines, f"return {self._row('v')}"], on_null)

    def pair_reader(self) -> Callable[[Any, Any], tuple[Row, Row]]:
        """What makes the rows before and after an update: what is the same in both is finished once."""
        lines = [self._unpack("x", "old"), self._unpack("y", "new")]
        for place, column in enumerate(self._columns):
            if column.finish is None:
                continue
            both = [self._finish("x", place), self._finish("y", place)]
            if column.is_finished is None and column.json_type is not float and not _is_list(column):
                # Equal numbers of other types are not the same: 0.0 and -0.0, 1 and 1.0.
                text = f" and y{place}.__class__ is str" if column.json_type is Any else ""
                lines += [
                    f"if x{place} is not None and x{place} == y{place}{text}:",
                    f"    x{place} = y{place} = finish{place}(y{place})",
                    "else:",
                ]
                both = [f"    {line}" for line in both]
            lines += both
        return self._made("old, new", [*lines, f"return {self._row('x')}, {self._row('y')}"])

    def _unpack(self, prefix: str, values: str) -> str:
        return f"[{', '.join(f'{prefix}{place}' for place in range(len(self._columns)))}] = astuple({values})"

    def _finish(self, prefix: str, place: int) -> str:
        value = f"{prefix}{place}"
        unless = f" and not check{place}({value})" if self._columns[place].is_finished else ""
        return f"if {value} is not None{unless}: {value} = finish{place}({value})"

    def _row(self, prefix: str) -> str:
        items = (f"{column.name!r}: {prefix}{place}" for place, column in enumerate(self._columns))
        return f"{{{', '.join(items)}}}"

    def _made(
        self, parameters: str, lines: Iterable[str], on_null: Callable[[bytes], None] | None = None
    ) -> Callable[..., Any]:
        known: dict[str, Any] = {"astuple": astuple, "on_null": on_null}
        for place, column in enumerate(self._columns):
            known[f"finish{place}"], known[f"check{place}"] = column.finish, column.is_finished
        exec("\n    ".join([f"def read({parameters}):", *lines]), known)
        made: Callable[..., Any] = known["read"]
        return made


def _is_list(column: StructColumn) -> bool:
    return get_origin(column.json_type) is list


class Practice(Generic[Decoder]):
    """The decoder of one shape's messages, which is made once the shape was met often enough.

    A decoder costs 1 ms and about 1.3 KiB a column. It may refuse a message, which is then read the long way.
    Each refusal puts off its next use: a table with one zero date has others.

    Threads share it without a lock: a lost count does no harm, and of two decoders either will do."""

    __slots__ = ("_left", "_made", "_make", "_put_off")

    def __init__(self, make: Callable[[Any], Decoder]) -> None:
        """`make`: makes it for what `met` is given. Raises ValueError for a name that no decoder takes."""
        self._make = make
        self._left = self._put_off = _MET_BEFORE
        self._made: tuple[Hashable, Decoder | None] | None = None

    @property
    def decoder(self) -> Decoder | None:
        """None: it is not made yet, or refused a message lately."""
        return self._made[1] if self._left <= 0 and self._made is not None else None

    def refused(self) -> None:
        """The decoder refused a message."""
        self._left = self._put_off = min(2 * self._put_off, _MOST_PUT_OFF)

    def met(self, columns: Hashable) -> None:
        """A message was read the long way. `columns`: those of its rows."""
        self._left -= 1
        if self._left <= 0 and (self._made is None or self._made[0] != columns):
            try:
                self._made = columns, self._make(columns)
            except ValueError:
                self._made = columns, None


def spelled(key: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """The key's columns as the row spells them: MySQL's names know no case, and dicts do.

    One that no column has stays as it is: a row may lack a part of its key, and says so."""
    known = set(columns)
    folded = {name.casefold(): name for name in known}
    return tuple(name if name in known else folded.get(name.casefold(), name) for name in key)


class Shapes(Generic[Key, Shape]):
    """The shapes that are known, within bounds: beyond them all are forgotten, and learnt again.

    Threads share it without a lock: each access is one dict operation, and two threads that miss together
    make the same shape twice."""

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
