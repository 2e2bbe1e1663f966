"""The types of DTS columns: type text and kind of value for each `dataTypeNumber`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """The kind of a column, which decides what a value's class does not."""

    PLAIN = auto()
    """The class of the value is enough."""
    SINGLE = auto()
    BIT = auto()
    BOOLEAN = auto()
    DATE = auto()
    DATETIME = auto()
    """A time without a zone."""
    TIMESTAMP = auto()
    """MySQL's TIMESTAMP, whose zero date is 0 seconds."""
    INSTANT = auto()
    """PostgreSQL's time in UTC."""
    TIME = auto()
    YEAR = auto()
    JSON = auto()
    SET = auto()
    GEOMETRY = auto()


class ColumnType(NamedTuple):
    kind: Kind
    text: str | None
    """MySQL's spelling. None if the values decide: then the type is `of_text` or `of_bytes`."""
    of_text: str | None = None
    of_bytes: str | None = None


UNKNOWN_TYPE = ColumnType(Kind.PLAIN, None)
"""The type for a number that is not in the table."""


def _type(text: str, kind: Kind = Kind.PLAIN) -> ColumnType:
    return ColumnType(kind, text)


# A record does not contain a type's digits. A Decimal has the precision and scale of its value (2 and 0 for
# 11.00 of a decimal(8,2)), and fractional seconds are in micros. So these are MySQL's widest types.
_DECIMAL = _type("decimal(65,30)")
_TIMESTAMP = _type("timestamp(6)", Kind.TIMESTAMP)
_DATETIME = _type("datetime(6)", Kind.DATETIME)
_DATE = _type("date", Kind.DATE)
_TIME = _type("time(6)", Kind.TIME)
_JSON = _type("json", Kind.JSON)
_VARIABLE = ColumnType(Kind.PLAIN, None, "varchar", "varbinary")

# The column types of MySQL's protocol, except NULL (6), which has no values:
# https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html
_MYSQL: Mapping[int, ColumnType] = {
    0: _DECIMAL,
    1: _type("tinyint"),
    2: _type("smallint"),
    3: _type("int"),
    4: _type("float", Kind.SINGLE),
    5: _type("double"),
    7: _TIMESTAMP,
    8: _type("bigint"),
    9: _type("mediumint"),
    10: _DATE,
    11: _TIME,
    12: _DATETIME,
    13: _type("year", Kind.YEAR),
    14: _DATE,
    15: _VARIABLE,
    16: _type("bit(64)", Kind.BIT),
    17: _TIMESTAMP,
    18: _DATETIME,
    19: _TIME,
    245: _JSON,
    246: _DECIMAL,
    247: _type("enum"),
    248: _type("set", Kind.SET),
    249: ColumnType(Kind.PLAIN, None, "tinytext", "tinyblob"),
    250: ColumnType(Kind.PLAIN, None, "mediumtext", "mediumblob"),
    251: ColumnType(Kind.PLAIN, None, "longtext", "longblob"),
    252: ColumnType(Kind.PLAIN, None, "text", "blob"),
    253: _VARIABLE,
    254: _VARIABLE,  # a char without its length would be char(1)
    255: _type("geometry", Kind.GEOMETRY),
}
# Object ids of PostgreSQL's built-in types (its catalog/pg_type.dat).
_POSTGRESQL: Mapping[int, ColumnType] = {
    16: _type("boolean", Kind.BOOLEAN),
    17: _type("longblob"),
    20: _type("bigint"),
    21: _type("smallint"),
    23: _type("int"),
    25: _type("longtext"),
    114: _JSON,
    700: _type("float", Kind.SINGLE),
    701: _type("double"),
    1042: _type("varchar"),
    1043: _type("varchar"),
    1082: _DATE,
    1083: _TIME,
    1114: _DATETIME,
    1184: _type("timestamp(6)", Kind.INSTANT),
    1700: _DECIMAL,
    2950: _type("uuid"),
    3802: _JSON,
}
_SOURCES = {"MySQL": _MYSQL, "DRDS": _MYSQL, "PostgreSQL": _POSTGRESQL}


def column_types(source_type: str) -> Mapping[int, ColumnType]:
    """dataTypeNumber -> type, for this kind of source. Raises ValueError for an unsupported source."""
    try:
        return _SOURCES[source_type]
    except KeyError:
        raise ValueError(
            f"a stream of {source_type}: only streams of {', '.join(_SOURCES)} can be read"
        ) from None
