"""Whose a log is: `table.json` beside its segments, as a folder's name cannot tell in every template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from handlers.api import Rejected
from handlers.spark.locations import CATALOG, PENDING
from handlers.spark.log.packs.pack_folder import SHARED, is_stream
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.stores.interface import AlreadyThere, Files

_NAME = "table.json"
_DDL = "ddl"
# Where handlers.spark.ddl.progress keeps what is done of statements: <topic>-<partition>-<offset>-<index>.
_PROGRESS = re.compile(r".+-\d+-\d+-\d+")


_VERSION = 1


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source table that a log belongs to, and what of its handler the segments' use depends on."""

    database: str
    table: str
    mode: str
    prefix: str | None = None
    """Of the columns that binlane adds; None: written by a release that did not tell, as the next one."""
    catalog: str | None = None
    """The handler's `table`; empty for one with a `path`, of which the log's own folder tells."""
    version: int = _VERSION
    """Of the file; one that does not tell is of the first."""


class _Version(msgspec.Struct):
    version: int = _VERSION


def fits(found: Owner, own: Owner) -> bool:
    """Whether a log is its reader's own, as far as is written down."""
    names = found.database, found.table, found.mode
    return (
        names == (own.database, own.table, own.mode)
        and found.prefix in (None, own.prefix)
        and found.catalog in (None, own.catalog)
    )


def sign(files: Files, log_folder: str, owner: Owner) -> Owner | None:
    """Write down whose the log is, if nobody has; returns who had, if somebody had.

    Raises Rejected when it is another's, BrokenLog for a `table.json` that does not tell, and what the store
    raises."""
    path = _place(log_folder)
    try:
        found = _read(files, path)
    except FileNotFoundError:
        try:
            files.put(path, msgspec.json.encode(owner))
        except AlreadyThere:
            found = _read(files, path)
        else:
            return None
    if not fits(found, owner):
        raise Rejected(_shared(path, found, owner))
    return found


def check_prefix(schema: pa.Schema | None, log_folder: str, prefix: str) -> None:
    """See to it that a log's segments have the columns of a handler with this prefix. Raises Rejected."""
    if schema is not None and f"{prefix}op" not in schema.names:
        added = next((name for name in schema.names if name.endswith("op")), None)
        hint = f"; they have {added}" if added else ""
        raise Rejected(
            f"the segments in {log_folder} have no column {prefix}op{hint}: they were written with another "
            "prefix. Set the handler's prefix back, or remove the table with its log and read the source "
            "again"
        )


def look_in(files: Files, here: str, root: str) -> tuple[bool, Sequence[str]]:
    """Whether a folder below `root`, the folder of all logs, is a log's; if not, which folders in it to look
    into. Raises what the store raises."""
    entries = files.list(here)
    if any(entry.name == _NAME for entry in entries):
        return True, ()
    names = sorted(entry.name for entry in entries if entry.is_folder and entry.name != CATALOG)
    if here == f"{root}/{_DDL}":  # there may be a database of this name, too
        names = [name for name in names if _PROGRESS.fullmatch(name) is None]
    if here == f"{root}/{SHARED}":  # the same
        names = [name for name in names if not is_stream(name)]
    return False, [f"{here}/{name}" for name in names]


def logs_below(files: Files, folder: str) -> Iterator[tuple[str, Owner]]:
    """Each log folder below the folder of all logs, and whose it is.

    Raises BrokenLog for a `table.json` that does not tell, and what the store raises."""
    folders = [folder]
    while folders:
        here = folders.pop()
        is_log, more = look_in(files, here, folder)
        if is_log:
            yield f"{here}/{PENDING}", owner_of(files, f"{here}/{PENDING}")
        folders += reversed(more)


def owner_of(files: Files, log_folder: str) -> Owner:
    """Whose log it is. Raises FileNotFoundError and BrokenLog."""
    return _read(files, _place(log_folder))


def _place(log_folder: str) -> str:
    return f"{log_folder.removesuffix(f'/{PENDING}')}/{_NAME}"


def _read(files: Files, path: str) -> Owner:
    data = files.read(path)
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > _VERSION:
            raise BrokenLog(
                f"{path} has version {version}, but this binlane knows versions up to {_VERSION}: run the "
                "release that wrote it, or a later one"
            )
        return msgspec.json.decode(data, type=Owner)
    except msgspec.MsgspecError as error:
        raise BrokenLog(
            f"{path} does not name the table of the log beside it ({error}): restore it from a backup; or, "
            "if the log belongs to this table only, remove the file, and the next batch writes it again"
        ) from None


def _shared(path: str, found: Owner, own: Owner) -> str:
    advice = (
        "Set it back, or remove the table with its log and read the source again"
        if (found.database, found.table, found.mode) == (own.database, own.table, own.mode)
        else "Give one of them its own place, with {database} and {table} in its name; or, if the first is "
        "no longer used, remove its table, its log and this file, and read the source again"
    )
    return (
        f"{path} says that this is the place of {_told(found, own)}; it cannot be that of "
        f"{_told(own, found)}, too: each would treat the other's changes as its own. {advice}"
    )


def _told(owner: Owner, other: Owner) -> str:
    told = f"the {owner.mode} of {owner.database}.{owner.table}"
    if None not in (owner.prefix, other.prefix) and owner.prefix != other.prefix:
        told += f" with prefix {owner.prefix}"
    if None not in (owner.catalog, other.catalog) and owner.catalog != other.catalog:
        told += f" in table {owner.catalog}" if owner.catalog else " in a path"
    return told
