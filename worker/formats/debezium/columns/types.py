"""MySQL's column types in Debezium's schema-change records and in the schemas of rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from handlers.mysql.types import INTEGERS, SYNONYMS
from worker.formats.debezium.connect.meanings import DECIMAL, SOURCE, types_of
from worker.formats.debezium.connect.schema import Field, unquoted_list
from worker.formats.debezium.connect.values import bits_of
from worker.formats.debezium.postgres.types import sized_decimal

# Words after the size: INT(10) UNSIGNED.
_ATTRIBUTES = ("unsigned", "signed", "zerofill")
# Other spellings of types -> the spelling used here.
_SPELLINGS = {
    "boolean": "tinyint(1)",
    "bool": "tinyint(1)",
    "character": "char",
    "character varying": "varchar",
    "char varying": "varchar",
    "nchar": "char",
    "nvarchar": "varchar",
    "national char": "char",
    "national character": "char",
    "national varchar": "varchar",
    "national character varying": "varchar",
    "nchar varchar": "varchar",
    "double precision": "double",
    "long varchar": "mediumtext",
    "long": "mediumtext",
    "long varbinary": "mediumblob",
    "char byte": "binary",
    "serial": "bigint unsigned",
}
_SIZED = frozenset(
    (
        *INTEGERS,
        *("char", "varchar", "binary", "varbinary", "bit", "decimal", "float", "double", "vector"),
        *("datetime", "timestamp", "time", "year"),
    )
)


class Column(msgspec.Struct, gc=False):
    """A column of `tableChanges`: io.debezium.relational.history.ConnectTableChangeSerializer."""

    name: str
    type_name: str = msgspec.field(name="typeName", default="")
    type_expression: str | None = msgspec.field(name="typeExpression", default=None)
    length: int | None = None
    scale: int | None = None
    enum_values: Sequence[str] | None = msgspec.field(name="enumValues", default=None)
    """The labels of an enum or a set, each in quotes."""


def type_of_column(column: Column) -> str:
    """`BIGINT UNSIGNED` of length 20 -> `bigint(20) unsigned`."""
    name = column.type_expression or column.type_name
    return _type_text(name, column.length, column.scale, column.enum_values)


def _type_text(name: str, length: int | None, scale: int | None, labels: Sequence[str] | None) -> str:
    words = name.lower().split()
    end = len(words)
    while end > 1 and words[end - 1] in _ATTRIBUTES:
        end -= 1
    base, attributes = " ".join(words[:end]), "".join(f" {word}" for word in words[end:])
    base = _SPELLINGS.get(base, base)
    if base in ("enum", "set"):
        return f"{base}({','.join(labels)})" if labels else base
    if SYNONYMS.get(base, base) not in _SIZED or length is None or length < 0:
        return base + attributes
    size = f"{length},{scale}" if scale is not None else str(length)
    return f"{base}({size}){attributes}"


# ---- types from the schema of a row


def type_of_field(field: Field, *, is_mysql: bool) -> str | None:
    """The type text of a column, from its schema. None if MySQL has no such type (arrays, intervals).

    With `column.propagate.source.type` or `datatype.propagate.source.type` it is MySQL's own type. Otherwise
    it is the narrowest type for all values of the Connect type."""
    labels = _labels(field)
    own = field.parameter(f"{SOURCE}type") if is_mysql else None
    if own is not None:
        length, scale = (_number(field.parameter(SOURCE + part)) for part in ("length", "scale"))
        return _type_text(own, length, scale, labels)
    if labels is not None:
        return f"{'set' if field.name == 'io.debezium.data.EnumSet' else 'enum'}({','.join(labels)})"
    if field.name == DECIMAL:
        return _decimal(field)
    if field.name == "io.debezium.data.Bits":
        length = bits_of(field)
        return f"bit({length})" if length <= 64 else "longblob"
    if field.type == "boolean":
        return "bit(1)" if is_mysql else "boolean"
    return types_of(field).mysql


def _decimal(field: Field) -> str:
    precision, scale = field.parameter("connect.decimal.precision"), field.parameter("scale") or ""
    if not precision or not precision.isdecimal() or not scale.removeprefix("-").isdecimal():
        return "decimal"
    places = int(scale)
    # The connector sends the scale without its sign: see connect/values.py.
    return sized_decimal(int(precision), places - 2048 if places > 1000 else places)


def _labels(field: Field) -> list[str] | None:
    if field.name not in ("io.debezium.data.Enum", "io.debezium.data.EnumSet"):
        return None
    labels = unquoted_list(field.parameter("allowed") or "")
    return ["'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
