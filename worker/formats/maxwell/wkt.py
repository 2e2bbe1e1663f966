"""Convert geometries from text (WKT) to the form that MySQL stores: SRID, then WKB.

The grammar is that of OGC 06-103r4 in two dimensions, because MySQL has no others."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

_TOKEN = re.compile(r"\s*([A-Za-z]+|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[(),])")
_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<BI")  # 1: little endian
_POINT = struct.Struct("<dd")
_CODES = {
    "POINT": 1,
    "LINESTRING": 2,
    "POLYGON": 3,
    "MULTIPOINT": 4,
    "MULTILINESTRING": 5,
    "MULTIPOLYGON": 6,
    "GEOMETRYCOLLECTION": 7,
}


def geometry_bytes(text: str, srid: int = 0) -> bytes:
    """Convert `POINT (1 2)` to 4 bytes of SRID (little endian) and WKB. Raises ValueError for other text."""
    parser = _Parser(text)
    try:
        found = parser.geometry()
    except RecursionError:
        raise ValueError("not a geometry: nested too deeply") from None
    parser.end()
    return _COUNT.pack(srid) + found


class _Parser:
    """A parser of one geometry, from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"not a geometry: character {at + 1}")
            self._tokens.append(found[1])
            at = found.end()
        self._tokens.reverse()

    def geometry(self) -> bytes:
        name = self._next().upper()
        code = _CODES.get(name)
        if code is None:
            raise ValueError("not a geometry: its type does not exist in MySQL")
        return _HEAD.pack(1, code) + self._body(name)

    def end(self) -> None:
        if self._tokens:
            raise ValueError("not a geometry: text after its end")

    def _body(self, name: str) -> bytes:
        if name == "POINT":
            self._expect("(")
            point = self._position()
            self._expect(")")
            return point
        if name == "LINESTRING":
            return self._list(self._position)
        if name == "POLYGON":
            return self._list(lambda: self._list(self._position))
        if name == "GEOMETRYCOLLECTION":
            return self._list(self.geometry)
        part = name.removeprefix("MULTI")
        head = _HEAD.pack(1, _CODES[part])
        if part == "POINT":
            # Brackets around each point are optional.
            return self._list(lambda: head + (self._body(part) if self._sees("(") else self._position()))
        return self._list(lambda: head + self._body(part))

    def _list(self, read: Callable[[], bytes]) -> bytes:
        if self._sees("EMPTY"):
            self._next()
            return _COUNT.pack(0)
        self._expect("(")
        items = [read()]
        while self._sees(","):
            self._next()
            items.append(read())
        self._expect(")")
        return _COUNT.pack(len(items)) + b"".join(items)

    def _position(self) -> bytes:
        try:
            return _POINT.pack(float(self._next()), float(self._next()))
        except ValueError:
            raise ValueError("not a geometry: coordinates are missing") from None

    def _sees(self, token: str) -> bool:
        return bool(self._tokens) and self._tokens[-1].upper() == token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise ValueError(f"not a geometry: {token} is missing")

    def _next(self) -> str:
        if not self._tokens:
            raise ValueError("not a geometry: it ends too early")
        return self._tokens.pop()
