"""Values for existing rows of a new column: its default, its expression's value, or a number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from handlers.logs import get_logger
from handlers.mysql.ddl import Column
from handlers.mysql.ddl.values import default_value, formula_of
from handlers.spark.ddl.target import Target, find
from handlers.spark.delta.statements import literal
from handlers.spark.rows.column_types import column_type
from handlers.spark.table_ref import TableRef, quoted

log = get_logger("handlers.spark")

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# These are ordered identically everywhere. The order of text depends on the collation.
_ORDERED = (*_INTEGERS, "decimal", "date", "timestamp", "timestamp_ntz")


def fill(
    target: Target, ref: TableRef, columns: Sequence[Column], step: str, *, taken: Sequence[Column] = ()
) -> None:
    """Write the columns' defaults into the rows. `taken`: columns that existed before, so they may contain
    values. All other columns are null."""
    values, scalars = [], {}
    for column in columns:
        value = default_value(column, target.time_ms)
        default = column.default
        if value is None and default is not None and default.kind not in ("null", "text", "number"):
            log.warning("ddl_default_not_known", table=str(ref), column=column.name, default=default.text)
        if value is not None or column in taken:
            kept = None if value is None else column_type(column.type).convert(value)
            values.append(f"{quoted(column.name)} = {typed(kept, target.type_of(column))}")
            scalars[column.name] = kept
    if values:
        sql = f"UPDATE {ref.sql} SET {', '.join(values)}{target.current()}"
        target.rewrite(ref, step, sql, lambda table: table.filled(scalars))


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


def compute(target: Target, ref: TableRef, columns: Sequence[Column], step: str) -> None:
    """Compute generated columns whose expressions are supported: sums, differences and products."""
    there = target.columns(ref)
    integers = {name for name, type_ in there.items() if type_ in _INTEGERS}
    values, conditions = [], []
    for column in columns:
        formula = formula_of(column)
        if formula is None or any(find(there, one) is None for one in formula.columns):
            log.warning(
                "ddl_rows_not_computed", table=str(ref), column=column.name, expression=column.generated
            )
            continue
        expression = f"CAST({formula.sql('spark', integers)} AS {target.type_of(column)})"
        values.append(f"{quoted(column.name)} = {expression}")
        conditions.append(f"{quoted(column.name)} IS NULL")
    if values:
        current = target.current() or " WHERE true"
        where = f"{current} AND ({' OR '.join(conditions)})"
        target.run(ref, step, f"UPDATE {ref.sql} SET {', '.join(values)}{where}")


def number(target: Target, ref: TableRef, name: str, step: str, *, key: Sequence[str] | None) -> None:
    """Number the rows from 1 in the order of the primary key. InnoDB does the same in the source and in its
    replicas, but does not publish the numbers.

    If the key is missing, unknown or contains text, the numbers stay null."""
    columns = target.columns(ref)
    own = find(columns, name)
    keys = [find(columns, one) for one in key or ()]
    if own is None or own in keys:
        return
    if not keys or not all(one and columns[one].partition("(")[0] in _ORDERED for one in keys):
        log.warning("ddl_rows_not_numbered", table=str(ref), column=name, because="their order is unknown")
        return
    listed = ", ".join(quoted(one) for one in keys if one)
    same = " AND ".join(f"t.{quoted(one)} = n.{quoted(one)}" for one in keys if one)
    is_current = f" AND t.{quoted(target.added('current'))}" if target.is_history else ""
    numbers = f"SELECT {listed}, row_number() OVER (ORDER BY {listed}) AS n FROM {ref.sql}{target.current()}"
    sql = (
        f"MERGE INTO {ref.sql} AS t USING ({numbers}) AS n ON {same}{is_current} "
        f"WHEN MATCHED THEN UPDATE SET t.{quoted(own)} = CAST(n.n AS {columns[own]})"
    )
    target.run(ref, step, sql)
