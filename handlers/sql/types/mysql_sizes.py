"""Choose column types that fit InnoDB's limits of rows and keys.

https://dev.mysql.com/doc/refman/8.0/en/column-count-limit.html, .../innodb-limits.html"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

_KEY_BYTES = 3072
_ROW_BYTES = 65_535
_CHARACTER = 4  # bytes of one character in utf8mb4
_LENGTH = 2  # bytes before a value of VARCHAR or VARBINARY
_OTHER = 12  # a text's length and pointer
_SIZES: Mapping[type, int] = {
    mysql.TINYINT: 1,
    mysql.SMALLINT: 2,
    mysql.MEDIUMINT: 3,
    sa.BIGINT: 8,
    sa.Integer: 4,
    sa.Float: 8,
    sa.Numeric: 30,  # DECIMAL(65, 30)
}
"""Maximal bytes. The first match counts."""

Type = TypeEngine[Any]


def key_type(type_: Type, parts: int) -> Type:
    """Return the type of a column in a key of `parts` columns. A key accepts no unlimited text or blob."""
    most = _KEY_BYTES // parts
    if isinstance(type_, sa.String) and getattr(type_, "length", None) is None:
        return mysql.VARCHAR(most // _CHARACTER)
    if isinstance(type_, sa.types._Binary) and not isinstance(type_, sa.VARBINARY | sa.BINARY):
        return mysql.VARBINARY(most)
    return type_


def fitting_types(
    types: Mapping[str, Type], key: Collection[str], only: Collection[str] | None = None
) -> dict[str, Type]:
    """Return types of a table's columns with which a row and the key fit. Key columns become shorter. The
    longest other columns become texts or blobs. Only columns in `only` may change; None allows all."""
    found = dict(types)
    free = found.keys() if only is None else set(only)
    most = _most([_bytes(found[name]) for name in key])
    for name in free & set(key):
        if _bytes(found[name]) > most:
            found[name] = _shorter(found[name], most)
    # NULL flags take a bit for each column. The longest columns go first.
    room = _ROW_BYTES - len(found) // 8 - 1 - sum(map(_in_row, found.values()))
    for name in sorted(free - set(key), key=lambda name: -_in_row(found[name])):
        if room >= 0 or not _is_sized(found[name]):
            break
        room += _in_row(found[name]) - _OTHER
        found[name] = mysql.LONGTEXT() if isinstance(found[name], sa.String) else mysql.LONGBLOB()
    return found


def _most(sizes: list[int]) -> int:
    """Return the most bytes for one part of a key. Shorter parts leave their share to the others."""
    room = _KEY_BYTES
    for place, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - place)
        if size > share:
            return share
        room -= size
    return _KEY_BYTES


def _shorter(type_: Type, size: int) -> Type:
    return mysql.VARCHAR(size // _CHARACTER) if isinstance(type_, sa.String) else mysql.VARBINARY(size)


def _is_sized(type_: Type) -> bool:
    return isinstance(type_, sa.VARCHAR | sa.CHAR | sa.VARBINARY | sa.BINARY)


def _bytes(type_: Type) -> int:
    if _is_sized(type_):
        length = getattr(type_, "length", None) or 1
        return length * _CHARACTER if isinstance(type_, sa.String) else length
    return next((size for kind, size in _SIZES.items() if isinstance(type_, kind)), _OTHER)


def _in_row(type_: Type) -> int:
    return _bytes(type_) + (_LENGTH if isinstance(type_, sa.VARCHAR | sa.VARBINARY) else 0)
