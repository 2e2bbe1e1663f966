"""MySQL type texts as in SHOW CREATE TABLE and change streams: `decimal(10,2) unsigned`."""

from __future__ import annotations

import re
from typing import NamedTuple

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
SHAPES = (
    *("geometry", "point", "linestring", "polygon"),
    *("multipoint", "multilinestring", "multipolygon", "geometrycollection"),
)
SYNONYMS = {
    "integer": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "dec": "decimal",
    "fixed": "decimal",
    "numeric": "decimal",
    "float4": "float",
    "real": "double",
    "float8": "double",
    "character": "char",
    "nchar": "char",
    "nvarchar": "varchar",
    "varcharacter": "varchar",
    "geomcollection": "geometrycollection",
}
"""Synonyms of one word: https://dev.mysql.com/doc/refman/8.0/en/other-vendor-data-types.html. `bool`,
`serial` and similar names are missing, because they mean more than a name."""
DECIMALS = ("decimal", *(name for name, stands_for in SYNONYMS.items() if stands_for == "decimal"))


MOST_OF_BINARY = 255
"""Most bytes of a BINARY in MySQL. A longer one is not MySQL's type, so its values are not padded."""


class MySQLType(NamedTuple):
    """The parts of one column type."""

    name: str
    """Lower case, without attributes: `bigint`, `double`, `enum`."""
    sizes: tuple[int, ...] = ()
    """The numbers in the brackets: (10, 2) of decimal(10,2)."""
    labels: tuple[str, ...] = ()
    """The labels of an enum or a set, in the type's order."""
    unsigned: bool = False

    @property
    def padded_to(self) -> int:
        """Bytes of each value of a BINARY(n), even if the stream drops trailing zeros; 0 for other types."""
        return (
            self.sizes[0] if self.name == "binary" and self.sizes and self.sizes[0] <= MOST_OF_BINARY else 0
        )


# Possessive, so a long text that is not a type fails fast.
_TYPE = re.compile(r"\s*+([a-z][a-z0-9_]*+)\s*+(?:\((.*)\))?([^()]*+)", re.IGNORECASE | re.DOTALL)
_SIZE = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_LABEL = re.compile(r"'((?:[^'\\]++|''|\\.)*+)('?)", re.DOTALL)  # an unclosed one runs to the end of the text
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
# https://dev.mysql.com/doc/refman/8.0/en/string-literals.html; any other escaped character is itself.
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def _unescaped(found: re.Match[str]) -> str:
    character = found[1]
    return "'" if character is None else _ESCAPES.get(character, character)


def literal(text: str) -> str:
    """Quote a text, such as a label of an enum."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def read_type(text: str) -> MySQLType:
    """Split a type text into its parts. A text that is not a type becomes the name, in lower case."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return MySQLType(text.lower())
    name, inside, attributes = found[1].lower(), found[2] or "", found[3].lower().split()
    unsigned = "unsigned" in attributes or "zerofill" in attributes
    if name in ("enum", "set"):
        labels = tuple(_ESCAPED.sub(_unescaped, label) for label, end in _LABEL.findall(inside) if end)
        return MySQLType(name, labels=labels)
    sizes = tuple(int(size) for size in inside.split(",") if _SIZE.fullmatch(size))
    return MySQLType(name, sizes=sizes, unsigned=unsigned)
