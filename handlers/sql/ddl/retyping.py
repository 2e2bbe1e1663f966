"""Change a column's type: convert its values as MySQL would, and keep its default."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from struct import pack, unpack
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl.values import set_in_order
from handlers.mysql.types import BYTES, INTEGERS, TEXTS, MySQLType, read_type
from handlers.sql.ddl.rebuilding import rebuild
from handlers.sql.ddl.target import Target, TargetTable
from handlers.sql.types.column_types import Unsigned64

log = get_logger("handlers.sql")

Type = sa.types.TypeEngine[Any]
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d)?)(?:\.(\d{1,6}))?", re.ASCII)
_TIME = re.compile(r"(-?\d{2,3}:\d\d:\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_BY_KIND = {
    ("labels", "text"): "array_to_string({}, ',')",
    ("moment", "text"): "({} AT TIME ZONE 'UTC')::text",
    ("moment", "datetime"): "{} AT TIME ZONE 'UTC'",
    ("datetime", "moment"): "{} AT TIME ZONE 'UTC'",
}

# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
_NO_SUCH_DEFAULT = (1067, 1101, 1294)
"""Invalid default; texts and blobs allow no default; invalid ON UPDATE."""


def _kind(type_: Type) -> str:  # noqa: PLR0911 - one return for each kind
    if isinstance(type_, sa.Boolean):
        return "boolean"
    if isinstance(type_, sa.Integer | sa.Numeric | sa.Float | Unsigned64):
        return "number"
    if isinstance(type_, sa.LargeBinary | postgresql.BYTEA):
        return "bytes"
    if isinstance(type_, sa.ARRAY) and isinstance(type_.item_type, sa.String):
        return "labels"
    if isinstance(type_, sa.DateTime):
        return "moment" if type_.timezone else "datetime"
    if isinstance(type_, sa.String):
        return "text"
    return type_.__class__.__name__.lower()


def in_postgresql(column: str, old: Type, new: Type, new_sql: str) -> str:
    """Return an expression over the quoted column with the new type (`new_sql` in PostgreSQL's syntax).

    A too long text and a number out of range are errors, as in MySQL."""
    from_, to = _kind(old), _kind(new)
    if from_ == to:
        if isinstance(old, sa.Float) and not isinstance(new, sa.Integer | sa.Float):
            return f"{column}::double precision::text::numeric"  # its own cast keeps 6 or 15 digits
        return column  # PostgreSQL's own assignment rounds, and refuses values that do not fit
    by_kind = {
        **_BY_KIND,
        ("text", "labels"): "string_to_array({}, ',')",
        ("bytes", "text"): "convert_from({}, 'UTF8')",
        ("number", "boolean"): "{} <> 0",
        ("boolean", "number"): "{}::integer",
        # Not casts to the type itself: they would cut texts and refuse fractions for whole numbers.
        ("text", "number"): "{}::numeric",
    }
    text = by_kind.get((from_, "text"), "{}::text")
    others = {"text": text, "bytes": f"convert_to({text}, 'UTF8')"}
    return by_kind.get((from_, to), others.get(to, f"{text}::{new_sql}")).format(column)


def in_duckdb(column: str, old: Type, new: Type, new_sql: str) -> str:
    """Return an expression over the quoted column with the new type (`new_sql` in DuckDB's syntax). A number
    out of range is an error, as in MySQL. Texts have no length."""
    by_kind = {
        **_BY_KIND,
        ("text", "labels"): "CASE WHEN {0} = '' THEN [] ELSE string_split({0}, ',') END",
        ("bytes", "text"): "decode({})",
        ("text", "bytes"): "encode({})",
        ("labels", "bytes"): "encode(array_to_string({}, ','))",
    }
    return by_kind.get((_kind(old), _kind(new)), f"CAST({{}} AS {new_sql})").format(column)


def retype_in_sqlite(
    target: Target, table: TargetTable, column: str, type_text: str, spelled: str, *, same: bool
) -> None:
    """Change the type. `type_text`: in the source. `same`: the target has it already, but values may differ.

    Raises Rejected if the type does not accept a value, or if the source may have changed it."""
    type_, name, refused = read_type(type_text), target.quote(column), dict[str, None]()
    is_time = isinstance(target.columns(table)[column], sa.Date | sa.DateTime)

    def retyped(value: Any) -> Any:
        try:
            return None if value is None else _retyped(value, type_, is_time=is_time)
        except (ValueError, ArithmeticError):
            refused[str(value)] = None
            return None

    new = target.function(retyped, column)
    if not same:
        rebuild(target, table, types={column: spelled}, values={column: new})
    elif target.any_row(table, f"{name} IS NOT {new}"):
        target.run(f"UPDATE {target.ref(table)} SET {name} = {new} WHERE {name} IS NOT {new}")
    if refused:
        raise Rejected(
            f"column {column} of {table.name} cannot become {type_text}: some values do not fit, or the "
            f"source may have changed them, such as {next(iter(refused))!r:.40}"
        )


def _retyped(value: Any, type_: MySQLType, *, is_time: bool) -> Any:
    """Return a value as SQLite stores it in a column of the source's type. Raises ValueError or
    ArithmeticError. `is_time`: it is a date, or a time with all six digits of its fraction."""
    name = type_.name
    text = value.decode() if isinstance(value, bytes) and name not in BYTES else str(value)
    if is_time and "." in text:
        text = text.rstrip("0").rstrip(".")
    if name in (*INTEGERS, "bit", "year", "decimal", "float", "double"):
        return _number(text, type_)
    if name in ("date", "datetime", "timestamp", "time"):
        return _moment(text, type_, is_time=is_time)
    if name in ("enum", "set") and not isinstance(value, str):
        raise ValueError  # MySQL reads a number as the place of a label
    if name == "set":
        return ",".join(set_in_order(text.split(","), type_.labels))
    if name in BYTES:
        return (value if isinstance(value, bytes) else text.encode()).ljust(type_.padded_to, b"\0")
    if name in TEXTS:
        return text.rstrip(" ") if name == "char" else text
    return value


def _number(text: str, type_: MySQLType) -> Any:
    name, number = type_.name, Decimal(text)
    if name in ("float", "double", "decimal") and not number.is_finite():
        return text
    if name == "float":
        return unpack("f", pack("f", number))[0]
    if name == "double":
        return float(number)
    if name == "decimal" and not type_.sizes:
        return text
    digits = type_.sizes[1] if name == "decimal" else 0
    rounded = number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, Context(prec=100))
    if name == "decimal":
        return f"{rounded:f}"
    whole = int(rounded)
    if name == "year" and whole and not 1901 <= whole <= 2155:
        raise ValueError
    return whole if whole < 1 << 63 else str(whole)


def _moment(text: str, type_: MySQLType, *, is_time: bool) -> str:
    is_day, size = type_.name != "time", type_.sizes[0] if type_.sizes else 0
    found = (_MOMENT if is_day else _TIME).fullmatch(text)
    if found is None and is_time and is_day:
        return text  # beyond the calendar
    if found is None or (is_time and not is_day):
        raise ValueError
    begin, fraction = found[1], found[2] or ""
    if fraction[size : size + 1] >= "5":  # MySQL rounds it, MariaDB cuts it
        raise ValueError
    if type_.name == "date":
        return begin[:10]
    digits = fraction[:size].ljust(6, "0")
    if not is_day:
        return begin if digits == "000000" else f"{begin}.{digits}"
    return f"{begin if ' ' in begin else f'{begin} 00:00:00'}.{digits}"


def as_in_source(target: Target, table: TargetTable, column: str, type_text: str) -> None:
    """Remove blanks at the end of a CHAR, and parts of a second, which PostgreSQL and DuckDB keep. Raises
    Rejected if MySQL, which rounds parts of a second, and MariaDB would differ."""
    type_, name = read_type(type_text), target.quote(column)
    size = type_.sizes[0] if type_.sizes else 0
    new = where = ""
    if type_.name == "char":
        new, where = f"rtrim({name}, ' ')", f"{name} LIKE '% '"
    elif type_.name in ("datetime", "timestamp", "time") and size < 6:
        lost = f"(extract(microseconds FROM {name})::bigint % {10 ** (6 - size)})"
        new, where = f"{name} - {lost} * INTERVAL '1 microsecond'", f"{lost} <> 0"
        if target.any_row(table, f"abs({lost}) >= {5 * 10 ** (5 - size)}"):
            raise Rejected(
                f"column {column} of {table.name} cannot become {type_text}: MySQL rounds some of its "
                "values, and MariaDB cuts them"
            )
    if new and target.any_row(table, where):
        target.run(f"UPDATE {target.ref(table)} SET {name} = {new} WHERE {where}")


def modify_in_mysql(target: Target, table: TargetTable, column: str, definition: str) -> None:
    """Change the column's definition. Keep its default if the new type accepts it."""
    modify = f"MODIFY {target.quote(column)} {definition}"
    default = _default_in_mysql(target, table, column)
    if default:
        try:
            target.alter(table, f"{modify} DEFAULT {default}")
        except sa.exc.DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] not in _NO_SUCH_DEFAULT:
                raise
            target.done.pop()
            log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
        else:
            return
    target.alter(table, modify)


def _default_in_mysql(target: Target, table: TargetTable, column: str) -> str:
    """Return the default in SQL syntax; empty if the column has no default."""
    found = target.connection.execute(
        sa.text(
            "SELECT column_default, extra FROM information_schema.columns WHERE table_name = :name "
            "AND table_schema = coalesce(:schema, database()) AND column_name = :column"
        ),
        {"name": table.name, "schema": table.schema, "column": column},
    ).first()
    if found is None or found[0] is None:
        return ""
    default, extra = str(found[0]), str(found[1])
    if getattr(target.connection.dialect, "is_mariadb", False):
        return "" if default == "NULL" else default  # in SQL syntax already
    if "DEFAULT_GENERATED" in extra:
        return default if default.startswith("CURRENT_TIMESTAMP") else f"({default})"
    return default if default.startswith("b'") else target.literal(default, sa.String())


_DEFAULT = sa.text(
    "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d "
    "JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
    "WHERE d.adrelid = CAST(:table AS regclass) AND a.attname = :column AND a.attgenerated = ''"
)


def retype_in_postgresql(target: Target, table: TargetTable, column: str, clause: str, type_: str) -> None:
    """Change the type with `clause` (after ALTER COLUMN) and keep the default if it can be cast to `type_`.
    PostgreSQL itself keeps defaults only if an implicit or assignment cast exists."""
    own = f"ALTER COLUMN {target.quote(column)}"
    found = {"table": target.ref(table), "column": column}
    default = target.connection.scalar(_DEFAULT, found)
    if default is None:
        target.alter(table, f"{own} {clause}")
        return
    target.alter(table, f"{own} DROP DEFAULT", f"{own} {clause}")
    try:
        with target.connection.begin_nested():
            # Cast it once now. Otherwise it would fail only at each insert.
            target.run(f"SELECT CAST(({default}) AS {type_})", is_change=False)
            target.alter(table, f"{own} SET DEFAULT CAST(({default}) AS {type_})")
    except sa.exc.DBAPIError:
        log.warning("ddl_default_not_kept", table=table.name, column=column, default=default)
