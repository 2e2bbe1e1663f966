"""Where new tables are built, and which of those that are left over nobody can need any more."""

from __future__ import annotations

from handlers.reloading import Refused
from handlers.spark.locations import PENDING
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import Files
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.several_writers import UnsafeForSeveral, check_store

FOLDER = "_binlane_reload"
"""Of new tables, in the folder of all tables; Spark and Delta pass over names that begin with an
underscore."""

_HOUR_MS = 3_600_000
LONGEST_MS = 12 * _HOUR_MS
"""A new table that is older is not put any more, long before the next reload takes it for left over."""
_LEFT_MS = 24 * _HOUR_MS


def folder_of(logs: str, log_folder: str) -> str:
    """Of the reloads of one log, below the folder of all tables: each has a folder in it, whose name begins
    with the milliseconds since 1970. `logs`: the folder of all logs. (Not by the source table's name: another
    handler may keep the same one.)"""
    return f"{FOLDER}{log_folder.removeprefix(logs).removesuffix(f'/{PENDING}')}"


def check_place(root: str, spark: SharedSpark) -> None:
    """Raises Refused where Delta has no safe commits of several writers: this is another Spark than the
    worker's."""
    try:
        check_store(root, spark)
    except UnsafeForSeveral:
        raise Refused(
            f"{root} is only safe for one writer, the worker: stop it, and confirm with --alone that none "
            "runs"
        ) from None


def remove_left(files: Files, root: str, folder: str, log: SegmentLog, now_ms: int) -> None:
    """Remove what reloads have left that were killed: long ago, so that none of them goes on, and what no
    entry of the log waits for. Raises what the store raises, and BrokenLog."""
    waiting = [each.statement.sql or "" for each in log.segments if each.statement is not None]
    for entry in files.list(f"{root}/{folder}"):
        began, _, _ = entry.name.partition("-")
        is_old = began.isdecimal() and int(began) + _LEFT_MS < now_ms
        if is_old and not any(each.startswith(f"{folder}/{entry.name}/") for each in waiting):
            files.delete_tree(f"{root}/{folder}/{entry.name}")
