"""Creates, drops, truncates and renames whole tables. A rename moves a folder with all its Delta files, or
renames a table in a catalog.

A statement may rename several tables, and swap names (`a TO tmp, b TO a, tmp TO b`). So existing names do not
show whether a step is done. Each step writes a mark before it starts and after it ends."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from handlers.api import Rejected
from handlers.logs import get_logger
from handlers.mysql.ddl import ANY_DATABASE, AddColumn, CreateTable, ModifyColumn, TableName
from handlers.mysql.ddl.rules import free_name
from handlers.spark.ddl.columns import add_columns, keep_dropped
from handlers.spark.ddl.rewriting import check_none_generated, clustering, modify_columns, overwriting
from handlers.spark.ddl.target import DELTA_LOG, Target
from handlers.spark.delta.commits.exactly_once import STRICT, settings
from handlers.spark.delta.few_files import Rewrite
from handlers.spark.delta.log_files import has_commits
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.rows.column_types import spark_name
from handlers.spark.rows.shape import HISTORY
from handlers.spark.table_ref import MADE, TableRef, find, literal, new_table, of_new_table, quoted

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
        _make_room(target, ref.path)
    else:
        make_schema(target, ref)
    listed = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
    properties = of_new_table(columns, around.options.properties) | MADE
    layout = around.options.partition_by, properties
    sql = f"CREATE {new_table(ref, columns, listed, *layout, cluster_by=around.options.cluster_by)}"
    target.make(ref, step, sql, columns, properties)


def make_room(files: Files, path: str) -> None:
    """Check that nothing is where a table will be created: Spark takes any folder for one. Remove a Delta log
    without a commit, which a failed attempt left. Raises Rejected."""
    log = f"{path}/{DELTA_LOG}"
    left = files.list(log)
    if any(each.name != DELTA_LOG for each in files.list(path)) or has_commits(files, path):
        raise Rejected(f"{path} contains files, but no Delta table: move them away")
    for each in left:  # by name: another worker may make the table now
        (files.delete_tree if each.is_folder else files.delete)(f"{log}/{each.name}")
    if files.exists(log):
        files.delete(log)


def _make_room(target: Target, path: str) -> None:
    try:
        make_room(target.around.files, path)
    except Rejected:
        target.look_again()  # another worker may have made the table
        raise


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
    plain = [replace(one, nullable=True, default=None, generated=None, numbered=0) for one in lacking]
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
    if target.is_history or (ref.path is not None and target.progress(table, step, f"drop {ref}").has_begun):
        return True
    return not target.exists(ref) or MADE.items() <= target.properties(ref).items()


def drop_table(target: Target, table: TableName, step: str) -> None:
    """Drop a table with its files. A history's versions end, but stay."""
    ref = target.ref(table)
    if target.is_history:
        truncate_table(target, ref, step)
        return
    if ref.path is None:
        if target.is_there(table):
            target.around.settle(table)
            target.around.leaving(table)
            target.look_again()
            target.session.sql(f"DROP TABLE {ref.sql}")
            target.done.append(f"DROP TABLE {ref.sql}")
        return
    # Without the mark, a folder that is no table belongs to somebody else.
    progress = target.progress(table, step, f"drop {ref}")
    if progress.is_done or not (progress.has_begun or target.is_there(table)):
        return
    target.around.settle(table)
    target.around.leaving(table)
    if not progress.has_begun:
        progress.begin()
    target.look_again()
    files, place = target.around.files, progress.away
    if isinstance(files, LocalFiles) and _moved_away(files, ref.path, place):
        for each in files.list(place):
            if each.name != _MOVED:
                (files.delete_tree if each.is_folder else files.delete)(f"{place}/{each.name}")
    else:
        _remove_log(target, f"{ref.path}/{DELTA_LOG}")
        target.look_again()
        files.delete_tree(ref.path)
    progress.finish()
    target.forget(ref)
    target.done.append(f"removed {ref}")


_MOVED = "binlane.moved"


def _moved_away(files: LocalFiles, path: str, place: str) -> bool:
    """Move a table's folder to this place. Returns False if it is on another disk, or a disk of its own.

    The place stays, and is never empty. So a worker that was stopped before its move cannot move a table that
    was made since."""
    try:
        if not files.exists(place):  # or an earlier attempt has moved it
            files.rename(path, place)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EBUSY):
            return False
        if not isinstance(error, AlreadyThere | FileNotFoundError):  # another worker has moved it
            raise
    if not files.exists(f"{place}/{_MOVED}"):
        with suppress(AlreadyThere):
            files.put(f"{place}/{_MOVED}", b"")
    return True


def _remove_log(target: Target, folder: str) -> None:
    """Remove files in an order that leaves, after a crash, an earlier version of the table, or none."""
    names = [entry.name for entry in target.around.files.list(folder) if not entry.is_folder]
    checkpoints = sorted(name for name in names if ".checkpoint." in name and name[:20].isdigit())
    base = checkpoints[-1][:20] if checkpoints else ""
    commits = sorted(
        name for name in names if name.endswith(".json") and name[:20].isdigit() and name not in checkpoints
    )
    later = [name for name in reversed(commits) if name[:20] > base]
    last = [name for name in names if base and name[:20] == base and name in checkpoints]
    others = [name for name in names if name not in later and name not in last]
    looked = 0.0
    for name in (*others, *later, *last):
        if not 0 <= time.time() - looked < 0.2:  # after a pause, another worker may have made the table anew
            looked = time.time()
            target.look_again()
        target.around.files.delete(f"{folder}/{name}")


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


def rename_table(target: Target, table: TableName, to: TableName, step: str) -> bool:
    """Rename a table. Returns whether it now has its new name, also from an earlier attempt."""
    old, new = target.ref(table), target.ref(to)
    if table.database == ANY_DATABASE or old == new:
        return False  # no known database has such a table
    what = f"{'.'.join(table)} to {'.'.join(to)}"
    progress = target.progress(table, step, what)
    if progress.is_done:
        return True
    if not progress.has_begun:
        if not target.is_there(table):
            return False
        if target.exists(new) and not _set_aside(target, to, f"{step}.aside"):
            # The source would have refused this, so the target's table is not from the source.
            log.warning("ddl_table_not_renamed", table=str(old), to=str(new), because="it exists")
            return False
        if old.path is None and schema_of(old) != schema_of(new):
            check_none_generated(target, old, f"{old} cannot become {new}: it must be copied")
    target.around.settle(table)
    target.around.settle(to)
    if not progress.has_begun:
        if new.path is not None:
            _make_room(target, new.path)
        progress.begin()
    target.around.leaving(table)
    target.around.leaving(to)
    target.look_again()
    if old.path is not None and new.path is not None:
        _move(target.around.files, old.path, new.path, progress.away)
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
    name = free_name(table.table, lambda new: target.exists(target.ref(table._replace(table=new))))
    return rename_table(target, table, table._replace(table=name), step)


def _move(files: Files, old: str, new: str, place: str) -> None:
    """Move a table. `place`: see `Progress.away`."""
    is_far = isinstance(files, LocalFiles) and not files.exists(place) and files.are_apart(old, new)
    if isinstance(files, LocalFiles) and not is_far and _moved_away(files, old, place):
        names = [each.name for each in files.list(place) if each.name != _MOVED]
        if DELTA_LOG in names and files.exists(f"{new}/{DELTA_LOG}"):
            raise AlreadyThere(new)
        # Its log comes last: until then, there is no table. Another worker may move the same.
        files.move_into(new, place, [name for name in names if name != DELTA_LOG])
        files.move_into(new, place, [name for name in names if name == DELTA_LOG])
        return
    if files.exists(new):
        files.delete(new)  # an empty folder
    if not isinstance(files, LocalFiles):
        _merge(files, old, new)
    elif files.exists(old):
        files.rename(old, new)


def _merge(files: Files, old: str, new: str) -> None:
    """Move a folder, also one that a crash of an object store's rename left partly moved."""
    if not files.exists(old):
        return
    if not files.exists(new):
        files.rename(old, new)
        return
    logs = [f"{each}/{DELTA_LOG}/{0:020d}.json" for each in (old, new)]
    if all(map(files.exists, logs)) and len(set(map(files.read, logs))) > 1:
        raise AlreadyThere(new)  # another table
    # Move its log last: until then, the old place is the table.
    for entry in sorted(files.list(old), key=lambda one: one.name == DELTA_LOG):
        source, goal = f"{old}/{entry.name}", f"{new}/{entry.name}"
        if entry.is_folder:
            _merge(files, source, goal)
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
