"""Creates, drops and truncates whole tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl import AddColumn, CreateTable, ModifyColumn, TableName
from handlers.spark.ddl.columns import add_columns, keep_dropped
from handlers.spark.ddl.progress import Progress
from handlers.spark.ddl.retyping import modify_columns
from handlers.spark.ddl.target import DELTA_LOG, Target, find
from handlers.spark.delta.few_files import Rewrite
from handlers.spark.delta.log_files import has_commits
from handlers.spark.delta.statements import MADE, new_table, of_new_table
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.column_types import spark_name
from handlers.spark.rows.shape import HISTORY
from handlers.spark.table_ref import TableRef, quoted

log = get_logger("handlers.spark")


def create_table(target: Target, table: TableName, operation: CreateTable, step: str) -> bool:
    """Create an empty table with the source's columns. Returns whether the statement created it. An existing
    table stays. A history of an earlier table of that name continues: it gets the missing columns, and the
    new types."""
    ref = target.ref(table)
    if target.exists(ref):
        if step in target.steps(ref):
            return True
        if target.is_history and operation.columns and not has_current_rows(target, ref):
            _adapt(target, table, operation, step)
        return False
    if operation.like is not None:
        source = target.ref(target.named(operation.like))
        if not target.exists(source):
            return False  # its first row creates it
        columns = target.columns(source)
    else:
        columns = {column.name: target.type_of(column) for column in operation.columns}
        if not columns:
            return False
        if target.is_history:
            columns |= {target.added(name): spark_name(type_) for name, type_ in HISTORY.items()}
    _create(target, ref, columns, step)
    return True


def _create(target: Target, ref: TableRef, columns: Mapping[str, str], step: str) -> None:
    around = target.around
    if ref.path is not None:
        make_room(around.files, ref.path)
    else:
        make_schema(target, ref)
    listed = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
    properties = of_new_table(columns, around.properties) | MADE
    layout = around.partition_by, properties
    sql = f"CREATE {new_table(ref, columns, listed, *layout, cluster_by=around.cluster_by)}"
    target.make(ref, step, sql, columns, properties)


def make_room(files: Files, path: str) -> None:
    """Check that nothing is where a table will be created: Spark takes any folder for one. Remove a Delta log
    without a commit, which a failed attempt left. Raises Rejected."""
    if any(each.name != DELTA_LOG for each in files.list(path)) or has_commits(files, path):
        raise Rejected(f"{path} contains files, but no Delta table: move them away")
    if files.exists(path):
        files.delete_tree(path)


def make_schema(target: Target, ref: TableRef) -> None:
    """Create the schema that a catalog's table needs, if it does not exist."""
    schema = schema_of(ref)
    if schema:
        target.session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")


def schema_of(ref: TableRef) -> str:
    """Return the part before the table's own name, which may be empty."""
    found = re.fullmatch(r"(.+)\.`(?:[^`]|``)+`", ref.sql)
    return found[1] if found else ""


def has_current_rows(target: Target, ref: TableRef) -> bool:
    """Whether a history has rows that exist in the source now."""
    return bool(target.session.sql(f"SELECT 1 FROM {ref.sql}{target.current()} LIMIT 1").collect())


def _adapt(target: Target, table: TableName, operation: CreateTable, step: str) -> None:
    """Give a history the new columns. All its rows are past versions, so no defaults are filled in."""
    ref = target.ref(table)
    columns = target.source_columns(ref)
    lacking = [one for one in operation.columns if find(columns, one.name) is None]
    plain = [replace(one, nullable=True, default=None, generated=None, numbered=False) for one in lacking]
    if plain:
        add_columns(target, table, [AddColumn(table, one) for one in plain], f"{step}.columns", key=None)
    there = [ModifyColumn(table, one) for one in operation.columns if one not in lacking]
    modify_columns(target, table, there, f"{step}.types")
    names = [one.name for one in operation.columns]
    others = [name for name in columns if find(names, name) is None]
    keep_dropped(target, ref, f"{step}.dropped", gone=others, back=names)


def may_drop(target: Target, table: TableName, step: str) -> bool:
    """Whether binlane created the table. A history is never dropped: its versions end."""
    ref = target.ref(table)
    if target.is_history or (ref.path is not None and Progress(target, table, step, f"drop {ref}").has_begun):
        return True
    return not target.exists(ref) or MADE.items() <= target.properties(ref).items()


def drop_table(target: Target, table: TableName, step: str) -> None:
    """Drop a table with its files. A history's versions end, but stay."""
    ref = target.ref(table)
    if target.is_history:
        truncate_table(target, ref, step)
        return
    if ref.path is None:
        if target.exists(ref):
            target.around.settle(table)
            target.around.leaving(table)
            target.session.sql(f"DROP TABLE {ref.sql}")
            target.done.append(f"DROP TABLE {ref.sql}")
        return
    # Without the mark, a folder that is no table belongs to somebody else.
    progress = Progress(target, table, step, f"drop {ref}")
    if progress.is_done or not (progress.has_begun or target.exists(ref)):
        return
    target.around.settle(table)
    target.around.leaving(table)
    if not progress.has_begun:
        progress.begin()
    _remove_log(target.around.files, f"{ref.path}/{DELTA_LOG}")
    if target.around.files.exists(ref.path):
        target.around.files.delete_tree(ref.path)
    progress.finish()
    target.forget(ref)
    target.done.append(f"removed {ref}")


def _remove_log(files: Files, folder: str) -> None:
    """Remove files in an order that leaves, after a crash, an earlier version of the table, or none."""
    names = [entry.name for entry in files.list(folder) if not entry.is_folder]
    checkpoints = sorted(name for name in names if ".checkpoint." in name and name[:20].isdigit())
    base = checkpoints[-1][:20] if checkpoints else ""
    commits = sorted(
        name for name in names if name.endswith(".json") and name[:20].isdigit() and name not in checkpoints
    )
    later = [name for name in reversed(commits) if name[:20] > base]
    last = [name for name in names if base and name[:20] == base and name in checkpoints]
    others = [name for name in names if name not in later and name not in last]
    for name in (*others, *later, *last):
        files.delete(f"{folder}/{name}")


def truncate_table(target: Target, ref: TableRef, step: str) -> None:
    """Delete all rows. In a history, end the current ones."""
    if not target.exists(ref):
        return
    if not target.is_history:
        target.rewrite(ref, step, f"DELETE FROM {ref.sql}", lambda table: Rewrite(table.all_files(), ()))
        return
    began, ends, current = (quoted(target.added(name)) for name in ("valid_from", "valid_to", "current"))
    # Versions must not end before they began, even if the source's clock was set back.
    moment = f"greatest({began}, timestamp_millis({target.time_ms}))"
    target.run(ref, step, f"UPDATE {ref.sql} SET {ends} = {moment}, {current} = false WHERE {current}")
