"""Source column types as Spark keeps them: a MySQL type text -> an Arrow type and a conversion of values.

docs/spark.md contains the table of types. An unknown type becomes a string: no guesses, no losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import pyarrow as pa

from handlers.mysql.types import BYTES, SHAPES, SYNONYMS, read_type
from handlers.mysql.values import single
from handlers.spark.rows.conversions import ColumnType, fitting, singles, time_text
from handlers.spark.rows.spark_types import DECIMAL, MOST_DIGITS, read_spark_type

STRING = fitting(pa.string())

_LONG_DECIMAL = fitting(pa.decimal128(20, 0))  # bigint unsigned and bit(64) exceed a long's range
_BINARY = fitting(pa.binary())
# A server has rounded its values. Arrow's rounding changes only their notation.
_double = fitting(pa.float64()).convert
_FLOAT = ColumnType(pa.float32(), lambda value: single(_double(value)), frozenset((float,)), singles)
_TINYINT, _SMALLINT, _INT, _BIGINT = map(fitting, (pa.int8(), pa.int16(), pa.int32(), pa.int64()))
# MySQL's is a tinyint, PostgreSQL's holds true and false: the values decide.
_BOOLEAN = _TINYINT._replace(is_open=True)


def _signed(own: ColumnType, unsigned: ColumnType) -> tuple[ColumnType, ColumnType]:
    return own._replace(unsigned=unsigned.arrow), unsigned


# Signed and unsigned. The next wider type can hold the unsigned values.
_INTEGERS: Mapping[str, tuple[ColumnType, ColumnType]] = {
    **dict.fromkeys(("tinyint", "bool"), _signed(_TINYINT, _SMALLINT)),
    "smallint": _signed(_SMALLINT, _INT),
    "mediumint": (_INT, _INT),
    "int": _signed(_INT, _BIGINT),
    "bigint": _signed(_BIGINT, _LONG_DECIMAL),
}

_PLAIN: Mapping[str, ColumnType] = {
    "boolean": _BOOLEAN,
    "serial": _LONG_DECIMAL,
    "year": _SMALLINT,
    "double": fitting(pa.float64()),
    "date": fitting(pa.date32()),
    "datetime": fitting(pa.timestamp("us")),
    "timestamp": fitting(pa.timestamp("us", tz="UTC")),
    "set": fitting(pa.list_(pa.string())),
    **dict.fromkeys((*BYTES, *SHAPES, "vector"), _BINARY),
}


@lru_cache(maxsize=10_000)
def column_type(type_text: str) -> ColumnType:
    """Return the column type for a source type text such as `decimal(10,2) unsigned`."""
    mysql_type = read_type(type_text)
    name, sizes = SYNONYMS.get(mysql_type.name, mysql_type.name), mysql_type.sizes
    if name in _INTEGERS:
        return _INTEGERS[name][mysql_type.unsigned]
    if name in _SIZED:
        return _SIZED[name](sizes)
    return _PLAIN.get(name, STRING)


def _decimal(sizes: tuple[int, ...]) -> ColumnType:
    """Spark's decimals have up to 38 digits, MySQL's up to 65. Longer ones keep all their digits as text.

    Two are open. One is a decimal without sizes: decimal(10,0) in MySQL's DDL, any digits in PostgreSQL and
    in streams without sizes. The other is decimal(65,30), which DTS uses for all decimals
    (docs/formats.md)."""
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    kept = STRING if precision > MOST_DIGITS else fitting(pa.decimal128(precision, scale))
    return kept._replace(is_open=not sizes or sizes == (65, 30))


def _float(sizes: tuple[int, ...]) -> ColumnType:
    # FLOAT(25) to FLOAT(53) are doubles. FLOAT(7,4) is not: its numbers are digits.
    return fitting(pa.float64()) if len(sizes) == 1 and sizes[0] > 24 else _FLOAT


@lru_cache(maxsize=16)
def _time(sizes: tuple[int, ...]) -> ColumnType:
    return ColumnType(pa.string(), partial(time_text, digits=sizes[0] if sizes else 0))


_SIZED: Mapping[str, Callable[[tuple[int, ...]], ColumnType]] = {
    "decimal": _decimal,
    "float": _float,
    "bit": lambda sizes: _LONG_DECIMAL if sizes[:1] == (64,) else _BIGINT,
    "time": _time,
}


def may_change_alone(type_text: str) -> bool:
    """Whether a column's values may change as it gets this type, although Spark's type stays."""
    name, sizes = read_type(type_text)[:2]
    of_size = {
        **dict.fromkeys(("datetime", "timestamp"), sizes != (6,)),
        **dict.fromkeys(("float", "double"), len(sizes) == 2),
        "decimal": sizes > (MOST_DIGITS,),
    }
    return of_size.get(name, name in ("time", "set", "binary", "char", "year"))


# ---- Spark's own spelling

SPARK_NAMES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
}
_BY_TYPE = {arrow: name for name, arrow in SPARK_NAMES.items()}
USUAL = frozenset(_BY_TYPE)
"""The types that columns have, without decimals."""


def override(type_text: str) -> pa.DataType:
    """Return the Arrow type of a Spark type text, as in the option `columns`. Raises ValueError."""
    spark_type = read_spark_type(type_text)
    found = DECIMAL.fullmatch(spark_type)
    return pa.decimal128(int(found[1]), int(found[2])) if found else SPARK_NAMES[spark_type]


def spark_name(arrow: pa.DataType) -> str:
    """Return the type as Spark writes it: `decimal(12,2)`."""
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"array<{spark_name(arrow.value_type)}>"
    return _BY_TYPE.get(arrow, str(arrow))
