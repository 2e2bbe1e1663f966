"""Adding, dropping and renaming columns, and values of added ones in existing rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from handlers.logs import get_logger
from handlers.mysql.ddl import AddColumn, Column, ModifyColumn, TableName
from handlers.mysql.ddl.rules import free_name
from handlers.mysql.ddl.values import default_value
from handlers.spark.ddl.conversions import INTEGERS, typed
from handlers.spark.ddl.rewriting import modify_columns
from handlers.spark.ddl.target import Target
from handlers.spark.delta.table_columns import ColumnChange
from handlers.spark.rows.column_types import column_type
from handlers.spark.table_ref import NAMES_MAPPED, TableRef, find, literal, needs_mapping, quoted

log = get_logger("handlers.spark")

_ASIDE = "_binlane_aside"


def drop_columns(target: Target, ref: TableRef, names: Sequence[str], step: str) -> None:
    columns = target.columns(ref)
    own = [found for name in names if (found := find(columns, name)) is not None]
    if not own or step in target.steps(ref):
        return
    if target.keeps_dropped:
        keep_dropped(target, ref, step, gone=own)
        return
    if len(own) == len(columns):
        # Delta allows no table without columns. The next row adds the new ones.
        log.warning("ddl_columns_not_dropped", table=str(ref), columns=own, because="it has no others")
        return
    target.allow(ref, *NAMES_MAPPED)
    if target.around.next_version(ref) is None:  # only Spark commits to clustered tables
        _uncluster(target, ref, own, step)
    sql = f"ALTER TABLE {ref.sql} DROP COLUMNS ({', '.join(map(quoted, own))})"
    target.alter(ref, step, sql, lambda change: change.drop(own))


def _uncluster(target: Target, ref: TableRef, columns: Sequence[str], step: str) -> None:
    """Cluster by the other columns: Delta drops none that it clusters by."""
    clustered = target.detail(ref).clusteringColumns or ()
    gone = {*columns, *map(quoted, columns)}  # Delta quotes some
    if gone.intersection(clustered):
        kept = ", ".join(name if "`" in name else quoted(name) for name in clustered if name not in gone)
        clause = f"({kept})" if kept else "NONE"
        target.run(ref, f"{step}.cluster", f"ALTER TABLE {ref.sql} CLUSTER BY {clause}")


def rename_column(target: Target, ref: TableRef, name: str, new: str, step: str) -> bool:
    """Rename a column. Returns whether the table now has it under its new name."""
    if step in target.steps(ref):
        return True
    columns = target.columns(ref)
    own, taken = find(columns, name), find(columns, new)
    is_case = name.casefold() == new.casefold()
    if is_case and f"{step}.aside" in target.steps(ref):
        _rename(target, ref, _ASIDE, new, step)
        return True
    if own is None or own == new:
        return False
    target.allow(ref, *NAMES_MAPPED)
    if is_case:  # to Spark, both names are the same
        _rename(target, ref, own, _ASIDE, f"{step}.aside")
        own = _ASIDE
    elif taken is not None:
        if not target.is_history and not _is_dropped(target, ref, taken, step):
            log.warning("ddl_column_not_renamed", table=str(ref), column=own, to=new, because="it exists")
            return False
        _make_way(target, ref, taken, step)
    _rename(target, ref, own, new, step)
    return True


def _is_dropped(target: Target, ref: TableRef, name: str, step: str) -> bool:
    """Whether the source has dropped this column, or the older column of this name that makes way."""
    return f"{step}.dropped" in target.steps(ref) or find(dropped_columns(target, ref), name) is not None


def _make_way(target: Target, ref: TableRef, name: str, step: str) -> None:
    """Rename a column that the source has dropped."""
    target.allow(ref, *NAMES_MAPPED)
    columns = target.columns(ref)
    kept = free_name(name, lambda new: find(columns, new) is not None)
    keep_dropped(target, ref, f"{step}.dropped", gone=[kept], back=[name])
    _rename(target, ref, name, kept, f"{step}.kept")


def _rename(target: Target, ref: TableRef, name: str, new: str, step: str) -> None:
    sql = f"ALTER TABLE {ref.sql} RENAME COLUMN {quoted(name)} TO {quoted(new)}"
    target.alter(ref, step, sql, lambda change: change.rename(name, new))


def add_columns(
    target: Target, table: TableName, operations: Sequence[AddColumn], step: str, *, key: Sequence[str] | None
) -> None:
    """Add columns at their places, and fill existing rows with the values that the source gave them. In a
    history, fill only current versions: the values do not apply to past ones.

    A column that exists keeps its values: the statement is repeated. In a history, it may be a column that
    the source dropped earlier. Then it becomes the new column, with the new type."""
    ref = target.ref(table)
    columns = target.columns(ref)
    if not target.is_history:
        for one in operations:
            own = find(columns, one.column.name)
            if own is not None and _is_dropped(target, ref, own, f"{step}.{own}"):
                _make_way(target, ref, own, f"{step}.{own}")
                columns = target.columns(ref)
    step_add = f"{step}.add"
    if step_add in target.steps(ref):
        added = list(target.steps(ref)[step_add])
    else:
        new = [one for one in operations if find(columns, one.column.name) is None]
        added = [one.column.name for one in new]
        if new:
            if needs_mapping(added):
                target.allow(ref, *NAMES_MAPPED)
            placed = _placed(target, ref, new)
            clauses = ", ".join(f"{quoted(name)} {type_}{_place(after)}" for name, type_, after in placed)

            def add(change: ColumnChange) -> None:
                for name, type_, after in placed:
                    change.add(name, type_, after)

            target.alter(ref, step_add, f"ALTER TABLE {ref.sql} ADD COLUMNS ({clauses})", add, added)
    there = [one for one in operations if one.column.name not in added]
    dropped = dropped_columns(target, ref) if there and target.is_history else []
    back = [one for one in there if find(dropped, one.column.name) is not None]
    if back:
        again = [ModifyColumn(table, one.column) for one in back]
        modify_columns(target, table, again, f"{step}.again")
    given = [one.column for one in operations if one.column.name in added or one in back]
    fill(target, ref, given, f"{step}.fill", taken=[one.column for one in back])
    for column in given:
        if column.numbered:
            number(target, ref, column, f"{step}.number", key=key)
    if back:
        keep_dropped(target, ref, f"{step}.back", back=[one.column.name for one in back])


def _placed(
    target: Target, ref: TableRef, operations: Sequence[AddColumn]
) -> list[tuple[str, str, str | None]]:
    """Return the name and type of each, and the column that it follows: empty if it is the first, None if it
    is the last. By default it follows the source's last column."""
    names = list(target.source_columns(ref))
    is_last_the_sources = not target.is_history
    placed = []
    for one in operations:
        name = one.column.name
        after = None if one.after is None else one.after and find(names, one.after)
        at = len(names) if after is None else names.index(after) + 1 if after else 0
        if after is None and names and not is_last_the_sources:
            after = names[-1]
        placed.append((name, target.type_of(one.column), after))
        names.insert(at, name)
    return placed


def _place(after: str | None) -> str:
    if after is None:
        return ""
    return f" AFTER {quoted(after)}" if after else " FIRST"


_PROPERTY = "binlane.dropped_columns"
"""Property of the Delta table: the columns' names as a JSON list."""


def dropped_columns(target: Target, ref: TableRef) -> list[str]:
    """The columns that the source has dropped and the table keeps."""
    value = target.properties(ref).get(_PROPERTY)
    return [] if value is None else msgspec.json.decode(value, type=list[str])


def keep_dropped(
    target: Target, ref: TableRef, step: str, *, gone: Iterable[str] = (), back: Iterable[str] = ()
) -> None:
    """Record that the source has dropped (`gone`) or added again (`back`) some columns."""
    before = dropped_columns(target, ref)
    names = [name for name in before if find(back, name) is None]
    names += [name for name in gone if find(names, name) is None]
    if names != before:
        value = msgspec.json.encode(names).decode()
        sql = f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({literal(_PROPERTY)} = {literal(value)})"
        target.alter(ref, step, sql, lambda change: change.set(_PROPERTY, value))


# ---- values of existing rows

# These are ordered identically everywhere. The order of text depends on the collation.
_ORDERED = (*INTEGERS, "decimal", "date", "timestamp", "timestamp_ntz")


def fill(
    target: Target, ref: TableRef, columns: Sequence[Column], step: str, *, taken: Sequence[Column] = ()
) -> None:
    """Write the columns' defaults into the rows. `taken`: columns that existed before, so they may contain
    values. All other columns are null."""
    values, scalars = [], {}
    for column in columns:
        value = default_value(column, target.time_ms)
        default = column.default
        if value is None and default is not None and default.kind != "null":
            log.warning("ddl_default_not_known", table=str(ref), column=column.name, default=default.text)
        if value is not None or column in taken:
            kept = None if value is None else column_type(column.type).convert(value)
            values.append(f"{quoted(column.name)} = {typed(kept, target.type_of(column))}")
            scalars[column.name] = kept
    if values:
        sql = f"UPDATE {ref.sql} SET {', '.join(values)}{target.current()}"
        target.rewrite(ref, step, sql, lambda table: table.filled(scalars))


def number(target: Target, ref: TableRef, column: Column, step: str, *, key: Sequence[str] | None) -> None:
    """Number the rows in the order of the primary key. InnoDB does the same in the source and in its
    replicas, but does not publish the numbers.

    If the key is missing, unknown or contains text, the numbers stay null."""
    columns = target.columns(ref)
    own = find(columns, column.name)
    keys = [find(columns, one) for one in key or ()]
    if own is None or own in keys:
        return
    if not keys or not all(one and columns[one].partition("(")[0] in _ORDERED for one in keys):
        log.warning("ddl_rows_not_numbered", table=str(ref), column=own, because="their order is unknown")
        return
    listed = ", ".join(quoted(one) for one in keys if one)
    same = " AND ".join(f"t.{quoted(one)} = n.{quoted(one)}" for one in keys if one)
    is_current = f" AND t.{quoted(target.added('current'))}" if target.is_history else ""
    numbers = (
        f"SELECT {listed}, row_number() OVER (ORDER BY {listed}) + {column.numbered - 1} AS n "
        f"FROM {ref.sql}{target.current()}"
    )
    sql = (
        f"MERGE INTO {ref.sql} AS t USING ({numbers}) AS n ON {same}{is_current} "
        f"WHEN MATCHED THEN UPDATE SET t.{quoted(own)} = CAST(n.n AS {columns[own]})"
    )
    target.run(ref, step, sql)
