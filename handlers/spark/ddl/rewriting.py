"""Replaces a table's rows in one commit: by those of another table, or because a column gets another type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.functions import col, lit

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl import ModifyColumn, TableName
from handlers.spark.ddl.conversions import converted, kind_of
from handlers.spark.ddl.target import Target
from handlers.spark.delta.evolving import look
from handlers.spark.delta.log_files import has_commits
from handlers.spark.delta.table_columns import ColumnChange
from handlers.spark.rows.column_types import may_change_alone
from handlers.spark.rows.spark_types import can_widen
from handlers.spark.table_ref import NAMES_MAPPED, TYPES_WIDENED, WITHOUT_STATISTICS, TableRef, find, quoted


def replace_rows(target: Target, ref: TableRef, path: str, step: str) -> None:
    """Replace all rows with those of the Delta table at `path`. Columns that it lacks become null.

    Raises Rejected if it does not exist or has additional columns, and what Spark raises."""
    write_anew(target, ref, lambda: _rows_of(target, ref, path), step, told=f"rows of {path}")


def _rows_of(target: Target, ref: TableRef, path: str) -> DataFrame:
    if not has_commits(target.around.files, path):
        raise Rejected(f"{path}, which has the table's new rows, is missing: put it back")
    columns = target.columns(ref)
    new = target.session.read.format("delta").load(path)
    lost = [name for name in new.columns if find(columns, name) is None]
    if lost:
        raise Rejected(f"{ref} has no column {', '.join(lost)}, but the table's new rows have it: add it")
    there = {name: find(new.columns, name) for name in columns}
    return new.select(
        *(
            (lit(None) if own is None else col(quoted(own))).cast(type_).alias(name)
            for (name, own), type_ in zip(there.items(), columns.values(), strict=True)
        )
    )


def write_anew(
    target: Target,
    ref: TableRef,
    rows: Callable[[], DataFrame],
    step: str,
    *,
    columns: bool = False,
    told: str,
) -> None:
    """Replace all rows of the table in one commit. This removes Delta's clustering, so the next commit
    restores it. `columns`: also replace the columns. `told`: a description of the rows."""
    if step not in target.steps(ref):
        detail = target.detail(ref)
        writer = overwriting(rows(), detail, columns=columns)
        target.commit(
            ref,
            step,
            lambda: writer.save(ref.path) if ref.path is not None else writer.saveAsTable(ref.sql),
            detail.clusteringColumns or (),
            told=f"overwrite {ref.sql}: {told}",
        )
    again = clustering(ref, target.columns(ref), target.steps(ref).get(step, ()))
    if again:
        target.run(ref, f"{step}.cluster", again)


def clustering(ref: TableRef, columns: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the statement that clusters a table by the columns that Delta supports. None if none is left."""
    known = {quoted(name): type_ for name, type_ in columns.items()}
    own = [name if name in known else quoted(name) for name in names]  # Delta quotes some
    kept = [name for name in own if name in known and not known[name].startswith(WITHOUT_STATISTICS)]
    return f"ALTER TABLE {ref.sql} CLUSTER BY ({', '.join(kept)})" if kept else None


def overwriting(rows: DataFrame, detail: Any, *, columns: bool = False) -> DataFrameWriter:
    """Return a writer that overwrites the whole table and keeps its partitioning. `detail`: Target.detail.
    `columns`: the columns become those of the rows."""
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
    if columns:
        writer = writer.option("overwriteSchema", "true")
    if detail.partitionColumns:
        writer = writer.partitionBy(*detail.partitionColumns)
    return writer


log = get_logger("handlers.spark")

_GENERATED = ("delta.generationExpression", "delta.identity.")
"""Prefixes of Delta's metadata keys of columns that it fills by itself."""


@dataclass(frozen=True, slots=True)
class _Conversion:
    column: str
    is_other: bool
    """Whether Spark's type changes. If not, only values may change."""
    source_type: str
    expression: str
    """The value in the new type, null if it does not fit."""


def modify_columns(target: Target, table: TableName, operations: Sequence[ModifyColumn], step: str) -> None:
    """Widen types if Delta can, without rewriting files. Otherwise rewrite the whole table in one commit,
    with all columns at once. Raises Rejected, before any change, if a value does not fit."""
    ref = target.ref(table)
    columns = target.columns(ref)
    wider, conversions = _changes(target, table, columns, operations, {})
    convert = f"{step}.convert"
    is_converted = convert in target.steps(ref)
    changed = [] if is_converted else _checked(target, ref, table, conversions)
    if changed or is_converted:
        every = {one.column: one.expression for one in changed}
        every |= {name: f"CAST({quoted(name)} AS {type_})" for name, type_ in wider.items()}
        listed = [f"{every.get(name, quoted(name))} AS {quoted(name)}" for name in columns]
        sql = f"SELECT {', '.join(listed)} FROM {ref.sql}"
        write_anew(target, ref, lambda: target.session.sql(sql), convert, columns=True, told=sql)
    elif wider:
        target.allow(ref, *TYPES_WIDENED)
        clauses = ", ".join(f"{quoted(name)} TYPE {type_}" for name, type_ in wider.items())

        def widen(change: ColumnChange) -> None:
            for name, type_ in wider.items():
                change.widen(name, type_)

        target.alter(ref, f"{step}.widen", f"ALTER TABLE {ref.sql} ALTER COLUMN {clauses}", widen)
    _move(target, ref, operations, step)


def check_values(
    target: Target,
    table: TableName,
    operations: Sequence[ModifyColumn],
    renamed: Mapping[str, str],
    *,
    dropped: Iterable[str],
) -> None:
    """Raise Rejected if a value of `table` does not fit. `renamed`: new name of a column, case-folded -> its
    present name. `dropped`: the columns that leave with the same statement."""
    ref = target.ref(table)
    columns = target.columns(ref)
    _, conversions = _changes(target, table, columns, operations, renamed)
    maps = any(find(columns, one) is not None for one in (*renamed.values(), *dropped))
    _checked(target, ref, table, conversions, maps=maps)


def _changes(
    target: Target,
    table: TableName,
    columns: Mapping[str, str],
    operations: Sequence[ModifyColumn],
    renamed: Mapping[str, str],
) -> tuple[dict[str, str], list[_Conversion]]:
    """Return the columns to widen, with their types, and the columns to convert."""
    wider: dict[str, str] = {}
    conversions: list[_Conversion] = []
    for operation in operations:
        name, type_text = operation.column.name, operation.column.type
        own = find(columns, renamed.get(name.casefold(), name))
        if own is None:
            continue
        old, new = columns[own], target.type_of(operation.column)
        is_kept = name.lower() in target.around.overrides or not may_change_alone(type_text)
        is_kept = is_kept or kind_of(old) != kind_of(new)
        if is_kept and can_widen(old, new):
            wider[own] = new
        elif old != new or not is_kept:
            conversions.append(_conversion(table, own, old, new, type_text))
    return wider, conversions


def _conversion(table: TableName, column: str, old: str, new: str, type_text: str) -> _Conversion:
    expression = converted(quoted(column), old, new, type_text)
    if expression is None:
        raise Rejected(
            f"column {column} of {'.'.join(table)} is {old} in the Delta table and cannot become {type_text}:"
            f" there is no conversion of its values"
        )
    return _Conversion(column, old != new, type_text, expression)


def _checked(
    target: Target,
    ref: TableRef,
    table: TableName,
    conversions: Sequence[_Conversion],
    *,
    maps: bool = False,
) -> list[_Conversion]:
    """Return the conversions that change values. Raises Rejected for a value that does not fit, and if Delta
    refuses them. `maps`: the statement also renames or drops columns, for which names must be mapped."""
    if not conversions:
        return []
    wanted = []
    for number, one in enumerate(conversions):
        name = quoted(one.column)
        lost = f"{name} IS NOT NULL AND ({one.expression}) IS NULL"
        wanted += [
            f"count_if({lost}) AS lost{number}",
            f"min(CASE WHEN {lost} THEN CAST({name} AS string) END) AS example{number}",
            f"1 AS changed{number}"
            if one.is_other
            else f"count_if(NOT ({name} <=> ({one.expression}))) AS changed{number}",
        ]
    found = target.session.sql(f"SELECT {', '.join(wanted)} FROM {ref.sql}").collect()[0]
    for number, one in enumerate(conversions):
        if found[f"lost{number}"]:
            raise Rejected(
                f"column {one.column} of {'.'.join(table)} cannot become {one.source_type}: "
                f"{found[f'lost{number}']} of its values in the Delta table do not fit, such as "
                f"{str(found[f'example{number}'])[:60]!r}"
            )
    changed = [one for number, one in enumerate(conversions) if found[f"changed{number}"]]
    if changed:
        what = f"column {changed[0].column} of {'.'.join(table)} cannot become {changed[0].source_type}"
        check_none_generated(target, ref, f"{what}: the table must be rewritten")
        _check_no_feed(target, ref, table, maps=maps)
    return changed


def _check_no_feed(target: Target, ref: TableRef, table: TableName, *, maps: bool) -> None:
    """Raise Rejected if the table has a change data feed and column mapping, as renames and drops need.
    Delta then replaces no rows together with columns."""
    properties = target.properties(ref)
    is_mapped = maps or properties.get(NAMES_MAPPED[0], "none") != "none"
    if is_mapped and properties.get("delta.enableChangeDataFeed", "").lower() == "true":
        raise Rejected(
            f"Delta does not rewrite columns of {'.'.join(table)}, with a change data feed and column "
            f"mapping: ALTER TABLE {ref.sql} SET TBLPROPERTIES "
            "('delta.enableChangeDataFeed' = false), and set it again when the statement is applied"
        )


def check_none_generated(target: Target, ref: TableRef, what: str) -> None:
    """Raise Rejected if Delta would no longer fill one of the table's columns after a copy."""
    there = look(target.session, ref)
    for field in () if there is None else there.columns.fields:
        if any(key.startswith(_GENERATED) for key in field.metadata or ()):
            raise Rejected(
                f"{what}, and {field.name} would no longer be GENERATED. Apply it by hand, or make "
                f"{field.name} a plain column"
            )


def _move(target: Target, ref: TableRef, operations: Sequence[ModifyColumn], step: str) -> None:
    """Move columns to the places that the statement gives them."""
    for number, operation in enumerate(operations):
        names = list(target.columns(ref)) if operation.after is not None else []
        own = find(names, operation.column.name)
        after = operation.after and find(names, operation.after)
        if own is None or after is None or (after and after == own):
            continue
        at = names.index(own)
        if (names[at - 1] if at else "") == after:
            continue
        place = f"AFTER {quoted(after)}" if after else "FIRST"
        sql = f"ALTER TABLE {ref.sql} ALTER COLUMN {quoted(own)} {place}"
        target.alter(ref, f"{step}.move{number}", sql, methodcaller("move", own, after))
