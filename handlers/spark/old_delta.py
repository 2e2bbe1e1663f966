"""Appending rows to a Delta table whose columns follow the source's."""

from __future__ import annotations

import re

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, DecimalType, StructField

from worker.logs import get_logger

__all__ = ["IncompatibleColumn", "append"]

# https://docs.delta.io/delta-column-mapping/: other column names need the table's columns to be mapped.
_SPECIAL_NAME = re.compile(r"[ ,;{}()\n\t=]")
_MAPPED = ("delta.columnMapping.mode", "name")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}

_log = get_logger("spark")


class IncompatibleColumn(RuntimeError):
    """A column's type in the table and in the rows cannot be brought together."""


def append(session: SparkSession, rows: pa.Table, path: str) -> None:
    """Append `rows` to the Delta table at `path` in one commit; makes the table, and columns it lacks.

    A column whose type has become wider is widened in the table (two commits more, once). Raises
    IncompatibleColumn, else what Spark raises.
    """
    # Told the schema, Spark keeps a datetime without a zone as timestamp_ntz.
    frame = session.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
    try:
        _write(frame, path)
    except AnalysisException as error:
        if error.getCondition() == "DELTA_FAILED_TO_MERGE_FIELDS":
            frame = _fitted(session, frame, path)
        elif error.getCondition() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES":
            if _fields(session, path):
                _set(session, path, *_MAPPED)
        else:
            raise
        _write(frame, path)


def _write(frame: DataFrame, path: str) -> None:
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    if any(_SPECIAL_NAME.search(name) for name in frame.columns):
        writer = writer.option(*_MAPPED)
    writer.save(path)


def _fitted(session: SparkSession, frame: DataFrame, path: str) -> DataFrame:
    """`frame` in the table's types, after the table's narrower columns were widened."""
    table = {field.name.lower(): field for field in _fields(session, path)}
    wider: list[StructField] = []
    columns = []
    for field in frame.schema.fields:
        column = col(_quoted(field.name))
        kept = table.get(field.name.lower())
        if kept is not None and kept.dataType != field.dataType:
            if _holds(kept.dataType, field.dataType):
                column = column.cast(kept.dataType).alias(field.name)
            elif _holds(field.dataType, kept.dataType):
                wider.append(field)
            else:
                raise IncompatibleColumn(
                    f"column {field.name!r} is {kept.dataType.simpleString()} in the Delta table {path}, "
                    f"but the source's type is now kept as {field.dataType.simpleString()}"
                )
        columns.append(column)
    if wider:
        _set(session, path, "delta.enableTypeWidening", "true")
        for field in wider:
            to = field.dataType.simpleString()
            session.sql(f"ALTER TABLE delta.{_quoted(path)} ALTER COLUMN {_quoted(field.name)} TYPE {to}")
            _log.info("delta_column_widened", path=path, column=field.name, type=to)
    return frame.select(columns)


def _fields(session: SparkSession, path: str) -> list[StructField]:
    """The table's columns; none when there is no table."""
    try:
        return session.read.format("delta").load(path).schema.fields
    except AnalysisException:
        return []


def _set(session: SparkSession, path: str, key: str, value: str) -> None:
    session.sql(f"ALTER TABLE delta.{_quoted(path)} SET TBLPROPERTIES ('{key}' = '{value}')")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _holds(wide: DataType, narrow: DataType) -> bool:
    """True when every value of `narrow` is one of `wide`, and Delta can widen a column so.

    https://docs.delta.io/delta-type-widening/
    """
    pair = (narrow.typeName(), wide.typeName())
    if pair in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    return _narrower(_digits(narrow), _digits(wide))


def _digits(type_: DataType) -> tuple[int, int] | None:
    """How many digits a whole or decimal number has before and after the point."""
    if isinstance(type_, DecimalType):
        return type_.precision - type_.scale, type_.scale
    digits = _DIGITS.get(type_.simpleString())
    return None if digits is None else (digits, 0)


def _narrower(narrow: tuple[int, int] | None, wide: tuple[int, int] | None) -> bool:
    if narrow is None or wide is None:
        return False
    return narrow[0] <= wide[0] and narrow[1] <= wide[1]
