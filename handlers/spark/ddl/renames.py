"""Renames tables: moves a folder with all its Delta files, or renames a table in a catalog.

A statement may rename several tables, and swap names (`a TO tmp, b TO a, tmp TO b`). So existing names do not
show whether a step is done. Each step writes a mark before it starts and after it ends."""

from __future__ import annotations

from handlers.logs import get_logger
from handlers.mysql.ddl import ANY_DATABASE, TableName
from handlers.spark.ddl.progress import Progress
from handlers.spark.ddl.replacing import clustering, overwriting
from handlers.spark.ddl.retyping import check_none_generated
from handlers.spark.ddl.tables import has_current_rows, make_room, make_schema, schema_of
from handlers.spark.ddl.target import DELTA_LOG, Target
from handlers.spark.delta.commits.exactly_once import STRICT, settings
from handlers.spark.delta.statements import literal
from handlers.spark.log.stores.interface import Files
from handlers.spark.table_ref import TableRef

log = get_logger("handlers.spark")


def rename_table(target: Target, table: TableName, to: TableName, step: str) -> bool:
    """Rename a table. Returns whether it now has its new name, also from an earlier attempt."""
    old, new = target.ref(table), target.ref(to)
    if table.database == ANY_DATABASE or old == new:
        return False  # no known database has such a table
    what = f"{'.'.join(table)} to {'.'.join(to)}"
    progress = Progress(target, table, step, what)
    if progress.is_done:
        return True
    if not progress.has_begun:
        if not target.exists(old):
            return False
        if target.exists(new) and not _set_aside(target, to, f"{step}.aside"):
            # The source would have refused this, so the target's table is not from the source.
            log.warning("ddl_table_not_renamed", table=str(old), to=str(new), because="it exists")
            return False
        if old.path is None and schema_of(old) != schema_of(new):
            check_none_generated(target, old, f"{old} cannot become {new}: it must be copied")
    target.around.settle(table)
    target.around.settle(to)
    target.around.leaving(table)
    target.around.leaving(to)
    if not progress.has_begun:
        if new.path is not None:
            make_room(target.around.files, new.path)
        progress.begin()
    if old.path is not None and new.path is not None:
        _move(target.around.files, old.path, new.path)
    else:
        _rename(target, old, new)
    progress.finish()
    target.done.append(f"renamed {what}")
    for ref in (old, new):
        target.forget(ref)
    return True


def _set_aside(target: Target, table: TableName, step: str) -> bool:
    """Rename an ended history, whose table the source has dropped. Returns whether the table was one."""
    if not target.is_history or has_current_rows(target, target.ref(table)):
        return False
    number, name = 1, f"{table.table}_old"
    while target.exists(target.ref(table._replace(table=name))):
        number += 1
        name = f"{table.table}_old{number}"
    return rename_table(target, table, table._replace(table=name), step)


def _move(files: Files, old: str, new: str) -> None:
    """Move a folder, also one that a crash of an object store's rename left partly moved."""
    if not files.exists(old):
        return
    if not files.exists(new):
        files.rename(old, new)
        return
    # Move its log last: until then, the old place is the table.
    for entry in sorted(files.list(old), key=lambda one: one.name == DELTA_LOG):
        source, goal = f"{old}/{entry.name}", f"{new}/{entry.name}"
        if entry.is_folder:
            _move(files, source, goal)
            continue
        if not files.exists(goal):
            files.put(goal, files.read(source))
        files.delete(source)
    files.delete_tree(old)


def _rename(target: Target, old: TableRef, new: TableRef) -> None:
    session = target.session
    if not target.exists(old):
        return  # the rename was done, but its mark was not written
    make_schema(target, new)
    if schema_of(old) == schema_of(new):
        session.sql(f"ALTER TABLE {old.sql} RENAME TO {new.sql}")
        return
    # Copy a table into another schema: Spark's own catalogs rename only within one.
    detail = target.detail(old)
    writer = overwriting(session.table(old.sql), detail, columns=True)
    others = []
    for name, value in detail.properties.items():
        if not name.startswith("delta."):  # the writer would drop it
            others.append(f"{literal(name)} = {literal(value)}")
        elif not name.startswith("delta.columnMapping.max"):
            writer = writer.option(name, value)
    with settings(session, STRICT):
        writer.saveAsTable(new.sql)
    if others:
        session.sql(f"ALTER TABLE {new.sql} SET TBLPROPERTIES ({', '.join(others)})")
    again = clustering(new, target.columns(new), detail.clusteringColumns or ())
    if again:
        session.sql(again)
    session.sql(f"DROP TABLE {old.sql}")
