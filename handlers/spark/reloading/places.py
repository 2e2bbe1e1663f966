"""Where new tables are built, and which left-over ones nobody can need any more."""

from __future__ import annotations

from handlers.reloading import Refused
from handlers.spark.locations import PENDING
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import Files
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.several_writers import UnsafeForSeveral, check_store

FOLDER = "_binlane_reload"
"""The folder of new tables, in the folder of all tables. Spark and Delta ignore names that begin with an
underscore."""

_HOUR_MS = 3_600_000
LONGEST_MS = 12 * _HOUR_MS
"""An older new table is no longer put. The next reload treats it as left over much later."""
_LEFT_MS = 24 * _HOUR_MS


def folder_of(logs: str, log_folder: str) -> str:
    """Return the folder of one log's reloads, below the folder of all tables. Each reload has a folder in it,
    whose name begins with milliseconds since 1970. `logs`: the folder of all logs. (The source table's name
    would not do, because another handler may keep the same table.)"""
    return f"{FOLDER}{log_folder.removeprefix(logs).removesuffix(f'/{PENDING}')}"


def check_place(root: str, spark: SharedSpark) -> None:
    """Raise Refused if several writers are not safe in Delta here, because this Spark is not the worker's."""
    try:
        check_store(root, spark)
    except UnsafeForSeveral:
        raise Refused(
            f"{root} is safe for one writer alone, which is the worker: stop it, and say that none runs with "
            f"--alone"
        ) from None


def remove_left(files: Files, root: str, folder: str, log: SegmentLog, now_ms: int) -> None:
    """Remove what killed reloads left, if it is so old that none of them continues and no entry of the log
    waits for it. Raises what the store raises, and BrokenLog."""
    waiting = [each.statement.sql or "" for each in log.segments if each.statement is not None]
    for entry in files.list(f"{root}/{folder}"):
        began, _, _ = entry.name.partition("-")
        is_old = began.isdecimal() and int(began) + _LEFT_MS < now_ms
        if is_old and not any(each.startswith(f"{folder}/{entry.name}/") for each in waiting):
            files.delete_tree(f"{root}/{folder}/{entry.name}")
