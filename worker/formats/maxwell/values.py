"""Columns of Maxwell's rows: the type that a JSON decoder reads, and the conversion after it.

Maxwell writes numbers as JSON numbers with all digits, sets as arrays, and JSON unchanged. It writes bytes in
base64, geometry as WKT, and everything else as text (see its `schema/columndef` package)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from handlers.mysql.types import BYTES, SHAPES, MySQLType, read_type
from handlers.mysql.values import converter_of
from worker.formats.json_values import compact, plain, text_of
from worker.formats.maxwell.wkt import geometry_bytes


class Column(NamedTuple):
    """The conversion of one column's JSON values to Python values."""

    json_type: Any
    """The type that a JSON decoder reads. It may refuse values that `read` accepts."""
    read: Callable[[msgspec.Raw], Any]
    """The whole conversion from JSON. Raises one of READ_ERRORS for a value that does not fit the type."""
    finish: Callable[[Any], Any] | None = None
    """The conversion of the decoder's value, unless that is None. Raises the same errors as `read`."""
    is_finished: Callable[[Any], bool] | None = None
    """Whether the decoder's value needs no conversion. None: it always needs one."""


_NULL = msgspec.Raw(b"null")


def column_of(type_text: str) -> Column:
    """The conversion for a column of this type (`decimal(10,2)`, `set('a','b')`)."""
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
    # Maxwell writes an enum's label, not its index.
    converter = None if name == "enum" else converter_of(type_text)
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
    """A JSON document as text. Maxwell writes NULL and JSON's null in the same way: both are None."""
    return None if raw == _NULL else compact(bytes(raw))


def _bytes_of(mysql_type: MySQLType) -> Column:
    length = mysql_type.padded_to
    if not length:
        return _BASE64
    # BINARY(n) always has n bytes, but Maxwell's stream drops the trailing zeros.
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
"""The conversion for a column of unknown type."""
