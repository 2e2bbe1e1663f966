"""Decode JSON: values of any shape, and rows of one shape in one pass. Numbers are not rounded.

An integer becomes an int of any size. A number with a point or an exponent becomes a float, or a Decimal if a
float would not give its digits back. An object or array becomes compact text, with keys and numbers as sent.
Consecutive records of a table look alike, so a decoder made after the first ones reads the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar, get_origin

import msgspec

from handlers.mysql.values import Converter
from handlers.values.bounds import bounded

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of a decoder: invalid JSON or a wrong type, bytes that are not UTF-8, too much nesting."""
JSON_ERRORS = (*DECODE_ERRORS, ArithmeticError)
"""DECODE_ERRORS, and the exceptions for a number that is too long for any source."""
READ_ERRORS = (*JSON_ERRORS, ValueError)
"""JSON_ERRORS, and the exception for a value that does not fit its column's type."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACE = re.compile(rb"\s")


def number(text: str) -> float | Decimal:
    """Read a JSON number with a point or an exponent: a float if it gives its digits back, else a Decimal.

    For `float_hook` of msgspec's decoder. Raises ArithmeticError for a number that is too long for any
    source. The decoder turns BeyondBounds into a DecodeError."""
    value = float(text)
    if repr(value) == text:
        return value
    exact = bounded(Decimal(text))
    return value if Decimal(repr(value)) == exact else exact


read_json: Any = msgspec.json.Decoder(float_hook=number).decode
"""Read JSON as plain values. Raises one of JSON_ERRORS."""
_read_text: Any = msgspec.json.Decoder(str).decode


def object_in(value: bytes) -> dict[str, Any] | None:
    """Read a JSON object. None for any other content."""
    try:
        found = read_json(value)
    except JSON_ERRORS:
        return None
    return found if isinstance(found, dict) else None


def compact(raw: bytes) -> str:
    """Return JSON without spaces. The order of keys and the spelling of numbers stay unchanged.

    `raw` is valid JSON. Escapes that JSON does not require are removed, because they belong to the message
    and not to the document. Raises one of JSON_ERRORS."""
    # Format only JSON that contains spaces. Most JSON contains none, not even in its strings.
    text = msgspec.json.format(raw, indent=-1) if _SPACE.search(raw) else raw
    if b"\\" in text:
        text = _STRING.sub(_without_escapes, text)
    return text.decode()


def _without_escapes(found: re.Match[bytes]) -> bytes:
    literal = found[0]
    return msgspec.json.encode(_read_text(literal)) if b"\\" in literal else literal


def plain(raw: msgspec.Raw) -> Any:
    """Read the value of a column whose type is unknown. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    return compact(text) if text[:1] in (b"{", b"[") else read_json(text)


def text_of(raw: msgspec.Raw) -> str:
    """Return a JSON string's characters, or any other value's spelling. Raises one of JSON_ERRORS."""
    text = bytes(raw)
    found: str = _read_text(text) if text[:1] == b'"' else text.decode()
    return found


Row = dict[str, Any]
Key = TypeVar("Key")
Shape = TypeVar("Shape")
Decoder = TypeVar("Decoder")

_MOST_COLUMNS = 100_000
"""Most columns of all shapes together. They take 130 MiB if each shape has a decoder."""
_WEIGHT = 4  # a shape's own weight, without its columns, counted in columns
_MET_BEFORE = 64
"""Messages of a shape before it gets its own decoder."""
_MOST_PUT_OFF = 10_000
"""Most messages that are read on the slow path after a refusal."""


class RowStruct:
    """Rows with exactly these columns. No column is dropped or added. Immutable.

    Its readers are code generated for these columns. They raise what a column's `finish` raises. Column names
    occur in the code only as `repr` writes them."""

    __slots__ = ("_columns", "_names", "type")

    def __init__(self, columns: Mapping[str, Converter]) -> None:
        """Raises ValueError for a name that no decoder accepts."""
        self._names, self._columns = tuple(columns), tuple(columns.values())
        self.type: Any = msgspec.defstruct(
            "Row",
            [
                # Raw contains null unchanged, and cannot be part of a union.
                (f"v{place}", each.json_type if each.json_type is msgspec.Raw else each.json_type | None)
                for place, each in enumerate(self._columns)
            ],
            rename={f"v{place}": name for place, name in enumerate(self._names)},
            forbid_unknown_fields=True,
            gc=False,
        )
        """The struct that a decoder makes from a row."""

    def reader(self, on_null: Callable[[bytes], None] | None = None) -> Callable[..., Row]:
        """Make a function that returns a row: `read(values)`, or with `on_null` `read(values, text)`.

        `values`: from the decoder. The second form calls `on_null(text)` for a row that contains None."""
        lines = [self._unpack("v", "values")]
        if on_null is not None:
            values = " is None or ".join(f"v{place}" for place in range(len(self._columns)))
            lines.append(f"if {values} is None: on_null(text)")
        lines += [self._finish("v", place) for place, column in enumerate(self._columns) if column.finish]
        return self._made("values, text=None", [*lines, f"return {self._row('v')}"], on_null)

    def pair_reader(self) -> Callable[[Any, Any], tuple[Row, Row]]:
        """Make a function that returns the rows before and after an update. It converts equal values once."""
        lines = [self._unpack("x", "old"), self._unpack("y", "new")]
        for place, column in enumerate(self._columns):
            if column.finish is None:
                continue
            both = [self._finish("x", place), self._finish("y", place)]
            is_list = get_origin(column.json_type) is list
            if column.is_finished is None and column.json_type is not float and not is_list:
                # Equal values of other types may differ: 0.0 and -0.0, 1 and 1.0.
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
        return "; ".join(f"{prefix}{place} = {values}.v{place}" for place in range(len(self._columns)))

    def _finish(self, prefix: str, place: int) -> str:
        value = f"{prefix}{place}"
        unless = f" and not check{place}({value})" if self._columns[place].is_finished else ""
        return f"if {value} is not None{unless}: {value} = finish{place}({value})"

    def _row(self, prefix: str) -> str:
        items = (f"{name!r}: {prefix}{place}" for place, name in enumerate(self._names))
        return f"{{{', '.join(items)}}}"

    def _made(
        self, parameters: str, lines: Iterable[str], on_null: Callable[[bytes], None] | None = None
    ) -> Callable[..., Any]:
        known: dict[str, Any] = {"on_null": on_null}
        for place, column in enumerate(self._columns):
            known[f"finish{place}"], known[f"check{place}"] = column.finish, column.is_finished
        exec("\n    ".join([f"def read({parameters}):", *lines]), known)
        made: Callable[..., Any] = known["read"]
        return made


class Practice(Generic[Decoder]):
    """The decoder of one shape's messages. It is made after enough messages of the shape.

    A decoder costs 1 ms and about 1.3 KiB a column. It may refuse a message, which is then read on the slow
    path. Each refusal delays its next use, because a table with one zero date usually has more.

    Threads share it without a lock. A lost count does no harm, and two decoders of a shape do the same."""

    __slots__ = ("_left", "_made", "_make", "_put_off")

    def __init__(self, make: Callable[[Any], Decoder]) -> None:
        """`make` makes the decoder for `met`'s argument. It raises ValueError if a decoder rejects a name."""
        self._make = make
        self._left = self._put_off = _MET_BEFORE
        self._made: tuple[Hashable, Decoder | None] | None = None

    @property
    def decoder(self) -> Decoder | None:
        """The decoder. None: it is not made yet, or has refused a message recently."""
        return self._made[1] if self._left <= 0 and self._made is not None else None

    def refused(self) -> None:
        """Delay the next use of the decoder, because it refused a message."""
        self._left = self._put_off = min(2 * self._put_off, _MOST_PUT_OFF)

    def met(self, columns: Hashable) -> None:
        """Count a message that was read on the slow path. `columns`: the columns of its rows."""
        self._left -= 1
        if self._left <= 0 and (self._made is None or self._made[0] != columns):
            try:
                self._made = columns, self._make(columns)
            except ValueError:
                self._made = columns, None


def spelled(key: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Spell the key's columns as the row does. MySQL ignores the case of column names, but a dict does not.

    A name that no column has stays unchanged. A later check reports the row that lacks it."""
    known = set(columns)
    folded = {name.casefold(): name for name in known}
    return tuple(name if name in known else folded.get(name.casefold(), name) for name in key)


class Shapes(Generic[Key, Shape]):
    """The known shapes, up to a limit. Beyond it, all are forgotten and made again.

    Threads share it without a lock, because each access is one dict operation. Two threads that miss at the
    same time make the same shape twice."""

    def __init__(self) -> None:
        self._shapes: dict[Key, Shape] = {}
        self._weight = 0
        self.get: Callable[[Key], Shape | None] = self._shapes.get

    def add(self, key: Key, shape: Shape, columns: int) -> bool:
        """Add a shape with about `columns` columns. Return whether all others were forgotten."""
        self._weight += columns + _WEIGHT
        full = self._weight > _MOST_COLUMNS
        if full:
            self._shapes.clear()
            self._weight = columns + _WEIGHT
        self._shapes[key] = shape
        return full
