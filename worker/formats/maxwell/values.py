"""Columns of Maxwell's rows, as a JSON decoder reads them and what is left to do after it.

Maxwell writes numbers as JSON numbers with all their digits, sets as arrays, JSON as it is, bytes in base64,
geometry as WKT, everything else as text: its `schema/columndef` package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from handlers.mysql.types import BYTES, SHAPES, MySQLType, read_type
from handlers.mysql.values import converter_of
from worker.formats.json_values import compact, plain, text_of
from worker.formats.maxwell.wkt import geometry_bytes


class Column(NamedTuple):
    """How the JSON values of one column become Python values."""

    json_type: Any
    """What a JSON decoder reads the value as, by itself; it may refuse values that `read` knows."""
    read: Callable[[msgspec.Raw], Any]
    """The whole way. Raises one of READ_ERRORS for what is no value of the type."""
    finish: Callable[[Any], Any] | None = None
    """What is left to do with the decoder's value, unless it is None. Raises as `read` does."""
    is_finished: Callable[[Any], bool] | None = None
    """Whether the decoder's value can stay as it is; None: it never can."""


_NULL = msgspec.Raw(b"null")


def column_of(type_text: str) -> Column:
    """How a column of this type (`decimal(10,2)`, `set('a','b')`) is read."""
    mysql_type = read_type(type_text)
    name = mysql_type.name
    if name == "json":
        return _JSON
    if name == "set":
        return _set_of(mysql_type.labels)
    if name in ("geomcollection", *SHAPES):
        return _GEOMETRY
    if name in BYTES:
        return _bytes_of(mysql_type)
    converter = (
        None if name == "enum" else converter_of(type_text)
    )  # an enum comes as its label, not its index
    if converter is None:
        return _TEXT
    read_text = converter.read
    return Column(
        converter.json_type,
        _unless_null(lambda raw: read_text(text_of(raw))),
        converter.finish,
        converter.is_finished,
    )


def _unless_null(read: Callable[[msgspec.Raw], Any]) -> Callable[[msgspec.Raw], Any]:
    return lambda raw: None if raw == _NULL else read(raw)


def _decoded(json_type: Any, finish: Callable[[Any], Any] | None = None) -> Column:
    decode = msgspec.json.Decoder(json_type).decode
    if finish is None:
        return Column(json_type, _unless_null(decode))
    return Column(json_type, _unless_null(lambda raw: finish(decode(raw))), finish)


def _json(raw: msgspec.Raw) -> str | None:
    """Maxwell writes NULL and JSON's own null alike: both are None."""
    return None if raw == _NULL else compact(bytes(raw))


def _bytes_of(mysql_type: MySQLType) -> Column:
    length = mysql_type.padded_to
    if not length:
        return _BASE64
    # BINARY(n) always holds n bytes; the stream drops the trailing zeros.
    padded = _decoded(bytes, lambda value: value.ljust(length, b"\0"))
    return padded._replace(is_finished=lambda value: len(value) == length)


def _set_of(labels: Sequence[str]) -> Column:
    places = {label: place for place, label in enumerate(labels)}

    def in_order(chosen: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(sorted(chosen, key=places.__getitem__))
        except KeyError:
            raise ValueError(f"no label of its {len(labels)}") from None

    column = _decoded(tuple[str, ...], in_order if labels else None)
    return column._replace(is_finished=lambda chosen: len(chosen) < 2 and places.keys() >= set(chosen))


_TEXT = _decoded(str)
_BASE64 = _decoded(bytes)
_GEOMETRY = _decoded(str, geometry_bytes)
_JSON = Column(msgspec.Raw, _json, _json)
UNTYPED = Column(msgspec.Raw, plain, plain)
"""Of a column whose type nothing tells."""
