"""Values of a new column in existing rows: its default, or the value of its expression."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import islice
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from handlers.mysql.ddl import Column, Default
from handlers.mysql.types import BYTES, INTEGERS, MOST_OF_BINARY, TEXTS, MySQLType, read_type
from handlers.mysql.values import converter_of
from handlers.values.bounds import bounded

_NUMBERS = (*INTEGERS, "decimal", "float", "double", "bit", "year")
_DIALECTS = {"postgresql": Postgres, "mysql": MySQL, "spark": Spark, "duckdb": DuckDB}
_EXACT = {"postgresql": "numeric", "spark": "decimal(20, 0)", "duckdb": "int128"}
_MOST_NODES = 300
"""Most nodes of an expression. It is evaluated recursively, so this bounds the depth of Python's calls."""
# Nodes of an exact sum, difference or product of columns and numbers.
_FORMULA = (exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren)


def default_value(column: Column, time_ms: int) -> Any:
    """Return the default value, in the form that changes use for the column's type. None if there is no
    default or it cannot be known: an expression (a new UUID for each row), or a date outside the calendar.

    `time_ms`: when the statement ran, in milliseconds since 1970 UTC. CURRENT_TIMESTAMP is this time."""
    type_, default = read_type(column.type), column.default
    if column.numbered or column.generated is not None or (default is None and column.nullable):
        return None
    if default is None:
        return _implicit(type_)
    if default.kind in ("null", "expression"):
        return None
    if default.kind == "now":
        return _moment(type_, time_ms)
    try:
        return _literal(column.type, type_, default)
    except ValueError:
        return None


def _implicit(type_: MySQLType) -> Any:
    """The default of a NOT NULL column: https://dev.mysql.com/doc/refman/8.0/en/data-type-defaults.html."""
    if type_.name in _NUMBERS:
        return _read("0", type_)
    if type_.name in BYTES:
        length = type_.sizes[0] if type_.name == "binary" and type_.sizes else 0
        return bytes(min(length, MOST_OF_BINARY))
    own = {"enum": type_.labels[0] if type_.labels else "", "set": (), "time": timedelta(), "json": "null"}
    # Dates and geometries have no default that Python or another database can represent.
    return "" if type_.name in TEXTS else own.get(type_.name)


def _read(text: str, type_: MySQLType) -> Any:
    sizes = f"({','.join(map(str, type_.sizes))})" if type_.sizes else ""
    converter = converter_of(type_.name + sizes)
    return text if converter is None else converter.read(text)


def _moment(type_: MySQLType, time_ms: int) -> Any:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    if type_.name == "timestamp":
        return moment
    return moment.date() if type_.name == "date" else moment.replace(tzinfo=None)


def _literal(type_text: str, type_: MySQLType, default: Default) -> Any:
    text = default.text
    if default.kind in ("bits", "bytes"):
        base = 2 if default.kind == "bits" else 16
        if type_.name in _NUMBERS:
            return _read(str(int(text, base)), type_)
        raw = int(text, base).to_bytes((len(text) * base.bit_length() - len(text) + 7) // 8, "big")
        text = raw.decode("latin-1" if type_.name in BYTES else "utf-8")
    elif type_.name in BYTES:
        text = text.encode().decode("latin-1")
    if type_.name in ("char", "enum"):
        return text.rstrip(" ")
    if type_.name == "set":
        return set_in_order(filter(None, text.split(",")), type_.labels)
    converter = converter_of(type_text)
    value: Any = text if converter is None else converter.read(text)
    is_zero = default.kind == "text" and text in ("0", "00")
    if type_.name == "year" and (is_zero or 0 < value < 100):  # 1970 to 2069
        value += 2000 if value < 70 else 1900
    return value


def set_in_order(labels: Iterable[str], order: Iterable[str]) -> tuple[str, ...]:
    """Sort labels in the order of a set's type. Labels that the type lacks are dropped, as in MySQL."""
    chosen = frozenset(labels)
    return tuple(label for label in order if label in chosen)


class Formula:
    """The expression of a generated column that is a sum, difference or product of numbers."""

    def __init__(self, tree: exp.Expr, column: Column) -> None:
        self._tree = tree
        self._type = read_type(column.type)
        self.columns = sorted({found.name for found in tree.find_all(exp.Column)})

    def sql(
        self, family: str, names: Mapping[str, str], integers: Collection[str], floats: Collection[str]
    ) -> str:
        """Write it in the dialect of `postgresql`, `mysql`, `spark` or `duckdb`. `names`: column -> the
        target's name. `integers`, `floats`: those whose type may be too small for intermediate results."""
        tree = self._tree.copy()
        for column in list(tree.find_all(exp.Column)):
            own = names[column.name]
            wider = _EXACT.get(family) if own in integers else "double" if own in floats else None
            new = exp.column(own)
            column.replace(new if wider is None else exp.cast(new, wider))
        return tree.sql(dialect=_DIALECTS[family], identify=True)

    def value(self, row: Mapping[str, Any]) -> Any:
        """Compute the exact value for one row, in the column's type. None if a column is NULL."""
        numbers = {name: row[name] for name in self.columns}
        if any(number is None for number in numbers.values()):
            return None
        result = self._of(self._tree, numbers)
        if self._type.name == "decimal":
            scale = self._type.sizes[1] if len(self._type.sizes) > 1 else 0
            return result.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if self._type.name in ("float", "double"):
            return float(result)
        return int(result.to_integral_value(ROUND_HALF_UP))

    def _of(self, tree: exp.Expr, numbers: Mapping[str, Any]) -> Decimal:
        if isinstance(tree, exp.Column):
            return Decimal(str(numbers[tree.name]))
        if isinstance(tree, exp.Literal):
            return bounded(Decimal(tree.this))
        parts = [
            self._of(part, numbers) for part in (tree.this, tree.args.get("expression")) if part is not None
        ]
        if isinstance(tree, exp.Add):
            return parts[0] + parts[1]
        if isinstance(tree, exp.Sub):
            return parts[0] - parts[1]
        if isinstance(tree, exp.Mul):
            return parts[0] * parts[1]
        return -parts[0] if isinstance(tree, exp.Neg) else parts[0]


def formula_of(column: Column) -> Formula | None:
    """Return the formula of a generated column; None if it cannot be computed here."""
    if column.generated is None or read_type(column.type).name not in _NUMBERS:
        return None
    try:
        tree = sqlglot.parse_one(column.generated, read=MySQL)
    except (SqlglotError, RecursionError):
        return None
    if len(list(islice(tree.walk(), _MOST_NODES + 1))) > _MOST_NODES:
        return None
    is_formula = all(isinstance(node, _FORMULA) for node in tree.walk()) and not any(
        literal.is_string for literal in tree.find_all(exp.Literal)
    )
    return Formula(tree, column) if is_formula else None
