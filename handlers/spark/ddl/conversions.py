"""Values of existing rows, as a column's type changes: converted as MySQL does, by Spark SQL.

Only Spark's type of the old column is known: an enum, a JSON and a varchar are all strings.
https://dev.mysql.com/doc/refman/8.0/en/type-conversion.html"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

from handlers.mysql.types import INTEGERS as MYSQL_INTEGERS
from handlers.mysql.types import MySQLType, read_type
from handlers.spark.rows.spark_types import DECIMAL
from handlers.spark.table_ref import literal

INTEGERS = ("tinyint", "smallint", "int", "bigint")
_KINDS = {
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    "array<string>": "labels",
    "timestamp": "moment",
    "timestamp_ntz": "moment",
}


def kind_of(spark_type: str) -> str:
    """`integer`, `decimal`, `float`, `string`, `binary`, `labels`, `date`, `moment` (with or without a zone),
    or the type itself."""
    return _KINDS.get(spark_type, spark_type.partition("(")[0])


def converted(column: str, old: str, new: str, source_type: str) -> str | None:
    """Return SQL for the column's value in its new type, null if the value does not fit.

    `column`: quoted. `old`, `new`: Spark's types. `source_type`: the new type in MySQL's spelling. Returns
    None if no conversion exists between the two."""
    source = read_type(source_type)
    conversion = _CONVERSIONS.get(kind_of(new))
    return None if conversion is None else conversion(column, old, new, source)


# ---- numbers


def _to_number(column: str, old: str, new: str, source: MySQLType) -> str | None:
    name, whole = source.name, kind_of(new) == "integer" or source.name in (*MYSQL_INTEGERS, "bit")
    value = _number(column, old, new, whole=whole)
    if value is not None and name in ("float", "double") and len(source.sizes) == 2:
        return f"CASE WHEN round({value}, {source.sizes[1]}) = {value} THEN {value} END"
    if value is not None and name == "year":  # 1 to 99 and '0' are years of 1970 to 2069
        zero = f" OR {value} = 0" if kind_of(old) == "integer" else ""
        return f"CASE WHEN {value} BETWEEN 1901 AND 2155{zero} THEN {value} END"
    return value


def _number(column: str, old: str, new: str, *, whole: bool) -> str | None:
    kind = kind_of(old)
    if kind == "labels":
        return None  # labels' positions in the type's list are unknown
    if kind == "integer":
        return f"try_cast({column} AS {new})"
    if kind == "float":  # MySQL rounds these as C does, half to even
        return f"try_cast({f'rint({column})' if whole else column} AS {new})"
    if kind in ("date", "moment"):
        form = "yyyyMMdd" if kind == "date" else f"yyyyMMddHHmmss{'' if whole else '.SSSSSS'}"
        column = _cut(column, 0) if kind == "moment" and whole else column
        return f"try_cast(date_format({column}, '{form}') AS {new})"
    if kind in ("string", "binary"):
        column = _trusted_text(column) if kind == "binary" else column
        if whole:  # 18 digits are rounded, which leaves 20 for a bigint
            column = f"try_cast({column} AS decimal(38, 18))"
    elif kind != "decimal":
        return None
    return f"try_cast({f'round({column})' if whole else column} AS {new})"


# ---- texts


def _to_string(column: str, old: str, new: str, source: MySQLType) -> str | None:
    text = _text(column, old, source)
    return f"rtrim({text})" if text is not None and source.name == "char" else text


def _text(column: str, old: str, source: MySQLType) -> str | None:  # noqa: PLR0911 - one for each kind
    kind = kind_of(old)
    if source.name == "time":
        return _to_time(column, kind, source.sizes[0] if source.sizes else 0)
    if source.name == "enum" and kind != "string":  # a number counts its labels
        label = f"get({typed(source.labels, 'array<string>')}, try_cast({column} AS int) - 1)"
        return label if kind == "integer" else None
    if source.name == "decimal" and kind not in ("integer", "decimal"):
        return _fixed(column, (*source.sizes, 0, 0)[1]) if kind == "string" else None
    if kind == "string":
        return column
    if kind == "labels":
        return f"array_join({column}, ',')"
    if kind == "binary":
        return _trusted_text(column)
    if kind == "float":
        return _number_text(column)
    if kind == "decimal" or (kind == "integer" and source.name == "decimal"):
        return _digits(column, old, source)
    return f"CAST({column} AS string)" if kind in ("integer", "date", "moment") else None


def _number_text(column: str) -> str:
    """Return a float or double as text in MySQL's form: 2, 2.5, 1e20."""
    text = f"CAST({column} AS string)"
    whole = f"CAST(CAST({column} AS bigint) AS string)"
    shortened = f"replace(replace({text}, '.0E', 'e'), 'E', 'e')"
    digits = f"rtrim('0', CAST(try_cast({text} AS decimal(38, 33)) AS string))"
    shortened = f"CASE WHEN abs({column}) BETWEEN 1e-15 AND 1e-3 THEN {digits} ELSE {shortened} END"
    return f"CASE WHEN {column} = rint({column}) AND abs({column}) < 1e15 THEN {whole} ELSE {shortened} END"


def _digits(column: str, old: str, source: MySQLType) -> str:
    """Return a decimal as text. A decimal too long for Spark is kept as text, with trailing zeros."""
    text = f"CAST({column} AS string)"
    if source.name != "decimal":
        return text
    found = DECIMAL.fullmatch(old)
    scale, wanted = int(found[2]) if found else 0, source.sizes[1] if len(source.sizes) > 1 else 0
    if wanted <= scale:
        return f"CAST(CAST({column} AS decimal(38, {wanted})) AS string)" if wanted < scale else text
    point = "" if scale else "."
    return f"concat({text}, '{point}{'0' * (wanted - scale)}')"


def _fixed(column: str, scale: int) -> str:
    """Return a decimal that is a text with `scale` digits after the point, null if another is lost."""
    whole, fraction = (f"split_part({column}, '.', {place})" for place in (1, 2))
    text = f"concat({whole}, '.', rpad({fraction}, {scale}, '0'))" if scale else whole
    is_plain = (
        f"{column} RLIKE '^-?(0|[1-9][0-9]*)([.][0-9]{{0,{scale}}}0*)?$' AND NOT {column} RLIKE '^-[0.]*$'"
    )
    return f"CASE WHEN {is_plain} THEN {text} END"


def _trusted_text(column: str) -> str:
    """Return bytes as text if they are valid UTF-8, else null."""
    return f"CASE WHEN is_valid_utf8(CAST({column} AS string)) THEN CAST({column} AS string) END"


def _to_time(column: str, kind: str, digits: int) -> str | None:
    if kind == "date":
        return f"CASE WHEN {column} IS NOT NULL THEN '00:00:00{'.' + '0' * digits if digits else ''}' END"
    if kind == "moment":
        return f"date_format({_cut(column, digits)}, 'HH:mm:ss{'.' + 'S' * digits if digits else ''}')"
    if kind != "string":
        return None
    parts = f"split(ltrim('-', {column}), '[:.]')"
    hours, minutes, seconds = (f"int(element_at({parts}, {place}))" for place in (1, 2, 3))
    fraction = f"int(rpad(coalesce(get({parts}, 3), '0'), 6, '0'))"
    micros = f"((({hours} * 60L + {minutes}) * 60 + {seconds}) * 1000000 + {fraction})"
    clock = (
        f"format_string('%02d:%02d:%02d', {micros} div 3600000000L, {micros} div 60000000L % 60, "
        f"{micros} div 1000000L % 60)"
    )
    unit = 10 ** (6 - digits)
    sign = f"CASE WHEN {column} LIKE '-%' AND {micros} >= {unit} THEN '-' ELSE '' END"
    fraction = f", '.', left(format_string('%06d', {micros} % 1000000L), {digits})" if digits else ""
    is_time = f"{column} RLIKE '^-?[0-9]{{1,3}}:[0-9]{{2}}:[0-9]{{2}}(\\\\.[0-9]{{1,6}})?$'"
    return (
        f"CASE WHEN {is_time} AND {micros} % {unit} * 2 < {unit} THEN concat({sign}, {clock}{fraction}) END"
    )


def _cut(column: str, digits: int) -> str:
    """Return a moment with `digits` after the point. Null if MySQL, which rounds, and MariaDB, which cuts,
    would differ: no record tells which of both is the source."""
    unit = 10 ** (6 - digits)
    rest = f"((unix_micros(CAST({column} AS timestamp)) % {unit} + {unit}) % {unit})"
    return f"CASE WHEN {rest} * 2 < {unit} THEN timestampadd(MICROSECOND, -{rest}, {column}) END"


# ---- bytes, labels, dates


def _to_binary(column: str, old: str, new: str, source: MySQLType) -> str | None:
    kind = kind_of(old)
    if kind != "binary":
        text = _to_string(column, old, "string", MySQLType("text"))
        if text is None:
            return None
        column = f"encode({text}, 'UTF-8')"
    if source.name == "binary":
        length = source.sizes[0] if source.sizes else 1
        return f"CASE WHEN length({column}) <= {length} THEN rpad({column}, {length}, X'00') END"
    return column


def _to_labels(column: str, old: str, new: str, source: MySQLType) -> str | None:
    kind, order = kind_of(old), typed(source.labels, new)
    if kind == "string":  # it may be a number, or its collation may ignore case
        column = f"filter(split({column}, ','), one -> one <> '')"
        column = f"CASE WHEN size(array_except({column}, {order})) = 0 THEN {column} END"
    elif kind != "labels":
        return None
    # In the order of the type's list. Labels that it does not contain are dropped.
    return f"CASE WHEN {column} IS NOT NULL THEN filter({order}, one -> array_contains({column}, one)) END"


def _to_date(column: str, old: str, new: str, source: MySQLType) -> str | None:
    kind = kind_of(old)
    if kind == "date":
        return f"CAST({column} AS {new})"
    if kind in ("integer", "decimal", "float"):
        whole = f"try_cast({column} AS decimal(20, 0))"
        whole = f"CASE WHEN {whole} = {column} THEN CAST({whole} AS string) END"
        form = f"CASE length({whole}) WHEN 8 THEN 'yyyyMMdd' ELSE 'yyyyMMddHHmmss' END"
        return f"CAST(try_to_timestamp({whole}, {form}) AS {new})"
    if kind in ("string", "binary"):
        text = column if kind == "string" else _trusted_text(column)
        moment = new if kind_of(new) == "moment" else "timestamp_ntz"
        column = f"CASE WHEN {text} LIKE '%-%-%' THEN try_cast({text} AS {moment}) END"
    elif kind != "moment":
        return None
    if kind_of(new) == "date":
        later = f"CAST(timestampadd(MICROSECOND, 500000, {column}) AS date)"
        return f"CASE WHEN {later} = CAST({column} AS date) THEN {later} END"
    digits = (*source.sizes, 0)[0] if source.name in ("datetime", "timestamp") else 6
    return f"CAST({_cut(column, digits) if digits < 6 else column} AS {new})"


_CONVERSIONS: Mapping[str, Callable[[str, str, str, MySQLType], str | None]] = {
    "integer": _to_number,
    "decimal": _to_number,
    "float": _to_number,
    "string": _to_string,
    "binary": _to_binary,
    "labels": _to_labels,
    "date": _to_date,
    "moment": _to_date,
}


def typed(value: Any, type_: str) -> str:
    """Return a value as an SQL expression of a Spark type."""
    if value is None:
        return f"CAST(NULL AS {type_})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, list | tuple):
        return f"CAST(array({', '.join(literal(str(one)) for one in value)}) AS {type_})"
    if isinstance(value, datetime | date):
        value = value.isoformat()
    return f"CAST({literal(str(value))} AS {type_})"
